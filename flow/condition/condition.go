// Package condition compiles and evaluates the conditions of hooks, which decide what signals resume them, and of
// triggers, which decide what events start a run. A condition is an expression in CEL, the Common Expression Language.
// docs/signals.md and docs/triggers.md describe them for their authors.
package condition

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/interpreter"
	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

const (
	// MaxLength is the limit of a condition's length in bytes.
	MaxLength = 4096
	// maxCost limits one evaluation in CEL's cost units: roughly one per operation, per element, and per ten characters.
	maxCost = 100_000
	// MaxFlowCost limits an evaluation in a flow, which may go through the 10,000 items of a map. Nothing is weighed
	// beyond it.
	MaxFlowCost = 1_000_000
	// maxTime limits the time of one evaluation. The cost limit ends evaluations after some 50 ms of work, at the same
	// place on every server; this is the second guard. It is long, because it must not depend on how busy a server is
	// whether a hook receives a signal.
	maxTime = 5 * time.Second
	// longEvaluation is the time of an evaluation after which other work goes first.
	longEvaluation = 5 * time.Millisecond
	// interruptCheck is how many iterations may pass between two looks at the clock.
	interruptCheck = 16
	// maxDepth limits the nesting of a condition.
	maxDepth = 64
)

// ErrLimit is returned for a condition whose evaluation exceeds a limit.
var ErrLimit = errors.New("it takes too long")

var (
	errCost = fmt.Errorf("%w: it exceeds the cost limit", ErrLimit)
	errTime = fmt.Errorf("%w: it exceeds the time limit of %s", ErrLimit, maxTime)
)

// Conditions compiles and evaluates conditions. It caches the programs of the conditions that were used last, because
// every signal evaluates the conditions of all hooks that wait for it. It is safe for concurrent use.
//
// What conditions can take from others is limited: the cost and the time of each evaluation, the memory of all cached
// programs, one evaluation at a time for each project, and half of the processors for all of them.
type Conditions struct {
	programs *cache.Cache[string, cel.Program]
	now      func() time.Time
	// projects has one unit for each project; each evaluation needs one of processors as well.
	projects   *share.Pool
	processors *semaphore.Weighted
}

// signals is the environment of the conditions of signals.
var signals = Environment(
	cel.Variable("data", cel.DynType),
	cel.Variable("signal.name", cel.StringType),
	cel.Variable("signal.id", cel.StringType),
	cel.Variable("run.id", cel.StringType),
	cel.Variable("run.attributes", cel.MapType(cel.StringType, cel.StringType)),
)

// Validate returns what [Conditions.Check] does. It neither waits nor keeps the program.
func Validate(text string) error {
	_, err := compile(text)
	return err
}

// New returns Conditions with an empty cache, which measure time by the given clock.
func New(now func() time.Time) *Conditions {
	processors := max(1, runtime.GOMAXPROCS(0)/2)
	return &Conditions{
		programs: newPrograms(), now: now,
		projects: share.NewPool(math.MaxInt64), processors: semaphore.NewWeighted(int64(processors)),
	}
}

// Environment returns an environment for expressions with the given variables.
func Environment(variables ...cel.EnvOption) *cel.Env {
	return newEnv(cel.NewEnv, slices.Concat(variables, functions(), mixedNumbers(), []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserErrorRecoveryLimit(0), // report the first error only
		cel.ASTValidators(patterns{}),
	})...)
}

func newEnv(create func(...cel.EnvOption) (*cel.Env, error), options ...cel.EnvOption) *cel.Env {
	env, err := create(options...)
	if err != nil {
		panic(fmt.Sprintf("condition: invalid environment: %v", err)) // all options are constants
	}
	return env
}

// Variables are the values that a condition can refer to: a signal, and the run that waits for it; or the event of a
// trigger. A condition that refers to a signal or a run that is missing cannot be evaluated.
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
	names := map[string]any{"data": v.Data}
	if v.SignalID != "" {
		names["signal.name"], names["signal.id"] = v.SignalName, string(v.SignalID)
	}
	if v.RunID != "" {
		names["run.id"], names["run.attributes"] = string(v.RunID), v.Attributes
	}
	return names
}

