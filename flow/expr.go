package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/stepwell-dev/stepwell/flow/condition"
)

// The names that expressions know. Some are known in some places only.
const (
	varInput = "input"
	varSteps = "steps"
	varRun   = "run"
	varNow   = "now"
	varError = "error" // in steps that a catch leads to
	varUndo  = "undo"  // in what undoes a step

	varData   = "data"      // of an event: see [Fill]
	varSignal = "signal"    // of an event that is a signal
	varItem   = "item"      // in the body of a map, with
	varIndex  = "index"     // its place
	varLoop   = "iteration" // in the body of a loop
)

var variables = []string{
	varInput, varSteps, varRun, varNow, varError, varUndo, varData, varSignal, varItem, varIndex, varLoop,
}

// environment is the environment of all expressions in flows.
var environment = condition.Environment(
	cel.Variable(varInput, cel.DynType),
	cel.Variable(varSteps, cel.MapType(cel.StringType, cel.DynType)),
	cel.Variable(varRun, cel.MapType(cel.StringType, cel.DynType)),
	cel.Variable(varNow, cel.TimestampType),
	cel.Variable(varError, cel.DynType),
	cel.Variable(varUndo, cel.DynType),
	cel.Variable(varData, cel.DynType),
	cel.Variable(varSignal, cel.DynType),
	cel.Variable(varItem, cel.DynType),
	cel.Variable(varIndex, cel.DynType),
	cel.Variable(varLoop, cel.DynType),
)

// expression is a compiled expression in CEL.
type expression struct {
	text    string
	program cel.Program
	// vars are the variables it reads, and steps the IDs of the steps.
	vars, steps []string
	// lets are the values of the step's own names among the variables.
	lets lets
	// isNoCondition is set if the value can be neither true nor false.
	isNoCondition bool
	// path is set if the expression only names a value, such as input.order.id: the value is handed on as it is.
	path []string
}

// lets are the names that a step has for values of its own.
type lets map[string]*template

// compile compiles an expression that knows the names. The error names what to do.
func compile(text string, names lets) (*expression, error) {
	if len(text) > condition.MaxLength {
		return nil, fmt.Errorf("the expression has %d bytes; the limit is %d", len(text), condition.MaxLength)
	}
	env, used, err := names.environment(text)
	if err != nil {
		return nil, err
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("the expression %s cannot be compiled: %s%s", quote(text),
			plainly(issues.Errors()[0].Message), bracketed(text))
	}
	program, err := env.Program(tree, condition.Limits(condition.MaxFlowCost)...)
	if err != nil {
		return nil, fmt.Errorf("the expression %s cannot be compiled: %w", quote(text), err)
	}
	e := &expression{text: text, program: program, lets: used}
	e.isNoCondition = !tree.OutputType().IsAssignableType(cel.BoolType)
	root := ast.NavigateAST(tree.NativeRep())
	e.path = pathOf(root)
	return e, e.references(root)
}

// longestQuote is how much of an expression the message of a fault has, in bytes.
const longestQuote = 100

// quote returns an expression for a message.
func quote(text string) string {
	if len(text) > longestQuote {
		text = strings.ToValidUTF8(text[:longestQuote], "") + "…"
	}
	return strconv.Quote(text)
}

// environment returns the environment of an expression, and those of the names that may be in it.
func (l lets) environment(text string) (*cel.Env, lets, error) {
	used := lets{}
	var variables []cel.EnvOption
	for name, value := range l {
		if strings.Contains(text, name) {
			used[name] = value
			variables = append(variables, cel.Variable(name, cel.DynType))
		}
	}
	if len(used) == 0 {
		return environment, nil, nil
	}
	env, err := environment.Extend(variables...)
	return env, used, err
}

// references finds the variables and steps that the expression reads.
func (e *expression) references(root ast.NavigableExpr) error {
	vars, steps := map[string]bool{}, map[string]bool{}
	for _, ident := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		name := ident.AsIdent()
		if _, own := e.lets[name]; own || slices.Contains(variables, name) {
			vars[name] = true
		}
		if name != varSteps {
			continue
		}
		id, ok := stepOf(ident)
		if !ok {
			return fmt.Errorf(`the expression %s must name the steps that it reads: steps.ID or steps["ID"]`, quote(e.text))
		}
		steps[id] = true
	}
	e.vars, e.steps = slices.Sorted(maps.Keys(vars)), slices.Sorted(maps.Keys(steps))
	return nil
}

// stepOf returns the step that follows the name of the variable.
func stepOf(ident ast.NavigableExpr) (string, bool) {
	parent, ok := ident.Parent()
	if !ok {
		return "", false
	}
	return member(parent)
}

// member returns the name of the field that an expression selects from its operand.
func member(e ast.NavigableExpr) (string, bool) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().FieldName(), true
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() == operators.Index && call.Args()[1].Kind() == ast.LiteralKind {
			name, ok := call.Args()[1].AsLiteral().Value().(string)
			return name, ok
		}
		return "", false
	default:
		return "", false
	}
}

