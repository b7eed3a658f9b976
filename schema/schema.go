// Package schema checks values by JSON Schemas (2020-12): the inputs of flows, and the forms of approvals.
//
// Users write the schemas and send the values, so both are bounded. A schema is refused when it is compiled if it has
// too many bytes, levels or patterns, or if its references multiply: see [Compile]. A check is charged before each step
// of its work, and ends at a limit that depends on nothing but the schema and the value: see [Schema.Check]. So no
// value needs more time than about what decoding it takes, and a check has the same result on every server.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxLength limits the bytes of a schema, and maxDepth how deep its values are nested.
	MaxLength = 256 << 10
	maxDepth  = 64
	// maxChecks limits how many schemas one value may have to fit: a schema may name others, which name others.
	maxChecks = 10_000
	// maxPattern limits the size of a pattern, and maxPatterns that of all patterns of a schema: see [pattern.Size].
	maxPattern  = 2000
	maxPatterns = 20_000
	// baseCost and costPerByte limit the cost of a check by the bytes of the value. A unit is a step that takes up to
	// some 100 ns: a value and a schema for it, a name, ten bytes of a text.
	baseCost    = 1_000_000
	costPerByte = 4
	// maxFrames limits how deep checks are nested: in the levels of the value, times the schemas of each.
	maxFrames = 20_000
)

// Schema is a compiled JSON Schema.
type Schema struct {
	root *rule
	size int
}

// Size returns an estimate of the memory that the schema takes, in bytes.
func (s *Schema) Size() int {
	if s == nil {
		return 0
	}
	return s.size
}

// Violation is one thing that does not fit.
type Violation struct {
	// Path is a JSON Pointer (RFC 6901) to the value; empty for the whole.
	Path string `json:"path"`
	// Message says what is wrong with it.
	Message string `json:"message"`
}

// Violations are things in a value that do not fit, at most [maxViolations]. They are an error that matches
// [ErrViolations].
type Violations []Violation

// maxViolations is how many violations of a value are kept.
const maxViolations = 100

var (
	// ErrViolations is what all [Violations] match.
	ErrViolations = errors.New("the value does not fit its schema")
	// ErrCost ends a check that exceeds its limit.
	ErrCost = fmt.Errorf("to check the value by its schema takes more than %d steps and %d for each byte: "+
		"send less, or use a schema with fewer alternatives and smaller patterns", baseCost, costPerByte)
)

// Is implements the matching of [errors.Is].
func (v Violations) Is(target error) bool { return target == ErrViolations }

// Details returns the violations for machines.
func (v Violations) Details() map[string]any { return map[string]any{"violations": []Violation(v)} }

// Error implements error: what is wrong, in one line.
func (v Violations) Error() string {
	texts := make([]string, len(v))
	for i, one := range v {
		texts[i] = one.Message
		if one.Path != "" {
			texts[i] = one.Path + ": " + one.Message
		}
	}
	return strings.Join(texts, "; ")
}

func (v *Violations) add(at *place, format string, args ...any) {
	if len(*v) < maxViolations {
		*v = append(*v, Violation{at.pointer(), fmt.Sprintf(format, args...)})
	}
}

// Check fails with [Violations] if a value does not fit, with [ErrCost] if that takes too much work, and with what
// stopped returns, which it asks from time to time: the error of a context. Nil and a nil schema stand for null and for
// any value.
func (s *Schema) Check(value json.RawMessage, stopped func() error) error {
	if s == nil {
		return nil
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	decoded, err := decode(value)
	if err != nil {
		return Violations{{Message: fmt.Sprintf("it is not JSON: %v", err)}}
	}
	c := check{left: baseCost + costPerByte*len(value), stopped: stopped}
	fits := c.value(s.root, decoded, nil, nil)
	switch {
	case c.err != nil:
		return c.err
	case !fits:
		return c.found
	}
	return nil
}

// decode decodes JSON. Its numbers stay texts.
func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("data after the value")
	}
	return value, nil
}

// place is where a value is: a name, in the place around it. Nil is the whole.
type place struct {
	in   *place
	name string
}

func (p *place) to(name string) *place { return &place{p, name} }

// longestPlace is how many bytes of a pointer a message has.
const longestPlace = 1000

// pointer returns the JSON Pointer to the place. One that is too long ends with "…".
func (p *place) pointer() string {
	var names []string
	for ; p != nil; p = p.in {
		names = append(names, p.name)
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		if b.Len()+len(names[i]) > longestPlace {
			return b.String() + "/…"
		}
		b.WriteString("/" + escape.Replace(names[i]))
	}
	return b.String()
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)
