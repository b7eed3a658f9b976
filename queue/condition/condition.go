// Package condition decides which signals resume a hook: it reads and evaluates the conditions that hooks have, which
// are expressions of CEL, the Common Expression Language. docs/signals.md describes them for those who write them.
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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// MaxLength is how many bytes a condition may have.
	MaxLength = 4096
	// maxCost bounds one evaluation, in CEL's own units: about one for each operation, and for each element or ten
	// characters looked at.
	maxCost = 100_000
	// maxDepth is how deep a condition may be nested.
	maxDepth = 64
	// maxPrograms is how many conditions are kept compiled.
	maxPrograms = 1000
)

// Conditions compiles conditions, and keeps those that were used last. Any number of goroutines may use it.
type Conditions struct {
	env      *cel.Env
	programs *cache
}

// New makes Conditions. It keeps at most 1,000 of them compiled.
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
		cel.ParserErrorRecoveryLimit(0), // one mistake at a time
	)
	if err != nil {
		panic(fmt.Sprintf("condition: the environment is wrong: %v", err)) // it is the same every time
	}
	return &Conditions{env: env, programs: newCache(maxPrograms)}
}

// Scene is what a condition may ask about: a signal, and the run that waits for it.
type Scene struct {
	// Data is the signal's, as [Decode] returns it.
	Data       any
	SignalName string
	SignalID   store.SignalID
	RunID      entities.RunID
	Attributes map[string]string
}

// variables are the scene as expressions see it.
func (s Scene) variables() map[string]any {
	return map[string]any{
		"data":           s.Data,
		"signal.name":    s.SignalName,
		"signal.id":      string(s.SignalID),
		"run.id":         string(s.RunID),
		"run.attributes": s.Attributes,
	}
}

// Check fails with [entities.ErrInvalid] unless the text is a condition: an expression whose value is true or false.
// The error says at which line and column it is wrong, both counted from 1.
func (c *Conditions) Check(text string) error {
	_, err := c.compile(text)
	return err
}

// Matches reports whether the condition is true of the scene; the empty one always is. It is not, and the error says
// why, if it cannot be evaluated: because a field that it asks for is missing or of another type, or because
// it would take too long.
func (c *Conditions) Matches(text string, s Scene) (bool, error) {
	if text == "" {
		return true, nil
	}
	program, ok := c.programs.find(text)
	if !ok {
		var err error
		if program, err = c.compile(text); err != nil {
			return false, err
		}
		c.programs.add(text, program)
	}
	value, _, err := program.Eval(s.variables())
	if err != nil {
		return false, fmt.Errorf("evaluate condition: %w", err)
	}
	is, ok := value.Value().(bool)
	if !ok { // a field of the data that is not true or false
		return false, fmt.Errorf("evaluate condition: its value is a %s, not true or false", value.Type().TypeName())
	}
	return is, nil
}

func (c *Conditions) compile(text string) (cel.Program, error) {
	if len(text) > MaxLength {
		return nil, entities.Invalid("condition: it has %d bytes; the limit is %d", len(text), MaxLength)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return nil, entities.Invalid("condition: it has characters that are none")
	}
	tree, issues := c.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, mistake(issues)
	}
	if kind := tree.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, entities.Invalid("condition: its value is a %s; want one that is true or false", kind)
	}
	program, err := c.env.Program(tree,
		cel.EvalOptions(cel.OptOptimize), // constant patterns and lists are looked at now
		cel.CostLimit(maxCost))
	if err != nil {
		return nil, entities.Invalid("condition: %v", err)
	}
	return program, nil
}

// mistake says what is wrong first.
func mistake(issues *cel.Issues) error {
	first := issues.Errors()[0]
	// Positions are those of the text alone, from line 1 and column 0; without one they are negative.
	return entities.Invalid("condition: line %d, column %d: %s",
		max(first.Location.Line(), 1), max(first.Location.Column(), 0)+1, first.Message)
}

// Decode reads JSON for conditions. Numbers are doubles, as CEL has it for JSON, but for whole numbers that doubles
// cannot tell apart, beyond 2^53: these are ints or uints.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("decode JSON: there is something behind it")
	}
	return numbers(value), nil
}

// maxExact is the greatest number up to which doubles have all whole numbers.
const maxExact = 1 << 53

// numbers replaces the numbers in a decoded value.
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
	f, _ := n.Float64() // what is out of range is infinite, and so compares as it should
	return f
}
