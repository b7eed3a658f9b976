package schema

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/schema/pattern"
)

// rule is a compiled schema: what a value must fit. Zero fields demand nothing.
type rule struct {
	never bool // nothing fits

	types      types
	choices    []choice // of enum and const
	refs       []*rule
	all        []*rule
	any, one   []*rule
	not        *rule
	when       *rule // if
	then, els  *rule
	object     objectRule
	array      arrayRule
	text       textRule
	number     numberRule
	inPlace    []*rule // all that the same value is checked by
	checks     int     // how many schemas a value is checked by, itself among them; 0 if not known yet
	isWeighing bool
}

type objectRule struct {
	least, most  *int
	required     []string
	members      map[string]*rule
	patterns     []patternRule
	rest         *rule // additionalProperties
	names        *rule
	needs        map[string][]string // dependentRequired
	dependent    map[string]*rule
	unevaluated  *rule
	dependencies []string // the names in needs and dependent, in order
}

type patternRule struct {
	*pattern.Pattern

	rule *rule
}

type arrayRule struct {
	least, most                 *int
	first                       []*rule // prefixItems
	rest                        *rule   // items
	isUnique                    bool
	contains                    *rule
	leastContains, mostContains *int
	unevaluated                 *rule
}

type textRule struct {
	least, most *int
	pattern     *pattern.Pattern
}

type numberRule struct {
	least, most, above, below, multipleOf *number
}

// types is a set of types of values.
type types int

var typeNames = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

const (
	typeNull types = 1 << iota
	typeBoolean
	typeObject
	typeArray
	typeNumber
	typeString
	typeInteger
)

func (t types) String() string {
	var names []string
	for i, name := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// choice is a set of values, one of which a value must be, by their canonical forms.
type choice struct {
	values map[string]bool
	want   string
}

// Compile compiles a schema. It fails with [Violations] that say what is wrong with it.
//
// A schema has all keywords of the draft 2020-12, and those of drafts 6 to 2019-09 that mean the same or have another
// name there. It may refer only to itself, and has an $id only at its root. The keywords format and content… are notes
// for readers, as the draft has it.
func Compile(text []byte) (*Schema, error) {
	var faults Violations
	if len(text) > MaxLength {
		faults.add(nil, "it has %d bytes; the limit is %d", len(text), MaxLength)
		return nil, faults
	}
	document, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	c := compiler{document: document, rules: map[uintptr]*rule{}, anchors: map[string]any{}}
	c.prepare(document, nil, 0)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	c.keywords = keywords()
	s := &Schema{root: c.compile(document, nil)}
	if len(c.faults) == 0 {
		c.weigh(s.root)
		for _, r := range c.rules {
			c.weigh(r)
		}
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	s.size = memoryOverhead + memoryPerByte*len(text) + memoryPerInstruction*c.patterns
	return s, nil
}

// These estimate the memory of a schema. Measured: see TestSizeIsEstimated.
const (
	memoryOverhead       = 4 << 10
	memoryPerByte        = 200
	memoryPerInstruction = 512
)

// compiler compiles the schemas of a document.
type compiler struct {
	document any
	keywords map[string]keyword
	// rules are the schemas that are compiled, by the identity of their values: one may be referred to by several.
	rules map[uintptr]*rule
	// anchors are the values with a name, and id is the address of the document.
	anchors  map[string]any
	id       string
	patterns int // their size
	faults   Violations
}

// prepare finds the anchors, before anything refers to them, and refuses what is nested too deep, and U+0000.
func (c *compiler) prepare(value any, at *place, depth int) {
	if depth > maxDepth {
		c.faults.add(at, "it is nested deeper than %d levels", maxDepth)
		return
	}
	switch v := value.(type) {
	case string:
		c.refuseNUL(v, at)
	case []any:
		for i, item := range v {
			c.prepare(item, at.to(strconv.Itoa(i)), depth+1)
		}
	case map[string]any:
		if id, ok := v["$id"].(string); ok && at == nil {
			c.id = strings.TrimSuffix(id, "#")
		}
		for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
			if name, ok := v[keyword].(string); ok {
				c.anchors[name] = v
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			c.refuseNUL(name, at)
			c.prepare(v[name], at.to(name), depth+1)
		}
	}
}

// refuseNUL refuses a text that the database would not store, where deployments have their schemas.
func (c *compiler) refuseNUL(text string, at *place) {
	if strings.ContainsRune(text, 0) {
		c.faults.add(at, "it has U+0000, which no text may have")
	}
}

// nothing is what no value fits.
var nothing = &rule{never: true, checks: 1}

// compile compiles a schema, unless it is compiled already.
func (c *compiler) compile(value any, at *place) *rule {
	switch v := value.(type) {
	case bool:
		if !v {
			return nothing
		}
		return &rule{}
	case map[string]any:
		identity := reflect.ValueOf(v).Pointer()
		if r := c.rules[identity]; r != nil {
			return r
		}
		r := &rule{}
		c.rules[identity] = r
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if k := c.keywords[name]; k != nil {
				k(c, r, v, v[name], at.to(name))
			}
		}
		r.finish()
		return r
	default:
		c.faults.add(at, "got %s, want an object or a boolean", typeOf(value))
		return nothing
	}
}

// finish derives what a check needs besides the keywords.
func (r *rule) finish() {
	r.inPlace = slices.Concat(r.refs, r.all, r.any, r.one)
	for _, one := range []*rule{r.not, r.when, r.then, r.els} {
		if one != nil {
			r.inPlace = append(r.inPlace, one)
		}
	}
	o := &r.object
	for _, name := range slices.Sorted(maps.Keys(o.dependent)) {
		r.inPlace = append(r.inPlace, o.dependent[name])
		o.dependencies = append(o.dependencies, name)
	}
	o.dependencies = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(o.dependencies, maps.Keys(o.needs)))))
}

// weigh counts the schemas that one value is checked by. It refuses those that multiply, or lead to themselves.
func (c *compiler) weigh(r *rule) int {
	switch {
	case r.checks > 0:
		return r.checks
	case r.isWeighing:
		c.faults.add(nil, "a $ref leads back to its schema without a step into the value, so that checks would not end")
		return maxChecks
	}
	r.isWeighing = true
	n := 1
	for _, inner := range r.inPlace {
		if n += c.weigh(inner); n > maxChecks {
			break
		}
	}
	if r.isWeighing = false; n > maxChecks && len(c.faults) == 0 {
		c.faults.add(nil, "one value would be checked by more than %d schemas, because each $ref counts as often as it "+
			"is reached: use fewer references to schemas that have several themselves", maxChecks)
	}
	r.checks = min(n, maxChecks)
	return r.checks
}

// resolve returns the schema that a reference names.
func (c *compiler) resolve(ref string, at *place) *rule {
	address, fragment, _ := strings.Cut(ref, "#")
	name, err := url.PathUnescape(fragment)
	value, found := c.document, err == nil && (address == "" || address == c.id)
	switch {
	case !found || name == "":
	case name[0] == '/':
		value, found = step(c.document, strings.Split(name[1:], "/"))
	default:
		value, found = c.anchors[name]
	}
	if !found {
		c.faults.add(at, "%s is not found: references lead to parts of this schema, such as #/$defs/name", quote(ref))
		return nothing
	}
	return c.compile(value, at)
}

// step follows the names of a JSON Pointer.
func step(value any, names []string) (any, bool) {
	for _, name := range names {
		name = unescape.Replace(name)
		switch v := value.(type) {
		case map[string]any:
			member, ok := v[name]
			if !ok {
				return nil, false
			}
			value = member
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}
