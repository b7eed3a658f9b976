package condition

import (
	"context"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// maxExplained is how many parts of a condition are evaluated to explain it.
const maxExplained = 8

// Explain returns the part of a condition because of which it is false: the first one between its && that is false or
// cannot be evaluated, as text. It is empty if the condition has too many parts to find it. As for
// [Conditions.Matches], the caller must have called [Conditions.Acquire].
func (c *Conditions) Explain(ctx context.Context, text string, v Variables) string {
	tree, issues := signals.Parse(text)
	if issues.Err() != nil {
		return ""
	}
	parts := conjuncts(tree.NativeRep().Expr())
	for _, part := range parts[:min(len(parts), maxExplained)] {
		source, err := cel.ExprToString(part, tree.NativeRep().SourceInfo())
		if err != nil {
			return ""
		}
		if ok, _ := c.Matches(ctx, source, v); !ok { // what cannot be evaluated is false
			return source
		}
	}
	return ""
}

// conjuncts returns the parts of an expression between its outermost &&.
func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var parts []ast.Expr
	for _, arg := range e.AsCall().Args() {
		parts = append(parts, conjuncts(arg)...)
	}
	return parts
}
