package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/condition"
)

// signalAction waits for a signal.
type signalAction struct {
	name *template
	// condition is the text of the condition, in pieces: the values that it reads of the run are expressions, which are
	// evaluated when the hook is opened.
	condition []piece
}

// readSignal reads "signal: name" or "signal: {name, condition, lookBack, within}".
func (r *reader) readSignal(n *node, a *action, u usage) {
	o := r.short(n, "name")
	a.signal = &signalAction{}
	a.lookBack, a.timeout = o.duration("lookBack"), o.duration("within")
	if name := o.get("name"); name == nil {
		r.faults.add(n, CodeMissing, `want the "name" of the signal`)
	} else if name.kind != kindText || !strings.Contains(name.text, "${") {
		a.name = o.name("name")
		a.signal.name = &template{fixed: appendText(nil, a.name)}
	} else {
		a.name, a.signal.name = name.text, r.template(name, u)
	}
	if text := o.prose("condition"); text != "" {
		a.signal.condition = r.readCondition(o.get("condition"), u)
	}
	o.end()
}

// readCondition reads the condition of a signal. It may have values of the run in it, such as input.id.
func (r *reader) readCondition(n *node, u usage) []piece {
	if strings.Contains(n.text, "${") {
		r.faults.add(n, CodeExpression,
			`this field is an expression: leave out "${" and "}", and write data.id == input.id for example`)
		return nil
	}
	pieces, err := r.bind(n.text)
	if err == nil {
		err = condition.Validate(textOf(pieces, func(*expression) string { return `dyn("")` }))
	}
	if err != nil {
		r.faults.add(n, CodeExpression, "%v", err)
		return nil
	}
	for _, p := range pieces {
		if p.expr != nil {
			r.uses = append(r.uses, use{n, p.expr, u})
		}
	}
	return pieces
}

func textOf(pieces []piece, value func(*expression) string) string {
	var text strings.Builder
	for _, p := range pieces {
		if p.expr == nil {
			text.WriteString(p.text)
		} else {
			text.WriteString(value(p.expr))
		}
	}
	return text.String()
}

// unexpanded parses conditions without what macros make of them, so that they can be written again.
var unexpanded = func() *cel.Env {
	env, err := cel.NewEnv(
		cel.OptionalTypes(), cel.ClearMacros(), cel.ParserRecursionLimit(maxDepth), cel.ParserErrorRecoveryLimit(0))
	if err != nil {
		panic(err) // all options are constants
	}
	return env
}()

// marker stands in the text of a condition for a value of the run.
const marker = "_value_of_the_run_"

// bind returns the pieces of a condition. One that reads nothing of the run stays as it is.
func (r *reader) bind(text string) ([]piece, error) {
	whole := []piece{{text: text}}
	tree, issues := unexpanded.Parse(text)
	if issues.Err() != nil || len(text) > condition.MaxLength {
		return whole, nil // the check of conditions says it better
	}
	b := binding{lets: r.lets, info: tree.NativeRep().SourceInfo()}
	b.visit(tree.NativeRep().Expr())
	if b.err != nil || len(b.values) == 0 {
		return whole, b.err
	}
	bound, err := cel.ExprToString(tree.NativeRep().Expr(), b.info)
	if err != nil {
		return nil, err
	}
	parts, pieces := strings.Split(bound, marker), []piece{}
	if len(parts) != len(b.values)+1 {
		return nil, entities.Invalid("condition: the name %s is reserved", marker)
	}
	for i, part := range parts {
		pieces = append(pieces, piece{text: part})
		if i < len(b.values) {
			pieces = append(pieces, piece{expr: b.values[i]})
		}
	}
	return pieces, nil
}

// binding finds the values of the run in a condition, in the order of their places, and puts the marker there.
type binding struct {
	lets   lets
	info   *ast.SourceInfo
	values []*expression
	err    error
}

func (b *binding) visit(e ast.Expr) {
	if b.isValue(e) {
		b.replace(e)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		b.visit(e.AsSelect().Operand())
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			b.visit(call.Target())
		}
		for _, arg := range call.Args() {
			b.visit(arg)
		}
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			b.visit(item)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			b.visit(entry.AsMapEntry().Key())
			b.visit(entry.AsMapEntry().Value())
		}
	default:
	}
}

