package schema

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/schema/pattern"
)

// keyword compiles the value of a keyword into the rule of a schema. The keyword is in a schema with others.
type keyword func(c *compiler, r *rule, schema map[string]any, value any, at *place)

// keywords returns all keywords that mean something for a check. Others are ignored, as the draft has it.
func keywords() map[string]keyword {
	return map[string]keyword{
		"$schema": dialect, "$id": identity, "$vocabulary": refused("vocabularies are not supported"),
		"$ref": reference, "$dynamicRef": reference, "$recursiveRef": reference,
		"$defs": definitions, "definitions": definitions,

		"type": typeKeyword, "enum": enum, "const": constant,
		"allOf": listOf(func(r *rule) *[]*rule { return &r.all }),
		"anyOf": listOf(func(r *rule) *[]*rule { return &r.any }),
		"oneOf": listOf(func(r *rule) *[]*rule { return &r.one }),
		"not":   one(func(r *rule) **rule { return &r.not }),
		"if":    one(func(r *rule) **rule { return &r.when }),
		"then":  one(func(r *rule) **rule { return &r.then }),
		"else":  one(func(r *rule) **rule { return &r.els }),

		"minProperties":         count(func(r *rule) **int { return &r.object.least }),
		"maxProperties":         count(func(r *rule) **int { return &r.object.most }),
		"required":              required,
		"properties":            mapOf(func(r *rule) *map[string]*rule { return &r.object.members }),
		"patternProperties":     patternProperties,
		"additionalProperties":  one(func(r *rule) **rule { return &r.object.rest }),
		"propertyNames":         one(func(r *rule) **rule { return &r.object.names }),
		"dependentRequired":     dependencies,
		"dependentSchemas":      dependencies,
		"dependencies":          dependencies, // until draft 7
		"unevaluatedProperties": one(func(r *rule) **rule { return &r.object.unevaluated }),

		"minItems":         count(func(r *rule) **int { return &r.array.least }),
		"maxItems":         count(func(r *rule) **int { return &r.array.most }),
		"prefixItems":      listOf(func(r *rule) *[]*rule { return &r.array.first }),
		"items":            items,
		"additionalItems":  additionalItems, // until draft 2019-09
		"uniqueItems":      uniqueItems,
		"contains":         one(func(r *rule) **rule { return &r.array.contains }),
		"minContains":      count(func(r *rule) **int { return &r.array.leastContains }),
		"maxContains":      count(func(r *rule) **int { return &r.array.mostContains }),
		"unevaluatedItems": one(func(r *rule) **rule { return &r.array.unevaluated }),

		"minLength": count(func(r *rule) **int { return &r.text.least }),
		"maxLength": count(func(r *rule) **int { return &r.text.most }),
		"pattern":   patternKeyword,

		"minimum":          bound(func(r *rule) **number { return &r.number.least }),
		"maximum":          bound(func(r *rule) **number { return &r.number.most }),
		"exclusiveMinimum": bound(func(r *rule) **number { return &r.number.above }),
		"exclusiveMaximum": bound(func(r *rule) **number { return &r.number.below }),
		"multipleOf":       multipleOf,
	}
}

// dialects are the values of $schema whose keywords are known.
var dialects = []string{
	"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema",
	"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema",
}

func dialect(c *compiler, _ *rule, _ map[string]any, value any, at *place) {
	if name, ok := value.(string); !ok || !slices.Contains(dialects, strings.TrimSuffix(name, "#")) {
		c.faults.add(at, "the draft is not known: want %s", dialects[0])
	}
}

func identity(c *compiler, _ *rule, _ map[string]any, _ any, at *place) {
	if at.in != nil {
		c.faults.add(at, "only the root of a schema has an $id: put it in $defs, and refer to it as #/$defs/name")
	}
}

func refused(why string) keyword {
	return func(c *compiler, _ *rule, _ map[string]any, _ any, at *place) { c.faults.add(at, "%s", why) }
}

// reference is a $ref. A $dynamicRef is one too: in a document without inner $ids, what it names does not depend on the
// way to it.
func reference(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	ref, ok := value.(string)
	if !ok {
		c.faults.add(at, "got %s, want string", typeOf(value))
		return
	}
	r.refs = append(r.refs, c.resolve(ref, at))
}

// definitions compiles schemas that others refer to, so that what is wrong with them is told.
func definitions(c *compiler, _ *rule, _ map[string]any, value any, at *place) { c.mapOf(value, at) }

func (c *compiler) mapOf(value any, at *place) map[string]*rule {
	object, ok := value.(map[string]any)
	if !ok {
		c.faults.add(at, "got %s, want object", typeOf(value))
		return nil
	}
	rules := make(map[string]*rule, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		rules[name] = c.compile(object[name], at.to(name))
	}
	return rules
}

func mapOf(field func(*rule) *map[string]*rule) keyword {
	return func(c *compiler, r *rule, _ map[string]any, value any, at *place) { *field(r) = c.mapOf(value, at) }
}

func one(field func(*rule) **rule) keyword {
	return func(c *compiler, r *rule, _ map[string]any, value any, at *place) { *field(r) = c.compile(value, at) }
}

func listOf(field func(*rule) *[]*rule) keyword {
	return func(c *compiler, r *rule, _ map[string]any, value any, at *place) {
		list, ok := value.([]any)
		if !ok || len(list) == 0 {
			c.faults.add(at, "want an array with at least one schema")
			return
		}
		for i, item := range list {
			*field(r) = append(*field(r), c.compile(item, at.to(strconv.Itoa(i))))
		}
	}
}