// pathOf returns the names of a value if the expression does nothing but name it, else nil.
func pathOf(e ast.NavigableExpr) []string {
	if e.Kind() == ast.IdentKind {
		return []string{e.AsIdent()}
	}
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return nil
	}
	name, ok := member(e)
	if !ok {
		return nil
	}
	path := pathOf(e.Children()[0])
	if path == nil {
		return nil
	}
	return append(path, name)
}

// scope has the values of variables, as JSON, at one moment of a run.
type scope interface {
	// value returns the JSON of a variable; of [varSteps], an object of the steps that are named.
	value(name string, steps []string) json.RawMessage
	// decode returns that value for CEL.
	decode(name string, steps []string) (any, error)
	now() time.Time
	// left is how many bytes a decision may still make, and spend takes some of them, or fails with [errTooMuch].
	left() int
	spend(bytes int) error
}

// maxTime limits the time of one evaluation, as a second guard behind its cost.
const maxTime = 5 * time.Second

// eval evaluates the expression.
func (e *expression) eval(s scope) (ref.Val, error) {
	vars := map[string]any{}
	for _, name := range e.vars {
		if name == varNow {
			vars[name] = s.now()
			continue
		}
		value, err := e.decode(name, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		vars[name] = value
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	value, _, err := e.program.ContextEval(ctx, vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.text, err)
	}
	return value, nil
}

// decode returns a variable for CEL.
func (e *expression) decode(name string, s scope) (any, error) {
	own, ok := e.lets[name]
	if !ok {
		return s.decode(name, e.steps)
	}
	text, err := own.json(s)
	if err != nil {
		return nil, err
	}
	return condition.Decode(text)
}

// isTrue evaluates a condition.
func (e *expression) isTrue(s scope) (bool, error) {
	value, err := e.eval(s)
	if err != nil {
		return false, err
	}
	is, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s is a %s; want true or false", e.text, value.Type().TypeName())
	}
	return is, nil
}

// json evaluates the expression to JSON. A value that it only names is handed on byte for byte.
func (e *expression) json(s scope) (json.RawMessage, error) {
	if e.path != nil && e.path[0] != varNow {
		return e.handOn(s)
	}
	value, err := e.eval(s)
	if err != nil {
		return nil, err
	}
	text, err := appendValue(nil, value, s.left())
	if err == nil {
		err = s.spend(len(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.text, err)
	}
	return text, nil
}

func (e *expression) handOn(s scope) (json.RawMessage, error) {
	var value json.RawMessage
	if own, ok := e.lets[e.path[0]]; ok {
		var err error
		if value, err = own.json(s); err != nil {
			return nil, err
		}
	} else {
		value = s.value(e.path[0], e.steps)
	}
	for i, name := range e.path[1:] {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil || object == nil {
			return nil, fmt.Errorf("%s: %s is not an object", e.text, strings.Join(e.path[:i+1], "."))
		}
		next, ok := object[name]
		if !ok {
			return nil, fmt.Errorf("%s: %s has no %q", e.text, strings.Join(e.path[:i+1], "."), name)
		}
		value = next
	}
	return value, s.spend(len(value))
}

var errNoJSON = errors.New("has no form in JSON")

// appendValue appends a value of CEL as JSON. Doubles that are whole numbers have no point, and names are sorted. It
// fails with [errTooMuch] beyond a number of bytes: values can be in a list many times over.
func appendValue(dst []byte, v ref.Val, most int) ([]byte, error) {
	if len(dst) > most {
		return nil, errTooMuch
	}
	switch v := v.(type) {
	case types.Null:
		return append(dst, "null"...), nil
	case types.Bool, types.Int, types.Uint, types.Double, types.String:
		text, err := json.Marshal(v.Value())
		if err != nil {
			return nil, fmt.Errorf("%v: %w", v.Value(), errNoJSON)
		}
		return append(dst, text...), nil
	case *types.Optional:
		if !v.HasValue() {
			return append(dst, "null"...), nil
		}
		return appendValue(dst, v.GetValue(), most)
	case types.Timestamp:
		return appendText(dst, v.Time.UTC().Format(time.RFC3339Nano)), nil
	case types.Duration:
		return appendText(dst, v.String()), nil
	case traits.Mapper:
		return appendMap(dst, v, most)
	case traits.Lister:
		return appendList(dst, v, most)
	default:
		return nil, fmt.Errorf("a %s %w", v.Type().TypeName(), errNoJSON)
	}
}

func appendList(dst []byte, list traits.Lister, most int) (_ []byte, err error) {
	dst = append(dst, '[')
	for it, first := list.Iterator(), true; it.HasNext() == types.True; first = false {
		if !first {
			dst = append(dst, ',')
		}
		if dst, err = appendValue(dst, it.Next(), most); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, m traits.Mapper, most int) (_ []byte, err error) {
	values := map[string]ref.Val{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("a map with the key %v %w: names are texts", key.Value(), errNoJSON)
		}
		values[string(name)] = m.Get(key)
	}
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, name), ':')
		if dst, err = appendValue(dst, values[name], most); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