// isValue reports whether an expression only names a value of the run, or asks whether there is one.
func (b *binding) isValue(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		_, own := b.lets[e.AsIdent()]
		return own || slices.Contains(bindable, e.AsIdent())
	case ast.SelectKind:
		return b.isValue(e.AsSelect().Operand())
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.Index:
			return b.isValue(args[0]) && !b.varies(args[1])
		case "has":
			return !call.IsMemberFunction() && len(args) == 1 && b.isValue(args[0])
		case "orValue", "hasValue":
			return call.IsMemberFunction() && b.isOptional(call.Target()) && !slices.ContainsFunc(args, b.varies)
		}
	default:
	}
	return false
}

// isOptional reports whether an expression is a value of the run that need not be there, such as input.?id.
func (b *binding) isOptional(e ast.Expr) bool {
	if e.Kind() == ast.SelectKind {
		return b.isOptional(e.AsSelect().Operand())
	}
	if e.Kind() != ast.CallKind {
		return false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.OptSelect, operators.OptIndex:
		return (b.isValue(args[0]) || b.isOptional(args[0])) && !b.varies(args[1])
	case operators.Index:
		return b.isOptional(args[0]) && !b.varies(args[1])
	default:
		return false
	}
}

// varies reports whether an expression may read the signal.
func (b *binding) varies(e ast.Expr) bool { return e.Kind() != ast.LiteralKind && !b.isValue(e) }

// bindable are the variables that the condition of a signal may read besides those of the signal. Whether they are
// known where the step is, is checked as for other expressions.
var bindable = []string{varInput, varSteps, varError, varUndo, varItem, varIndex, varLoop}

func (b *binding) replace(e ast.Expr) {
	text, err := cel.ExprToString(e, b.info)
	if err == nil {
		var value *expression
		value, err = compile(text, b.lets)
		b.values = append(b.values, value)
	}
	if b.err == nil {
		b.err = err
	}
	e.SetKindCase(ast.NewExprFactory().NewIdent(e.ID(), marker))
}

// openHook waits for a signal.
func (t *decision) openHook(i int, a *action, where *stepScope) {
	signal := hookSignal{LookBack: duration(a.lookBack)}
	var err error
	if signal.Name, err = a.signal.nameOf(where); err != nil {
		t.record(i, expressionFailed("name", err))
		return
	}
	if signal.Condition, err = a.signal.conditionOf(where); err != nil {
		t.record(i, expressionFailed("condition", err))
		return
	}
	t.await(i, a, openHook{Type: "openHook", ID: t.Program.steps[i].id, Signal: &signal})
}

func (s *signalAction) nameOf(where *stepScope) (string, error) {
	text, err := s.name.json(where)
	if err != nil || s.name.fixed != nil {
		return plain(text), err
	}
	name := plain(text)
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("%s is no name of 1 to %d bytes", quote(name), maxName)
	}
	return name, entities.ValidateName("the name of the signal", name)
}

// conditionOf returns the condition with the values of the run.
func (s *signalAction) conditionOf(where *stepScope) (string, error) {
	var failed error
	text := textOf(s.condition, func(e *expression) string {
		value, err := e.json(where)
		if err == nil {
			value, err = literalOf(value)
		}
		if err != nil && failed == nil {
			failed = err
		}
		return "dyn(" + string(value) + ")"
	})
	if failed == nil && len(s.condition) > 1 {
		failed = condition.Validate(text) // values can be too long for it
	}
	return text, failed
}

// literalOf returns a JSON value as a literal of CEL.
func literalOf(value json.RawMessage) ([]byte, error) {
	decoded, err := condition.Decode(value)
	if err != nil {
		return nil, err
	}
	return appendLiteral(nil, decoded), nil
}

func appendLiteral(dst []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendLiteral(append(appendText(dst, name), ':'), v[name])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendLiteral(dst, item)
		}
		return append(dst, ']')
	case string:
		return appendText(dst, v)
	case uint64:
		return append(strconv.AppendUint(dst, v, 10), 'u')
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		if math.IsInf(v, 0) {
			return append(append(append(dst, "double("...), strconv.Quote(strconv.FormatFloat(v, 'g', -1, 64))...), ')')
		}
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	default: // null and booleans
		return append(dst, mustJSON(v)...)
	}
}
