package schema

import (
	"maps"
	"slices"
	"strconv"
)

// entryCost is the cost of an entry of a map that is made or sorted.
const entryCost = 4

// namesIf returns the names of an object in order, if they are needed. The order makes what a check finds, and what it
// costs, the same each time.
func (c *check) namesIf(needed bool, object map[string]any) []string {
	if !needed || !c.charge(entryCost*len(object)) {
		return nil
	}
	return slices.Sorted(maps.Keys(object))
}

// object checks an object by the keywords for objects.
func (c *check) object(r *objectRule, object map[string]any, at *place, to *seen) bool {
	fits := c.within("Properties", len(object), r.least, r.most, at)
	if missing := c.missing(object, r.required); len(missing) == 1 {
		fits = c.violated(at, "missing property %s", quote(missing[0]))
	} else if len(missing) > 1 {
		fits = c.violated(at, "missing properties %s", quoteAll(missing))
	}
	if !fits && c.quiet > 0 {
		return false
	}
	var extra []string
	needed := r.members != nil || r.patterns != nil || r.rest != nil || r.names != nil
	for _, name := range c.namesIf(needed, object) {
		fits = c.member(r, name, object[name], at, to, &extra) && fits
		if !fits && c.quiet > 0 {
			return false
		}
	}
	if len(extra) > 0 {
		fits = c.violated(at, "additional properties %s not allowed", quoteAll(extra))
	}
	return c.dependencies(r, object, at, to) && fits
}

// missing returns the names that an object lacks.
func (c *check) missing(object map[string]any, names []string) (missing []string) {
	if !c.charge(len(names)) {
		return nil
	}
	for _, name := range names {
		if _, ok := object[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// member checks a member of an object. Those that are not allowed are added to extra.
func (c *check) member(r *objectRule, name string, value any, at *place, to *seen, extra *[]string) bool {
	fits, evaluated := true, false
	inner := at.to(name)
	if r.names != nil {
		if before := len(c.found); !c.value(r.names, name, at, nil) {
			why := slices.Clone(c.found[before:])
			c.found = c.found[:before]
			fits = c.violated(at, "invalid propertyName %s", quote(name))
			c.found = append(c.found, why[:min(len(why), maxViolations-len(c.found))]...)
		}
	}
	if member, ok := r.members[name]; ok {
		evaluated = true
		fits = c.value(member, value, inner, nil) && fits
	}
	for _, p := range r.patterns {
		if c.charge(p.Cost(len(name))) && p.MatchString(name) {
			evaluated = true
			fits = c.value(p.rule, value, inner, nil) && fits
		}
	}
	switch {
	case evaluated || r.rest == nil:
	case r.rest.never:
		*extra = append(*extra, name)
		return false
	default:
		evaluated = true
		fits = c.value(r.rest, value, inner, nil) && fits
	}
	if evaluated {
		to.name(name)
	}
	return fits
}

// dependencies checks what an object needs because of a member that it has.
func (c *check) dependencies(r *objectRule, object map[string]any, at *place, to *seen) bool {
	fits := true
	if !c.charge(len(r.dependencies)) {
		return false
	}
	for _, name := range r.dependencies {
		if _, ok := object[name]; !ok {
			continue
		}
		if missing := c.missing(object, r.needs[name]); len(missing) > 0 {
			fits = c.violated(at, "properties %s required, if %s exists", quoteAll(missing), quote(name))
		}
		if inner := r.dependent[name]; inner != nil {
			fits = c.apply(inner, object, at, to) && fits
		}
	}
	return fits
}

// array checks an array by the keywords for arrays.
func (c *check) array(r *arrayRule, array []any, at *place, to *seen) bool {
	fits := c.within("Items", len(array), r.least, r.most, at)
	if r.isUnique {
		fits = c.unique(array, at) && fits
	}
	for i, item := range array {
		inner := r.rest
		if i < len(r.first) {
			inner = r.first[i]
		}
		if inner == nil || !fits && c.quiet > 0 || c.err != nil {
			break
		}
		fits = c.value(inner, item, at.to(strconv.Itoa(i)), nil) && fits
	}
	if r.rest != nil {
		to.upTo(len(array))
	}
	to.upTo(min(len(r.first), len(array)))
	return c.contains(r, array, at, to) && fits
}

func (c *check) unique(array []any, at *place) bool {
	first := map[string]int{}
	for i, item := range array {
		form, ok := c.canonical(item, at.to(strconv.Itoa(i)))
		if !ok {
			return false
		}
		if earlier, found := first[form]; found {
			return c.violated(at, "items at %d and %d are equal", earlier, i)
		}
		first[form] = i
	}
	return true
}

// contains counts the items that fit.
func (c *check) contains(r *arrayRule, array []any, at *place, to *seen) bool {
	if r.contains == nil {
		return true
	}
	found := 0
	for i, item := range array {
		if c.err != nil {
			return false
		}
		if c.quietly(r.contains, item, at, nil) {
			found++
			to.item(i)
		}
	}
	least := 1
	if r.leastContains != nil {
		least = *r.leastContains
	}
	switch {
	case found < least && r.leastContains == nil:
		return c.violated(at, "no items match contains schema")
	case found < least:
		return c.violated(at, "min %d items required to match contains schema, but matched %d", least, found)
	case r.mostContains != nil && found > *r.mostContains:
		return c.violated(at, "max %d items required to match contains schema, but matched %d", *r.mostContains, found)
	}
	return true
}