func count(field func(*rule) **int) keyword {
	return func(c *compiler, r *rule, _ map[string]any, value any, at *place) {
		n := c.number(value, at)
		if n == nil {
			return
		}
		if !n.exact().IsInt() || n.exact().Sign() < 0 {
			c.faults.add(at, "want a whole number, and none below 0")
			return
		}
		limit := math.MaxInt
		if whole := n.exact().Num(); whole.IsInt64() {
			limit = int(whole.Int64())
		}
		*field(r) = &limit
	}
}

func bound(field func(*rule) **number) keyword {
	return func(c *compiler, r *rule, _ map[string]any, value any, at *place) { *field(r) = c.number(value, at) }
}

func multipleOf(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	n := c.number(value, at)
	if n != nil && n.exact().Sign() <= 0 {
		c.faults.add(at, "want a number above 0")
		return
	}
	r.number.multipleOf = n
}

// number returns a number of the schema; nil if it is a fault.
func (c *compiler) number(value any, at *place) *number {
	text, ok := value.(json.Number)
	if !ok {
		c.faults.add(at, "got %s, want number", typeOf(value))
		return nil
	}
	n, ok := numberOf(text)
	if !ok {
		c.faults.add(at, "%s", outOfRange)
		return nil
	}
	n.exact() // checks at the same time share it
	return &n
}

func typeKeyword(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, item := range list {
		name, _ := item.(string)
		i := slices.Index(typeNames, name)
		if i < 0 {
			c.faults.add(at, "want one of %s, or a list of them", strings.Join(typeNames, ", "))
			return
		}
		r.types |= 1 << i
	}
}

func enum(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	list, ok := value.([]any)
	if !ok {
		c.faults.add(at, "got %s, want array", typeOf(value))
		return
	}
	c.choice(r, list, at)
}

func constant(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	c.choice(r, []any{value}, at)
}

// mostNamed is how many values or names a message has.
const mostNamed = 10

func (c *compiler) choice(r *rule, list []any, at *place) {
	values := make(map[string]bool, len(list))
	var names []string
	for _, item := range list {
		form, ok := canonical(item)
		if !ok {
			c.faults.add(at, "%s", outOfRange)
			return
		}
		values[form] = true
		if len(names) < mostNamed {
			names = append(names, display(item))
		}
	}
	want := "value must be one of " + strings.Join(names, ", ")
	switch {
	case len(list) == 1:
		want = "value must be " + names[0]
	case len(list) > mostNamed:
		want += " …"
	}
	r.choices = append(r.choices, choice{values, want})
}

func required(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	r.object.required = c.names(value, at)
}

// names returns a list of names.
func (c *compiler) names(value any, at *place) (names []string) {
	list, ok := value.([]any)
	for _, item := range list {
		name, isText := item.(string)
		names, ok = append(names, name), ok && isText
	}
	if !ok {
		c.faults.add(at, "want an array of strings")
	}
	return names
}

// dependencies are names or a schema, by the name of a member that needs them.
func dependencies(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	object, ok := value.(map[string]any)
	if !ok {
		c.faults.add(at, "got %s, want object", typeOf(value))
		return
	}
	o := &r.object
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch object[name].(type) {
		case []any:
			if o.needs == nil {
				o.needs = map[string][]string{}
			}
			o.needs[name] = append(o.needs[name], c.names(object[name], at.to(name))...)
		default:
			if o.dependent == nil {
				o.dependent = map[string]*rule{}
			}
			o.dependent[name] = c.compile(object[name], at.to(name))
		}
	}
}

func patternProperties(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	members := c.mapOf(value, at)
	for _, text := range slices.Sorted(maps.Keys(members)) {
		if p := c.pattern(text, at.to(text)); p != nil {
			r.object.patterns = append(r.object.patterns, patternRule{p, members[text]})
		}
	}
}

func patternKeyword(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	text, ok := value.(string)
	if !ok {
		c.faults.add(at, "got %s, want string", typeOf(value))
		return
	}
	r.text.pattern = c.pattern(text, at)
}

// pattern compiles a pattern; nil if it is a fault.
func (c *compiler) pattern(text string, at *place) *pattern.Pattern {
	size, err := pattern.Size(text)
	if c.patterns += size; err == nil && (size > maxPattern || c.patterns > maxPatterns) {
		c.faults.add(at, "%s", pattern.TooLarge)
		return nil
	}
	var p *pattern.Pattern
	if err == nil {
		p, err = pattern.Compile(text)
	}
	if err != nil {
		c.faults.add(at, "%v", err)
		return nil
	}
	return p
}

// items are those of all items after the first ones. Until draft 2019-09, a list has the first ones.
func items(c *compiler, r *rule, schema map[string]any, value any, at *place) {
	if _, isList := value.([]any); isList && schema["prefixItems"] == nil {
		listOf(func(r *rule) *[]*rule { return &r.array.first })(c, r, schema, value, at)
		return
	}
	r.array.rest = c.compile(value, at)
}

func additionalItems(c *compiler, r *rule, schema map[string]any, value any, at *place) {
	if _, isList := schema["items"].([]any); isList {
		r.array.rest = c.compile(value, at)
	}
}

func uniqueItems(c *compiler, r *rule, _ map[string]any, value any, at *place) {
	is, ok := value.(bool)
	if !ok {
		c.faults.add(at, "got %s, want boolean", typeOf(value))
	}
	r.array.isUnique = is
}
