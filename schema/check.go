package schema

import (
	"encoding/json"
	"strconv"
)

// check is one check of a value. All work is charged before it is done.
type check struct {
	left    int // cost that may still be charged
	stopped func() error
	looked  int   // what was left when stopped was asked last
	err     error // why the check has ended early; nothing counts then
	frames  int
	// quiet is above 0 while it matters only whether something fits.
	quiet int
	found Violations
}

// clockInterval is the cost after which a check looks whether its context has ended.
const clockInterval = 10_000

// charge takes the cost of the next step. If it is not true, the check ends.
func (c *check) charge(cost int) bool {
	if c.err != nil {
		return false
	}
	if c.left -= cost; c.left < 0 {
		c.err = ErrCost
		return false
	}
	if c.looked-c.left > clockInterval || c.looked == 0 {
		c.looked = c.left
		c.err = c.stopped()
	}
	return c.err == nil
}

// violated adds a violation, and returns false.
func (c *check) violated(at *place, format string, args ...any) bool {
	if c.quiet == 0 && c.err == nil {
		c.found.add(at, format, args...)
	}
	return false
}

// seen is what has been evaluated of a value, for schemas with unevaluatedProperties or unevaluatedItems. Nil keeps
// nothing: most schemas do not need it.
type seen struct {
	names map[string]bool
	first int // items
	items map[int]bool
}

func (s *seen) fresh() *seen {
	if s == nil {
		return nil
	}
	return newSeen()
}

func newSeen() *seen { return &seen{names: map[string]bool{}, items: map[int]bool{}} }

func (s *seen) name(name string) {
	if s != nil {
		s.names[name] = true
	}
}

func (s *seen) item(i int) {
	if s != nil {
		s.items[i] = true
	}
}

func (s *seen) upTo(items int) {
	if s != nil {
		s.first = max(s.first, items)
	}
}

// merge adds what another schema has evaluated, which the value fits.
func (s *seen) merge(c *check, other *seen) {
	if s == nil || !c.charge(entryCost*(len(other.names)+len(other.items))) {
		return
	}
	for name := range other.names {
		s.names[name] = true
	}
	for i := range other.items {
		s.items[i] = true
	}
	s.first = max(s.first, other.first)
}

// value reports whether a value fits a rule.
func (c *check) value(r *rule, value any, at *place, to *seen) bool {
	if !c.charge(1) {
		return false
	}
	if r.never {
		return c.violated(at, "false schema")
	}
	if c.frames++; c.frames > maxFrames {
		c.err = ErrCost
		return false
	}
	defer func() { c.frames-- }()
	return c.isOfType(r, value, at) && c.isChosen(r, value, at) && c.keywords(r, value, at, to)
}

// keywords checks the value by the keywords of a rule that have rules of their own, or are for its type.
func (c *check) keywords(r *rule, value any, at *place, to *seen) bool {
	own := to
	if own == nil && (r.object.unevaluated != nil || r.array.unevaluated != nil) {
		own = newSeen()
	}
	fits := true
	for _, ref := range r.refs {
		fits = c.apply(ref, value, at, own) && fits
	}
	fits = c.byType(r, value, at, own) && fits
	if !fits && c.quiet > 0 {
		return false
	}
	fits = c.combined(r, value, at, own) && fits
	fits = c.unevaluated(r, value, at, own) && fits
	return fits && c.err == nil
}

// byType checks the value by the keywords for its type.
func (c *check) byType(r *rule, value any, at *place, to *seen) bool {
	switch v := value.(type) {
	case map[string]any:
		return c.object(&r.object, v, at, to)
	case []any:
		return c.array(&r.array, v, at, to)
	case string:
		return c.text(&r.text, v, at)
	case json.Number:
		return c.number(&r.number, v, at)
	default:
		return true
	}
}

// apply checks the value by another schema for the same place. What that has evaluated counts if the value fits.
func (c *check) apply(r *rule, value any, at *place, to *seen) bool {
	inner := to.fresh()
	if !c.value(r, value, at, inner) {
		return false
	}
	to.merge(c, inner)
	return true
}

// quietly is apply without violations.
func (c *check) quietly(r *rule, value any, at *place, to *seen) bool {
	c.quiet++
	defer func() { c.quiet-- }()
	return c.apply(r, value, at, to)
}

func (c *check) isOfType(r *rule, value any, at *place) bool {
	if r.types == 0 {
		return true
	}
	has := typeNull
	switch v := value.(type) {
	case bool:
		has = typeBoolean
	case map[string]any:
		has = typeObject
	case []any:
		has = typeArray
	case string:
		has = typeString
	case json.Number:
		has = typeNumber
		if r.types&typeNumber != 0 || r.types&typeInteger == 0 {
			break
		}
		n, ok := c.exactly(v, at)
		if !ok {
			return false
		}
		if n.isWhole() {
			has = typeInteger
		}
	}
	return r.types&has != 0 || c.violated(at, "got %s, want %s", typeOf(value), r.types)
}

// exactly returns a number, which is charged for the arithmetic with it.
func (c *check) exactly(text json.Number, at *place) (n number, ok bool) {
	if !c.charge(numberCost(text)) {
		return n, false
	}
	if n, ok = numberOf(text); !ok {
		c.violated(at, "%s", outOfRange)
	}
	return n, ok
}