// Acquire waits until the project may decode signals and evaluate conditions, which release ends. It fails only if
// the context ends.
func (c *Conditions) Acquire(ctx context.Context, project entities.Project) (release func(), err error) {
	if err := c.projects.Take(ctx, string(project), 1, 0); err != nil {
		return nil, err
	}
	return func() { c.projects.Release(string(project), 1) }, nil
}

// Check returns an [entities.ErrInvalid] unless the text is a boolean expression within the limits. The error names the
// line and the column of the mistake, both counted from 1. Check waits as evaluations do.
func (c *Conditions) Check(ctx context.Context, project entities.Project, text string) error {
	return c.WithProcessor(ctx, project, func() error {
		_, err := c.program(text)
		return err
	})
}

// WithProcessor does other work with what users have written or sent, such as checking a value by a schema, one at a
// time per project and on one of the processors for such work. The error is that of the work, unless the context ends
// before.
func (c *Conditions) WithProcessor(ctx context.Context, project entities.Project, work func() error) error {
	release, err := c.Acquire(ctx, project)
	if err != nil {
		return err
	}
	defer release()
	if err := c.processors.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.processors.Release(1)
	defer c.pause(ctx, c.now())
	return work()
}

// Matches evaluates the condition; the empty condition is always true. The caller must have called
// [Conditions.Acquire].
//
// A condition that cannot be evaluated is false, and the error says why: a field is missing or has another type, the
// condition is invalid ([entities.ErrInvalid]), or it exceeds the limits ([ErrLimit]). If the context ends, the result
// is not known.
func (c *Conditions) Matches(ctx context.Context, text string, v Variables) (bool, error) {
	if text == "" {
		return true, nil
	}
	if err := c.processors.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer c.processors.Release(1)
	defer c.pause(ctx, c.now())
	program, err := c.program(text)
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, maxTime, errTime)
	defer cancel()
	value, _, err := program.ContextEval(limited, v.activation())
	if err != nil {
		return false, fmt.Errorf("evaluate condition: %w", explain(limited, err))
	}
	matches, ok := value.Value().(bool)
	if !ok { // only possible for a field of the data, whose type is unknown until now
		return false, fmt.Errorf("evaluate condition: its value is a %s; want a bool", value.Type().TypeName())
	}
	return matches, nil
}

// pause lets other work go first after an evaluation that took long: for as long as the evaluation. Ordinary conditions
// take microseconds.
func (c *Conditions) pause(ctx context.Context, start time.Time) {
	took := c.now().Sub(start)
	if took < longEvaluation {
		return
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
}

// explain returns the limit that ended an evaluation, or the error of the condition.
func explain(ctx context.Context, err error) error {
	cancelled := interpreter.EvalCancelledError{}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &cancelled):
		return errCost
	default:
		return err
	}
}

// program returns the program of a condition, from the cache if it has it.
func (c *Conditions) program(text string) (cel.Program, error) {
	if program, ok := c.programs.Get(text); ok {
		return program, nil
	}
	program, err := compile(text)
	if err == nil {
		c.programs.Put(text, program)
	}
	return program, err
}

func compile(text string) (cel.Program, error) {
	if len(text) > MaxLength {
		return nil, entities.Invalid("condition: %d bytes; the limit is %d", len(text), MaxLength)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return nil, entities.Invalid("condition: contains NUL or invalid UTF-8")
	}
	tree, issues := signals.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, firstIssue(issues)
	}
	if kind := tree.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, entities.Invalid("condition: its value is a %s; want a bool", kind)
	}
	program, err := signals.Program(tree, Limits(maxCost)...)
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

// Decode decodes JSON for use in conditions. Whole numbers of up to 64 bits become ints or uints, all others doubles.
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
