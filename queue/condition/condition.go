// Package condition compiles and evaluates the conditions of hooks, which decide what signals resume them. A condition
// is an expression in CEL, the Common Expression Language. docs/signals.md describes them for their authors.
//
// It imports package entities.
package condition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// MaxLength is the limit of a condition's length in bytes.
	MaxLength = 4096
	// maxCost limits one evaluation in CEL's cost units: roughly one per operation, per element, and per ten characters.
	maxCost = 100_000
	// maxDepth limits the nesting of a condition.
	maxDepth = 64
	// maxPrograms limits the cache of compiled conditions.
	maxPrograms = 1000
)

// Conditions compiles and evaluates conditions. It caches the 1,000 most recently used programs, because every signal
// evaluates the conditions of all hooks that wait for it. It is safe for concurrent use.
type Conditions struct {
	env      *cel.Env
	programs *lru.Cache[string, cel.Program]
}

// New returns Conditions with an empty cache.
func New() *Conditions {
	env, err := cel.NewEnv(
		cel.Variable("data", cel.DynType),
		cel.Variable("signal.name", cel.StringType),
		cel.Variable("signal.id", cel.StringType),
		cel.Variable("run.id", cel.StringType),
		cel.Variable("run.attributes", cel.MapType(cel.StringType, cel.StringType)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserErrorRecoveryLimit(0), // report the first error only
	)
	if err != nil {
		panic(fmt.Sprintf("condition: invalid environment: %v", err)) // all options are constants
	}
	programs, err := lru.New[string, cel.Program](maxPrograms)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return &Conditions{env: env, programs: programs}
}

// Variables are the values that a condition can refer to: a signal, and the run that waits for it.
type Variables struct {
	// Data is the data of the signal, as returned by [Decode].
	Data       any
	SignalName string
	SignalID   store.SignalID
	RunID      entities.RunID
	Attributes map[string]string
}

// activation maps the names in expressions to their values.
func (v Variables) activation() map[string]any {
	return map[string]any{
		"data":           v.Data,
		"signal.name":    v.SignalName,
		"signal.id":      string(v.SignalID),
		"run.id":         string(v.RunID),
		"run.attributes": v.Attributes,
	}
}

// Check returns an [entities.ErrInvalid] unless the text is a boolean expression. The error names the line and the
// column of the mistake, both counted from 1.
func (c *Conditions) Check(text string) error {
	_, err := c.compile(text)
	return err
}

// Matches evaluates the condition; the empty condition is always true. A condition that cannot be evaluated is false,
// and the error says why: a field is missing or has another type, or the evaluation exceeds the cost limit.
func (c *Conditions) Matches(text string, v Variables) (bool, error) {
	if text == "" {
		return true, nil
	}
	program, ok := c.programs.Get(text)
	if !ok {
		var err error
		if program, err = c.compile(text); err != nil {
			return false, err
		}
		c.programs.Add(text, program)
	}
	value, _, err := program.Eval(v.activation())
	if err != nil {
		return false, fmt.Errorf("evaluate condition: %w", err)
	}
	matches, ok := value.Value().(bool)
	if !ok { // only possible for a field of the data, whose type is unknown until now
		return false, fmt.Errorf("evaluate condition: its value is a %s; want a bool", value.Type().TypeName())
	}
	return matches, nil
}

func (c *Conditions) compile(text string) (cel.Program, error) {
	if len(text) > MaxLength {
		return nil, entities.Invalid("condition: %d bytes; the limit is %d", len(text), MaxLength)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return nil, entities.Invalid("condition: contains NUL or invalid UTF-8")
	}
	tree, issues := c.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, firstIssue(issues)
	}
	if kind := tree.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, entities.Invalid("condition: its value is a %s; want a bool", kind)
	}
	program, err := c.env.Program(tree,
		cel.EvalOptions(cel.OptOptimize), // validates constant patterns and lists at compile time
		cel.CostLimit(maxCost))
	if err != nil {
		return nil, entities.Invalid("condition: %v", err)
	}
	return program, nil
}

// firstIssue translates the first compile error.
func firstIssue(issues *cel.Issues) error {
	first := issues.Errors()[0]
	// CEL counts lines from 1 and columns from 0; an unknown position is negative.
	return entities.Invalid("condition: line %d, column %d: %s",
		max(first.Location.Line(), 1), max(first.Location.Column(), 0)+1, first.Message)
}

// Decode decodes JSON for use in conditions. Numbers become doubles, as CEL defines for JSON, except integers beyond
// 2^53, which doubles cannot represent exactly: they become ints or uints.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("decode JSON: data after the value")
	}
	return numbers(value), nil
}

// maxExact is the greatest integer up to which doubles represent every integer.
const maxExact = 1 << 53

// numbers converts every json.Number inside a decoded value.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = numbers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = numbers(item)
		}
	case json.Number:
		return number(v)
	}
	return value
}

func number(n json.Number) any {
	if i, err := n.Int64(); err == nil && (i > maxExact || i < -maxExact) {
		return i
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil && u > maxExact {
		return u
	}
	f, _ := n.Float64() // out of range becomes infinity, which compares correctly
	return f
}