// isChosen checks enum and const.
func (c *check) isChosen(r *rule, value any, at *place) bool {
	if len(r.choices) == 0 {
		return true
	}
	form, ok := c.canonical(value, at)
	if !ok {
		return false
	}
	for _, choice := range r.choices {
		if !choice.values[form] {
			return c.violated(at, "%s", choice.want)
		}
	}
	return true
}

func (c *check) canonical(value any, at *place) (form string, ok bool) {
	if !c.charge(weight(value, c.left)) {
		return "", false
	}
	if form, ok = canonical(value); !ok {
		c.violated(at, "%s", outOfRange)
	}
	return form, ok
}

// combined checks the schemas that a value must fit all, some or none of.
func (c *check) combined(r *rule, value any, at *place, to *seen) bool {
	fits := true
	if r.not != nil && c.quietly(r.not, value, at, nil) {
		fits = c.violated(at, "'not' failed")
	}
	for _, inner := range r.all {
		if fits = c.apply(inner, value, at, to) && fits; !fits && c.quiet > 0 {
			return false
		}
	}
	fits = c.any(r.any, value, at, to) && fits
	fits = c.one(r.one, value, at, to) && fits
	switch {
	case r.when == nil:
	case c.quietly(r.when, value, at, to):
		fits = (r.then == nil || c.apply(r.then, value, at, to)) && fits
	case r.els != nil:
		fits = c.apply(r.els, value, at, to) && fits
	}
	return fits
}

func (c *check) any(rules []*rule, value any, at *place, to *seen) bool {
	if len(rules) == 0 {
		return true
	}
	fits, before := false, len(c.found)
	for _, inner := range rules {
		if fits = c.apply(inner, value, at, to) || fits; fits && to == nil {
			break // otherwise the others may evaluate more
		}
	}
	if fits {
		c.found = c.found[:before] // those of other alternatives
		return true
	}
	return c.violated(at, "'anyOf' failed")
}

func (c *check) one(rules []*rule, value any, at *place, to *seen) bool {
	if len(rules) == 0 {
		return true
	}
	first, before := -1, len(c.found)
	for i, inner := range rules {
		switch fits := first < 0 && c.apply(inner, value, at, to) || first >= 0 && c.quietly(inner, value, at, nil); {
		case fits && first >= 0:
			c.found = c.found[:before]
			return c.violated(at, "'oneOf' failed, subschemas %d, %d matched", first, i)
		case fits:
			first = i
		}
	}
	if first >= 0 {
		c.found = c.found[:before]
		return true
	}
	return c.violated(at, "'oneOf' failed, none matched")
}

// unevaluated checks what no other keyword has evaluated.
func (c *check) unevaluated(r *rule, value any, at *place, to *seen) bool {
	fits := true
	switch v := value.(type) {
	case map[string]any:
		for _, name := range c.namesIf(r.object.unevaluated != nil, v) {
			if !to.names[name] {
				fits = c.value(r.object.unevaluated, v[name], at.to(name), nil) && fits
				to.name(name)
			}
		}
	case []any:
		if r.array.unevaluated == nil {
			break
		}
		for i := to.first; i < len(v) && c.charge(1); i++ {
			if !to.items[i] {
				fits = c.value(r.array.unevaluated, v[i], at.to(strconv.Itoa(i)), nil) && fits
			}
		}
		to.upTo(len(v))
	}
	return fits
}

func (c *check) text(r *textRule, text string, at *place) bool {
	fits := true
	if r.least != nil || r.most != nil {
		if !c.charge(textCost(text)) {
			return false
		}
		fits = c.within("Length", length(text), r.least, r.most, at)
	}
	if p := r.pattern; p != nil && c.charge(p.Cost(len(text))) && !p.MatchString(text) {
		fits = c.violated(at, "%s does not match pattern %s", quote(text), quote(p.String()))
	}
	return fits
}

// within checks a number of things by the keywords min… and max….
func (c *check) within(what string, got int, least, most *int, at *place) bool {
	if least != nil && got < *least {
		return c.violated(at, "min%s: got %d, want %d", what, got, *least)
	}
	return most == nil || got <= *most || c.violated(at, "max%s: got %d, want %d", what, got, *most)
}

func (c *check) number(r *numberRule, text json.Number, at *place) bool {
	if *r == (numberRule{}) {
		return true
	}
	n, ok := c.exactly(text, at)
	if !ok {
		return false
	}
	fits := true
	for _, bound := range []struct {
		name  string
		limit *number
		isOut func(sign int) bool
	}{
		{"minimum", r.least, func(sign int) bool { return sign < 0 }},
		{"maximum", r.most, func(sign int) bool { return sign > 0 }},
		{"exclusiveMinimum", r.above, func(sign int) bool { return sign <= 0 }},
		{"exclusiveMaximum", r.below, func(sign int) bool { return sign >= 0 }},
	} {
		if bound.limit != nil && bound.isOut(n.compare(bound.limit)) {
			fits = c.violated(at, "%s: got %s, want %s", bound.name, cut(n.text), cut(bound.limit.text))
		}
	}
	if r.multipleOf != nil && !n.isMultipleOf(r.multipleOf) {
		fits = c.violated(at, "multipleOf: got %s, want %s", cut(n.text), cut(r.multipleOf.text))
	}
	return fits
}
