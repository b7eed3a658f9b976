package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

// isSDK reports whether a call is one of the SDK's functions or methods with these names; with any name if there are
// none.
func (c *checker) isSDK(call *ast.CallExpr, names ...string) bool {
	fn := typeutil.StaticCallee(c.TypesInfo, call)
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == sdk &&
		(len(names) == 0 || slices.Contains(names, fn.Name()))
}

// misuse reports what must not be done with a Context, with deferred functions, and with variables of packages (SW005
// to SW008).
func (s scope) misuse(n ast.Node) {
	switch n := n.(type) {
	case *ast.Ident:
		s.outer(n)
	case *ast.DeferStmt:
		s.deferred(n)
	case *ast.CallExpr:
		if isBuiltin(s.c.TypesInfo, n, "recover") {
			s.c.report(found(n.Pos(), "SW007",
				"recover hides bugs of the workflow, whose runs would be blocked; return errors instead"))
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			s.written(left, n.Tok == token.DEFINE)
			if len(n.Lhs) == len(n.Rhs) && !isLocal(s.c.TypesInfo, left) {
				s.kept(n.Rhs[i], n.Pos())
			}
		}
	case *ast.IncDecStmt:
		s.written(n.X, false)
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				e = pair.Value
			}
			s.kept(e, e.Pos())
		}
	case *ast.SendStmt:
		if isWorkflowContext(s.c.TypesInfo.TypeOf(n.Value)) {
			s.c.report(found(n.Value.Pos(), "SW006", "the Context is sent to a channel; pass it as a parameter"))
		}
	}
}

// kept reports a value that is a Context and kept at a place.
func (s scope) kept(value ast.Expr, at token.Pos) {
	if isWorkflowContext(s.c.TypesInfo.TypeOf(value)) {
		s.c.report(found(at, "SW006", "the Context is kept beyond its function; pass it as a parameter"))
	}
}

// outer reports the Context of an outer function.
func (s scope) outer(id *ast.Ident) {
	object, ok := s.c.TypesInfo.Uses[id].(*types.Var)
	if !ok || s.fn == nil || !isWorkflowContext(object.Type()) || object.IsField() || isPackageVar(object) {
		return
	}
	// The function's parameters are in its signature, and its other variables in its body.
	if object.Pos() < s.fn.Pos() || object.Pos() > s.body.End() {
		s.c.report(found(id.Pos(), "SW005",
			"%s is the Context of an outer function; use the one that this function gets", id.Name))
	}
}

// capturedByStep reports a Context in the function of a step.
func (s scope) capturedByStep(n ast.Node) {
	id, ok := n.(*ast.Ident)
	if !ok {
		return
	}
	if object, ok := s.c.TypesInfo.Uses[id].(*types.Var); ok && isWorkflowContext(object.Type()) {
		s.c.report(found(id.Pos(), "SW006", "%s is used in a step; steps only have their context", id.Name))
	}
}

// deferred reports deferred functions that do something outside.
func (s scope) deferred(d *ast.DeferStmt) {
	lit, ok := d.Call.Fun.(*ast.FuncLit)
	if !ok {
		if !s.harmless(d.Call) {
			s.c.report(found(d.Pos(), "SW007", "deferred functions run whenever the workflow waits; use w.OnEnd"))
		}
		return
	}
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && !s.harmless(call) {
			s.c.report(found(call.Pos(), "SW007", "deferred functions run whenever the workflow waits; use w.OnEnd"))
		}
		return true
	})
}

// harmless reports whether a deferred call does nothing while the workflow waits: those of the SDK, built-in functions,
// and those that only make values.
func (s scope) harmless(call *ast.CallExpr) bool {
	if t := s.c.TypesInfo.Types[call.Fun]; t.IsType() || t.IsBuiltin() {
		return true
	}
	fn := typeutil.StaticCallee(s.c.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil {
		return fn != nil // error.Error
	}
	switch fn.Pkg().Path() {
	case sdk, "errors", "strings", "strconv", "slices", "maps":
		return true
	case "fmt":
		return fn.Name() == "Errorf" || fn.Name() == "Sprintf" || fn.Name() == "Sprint"
	}
	return false
}

// written reports a package's variable that is written.
func (s scope) written(left ast.Expr, define bool) {
	if define {
		return
	}
	for {
		switch e := left.(type) {
		case *ast.IndexExpr:
			left = e.X
		case *ast.StarExpr:
			left = e.X
		case *ast.ParenExpr:
			left = e.X
		case *ast.SelectorExpr:
			if isPackageVar(s.c.TypesInfo.Uses[e.Sel]) {
				left = e.Sel
			} else {
				left = e.X
			}
		case *ast.Ident:
			if isPackageVar(s.c.TypesInfo.Uses[e]) {
				s.c.report(found(e.Pos(), "SW008", "%s is a variable of the process, which other runs and replays share", e.Name))
			}
			return
		default:
			return
		}
	}
}

func isPackageVar(object types.Object) bool {
	v, ok := object.(*types.Var)
	return ok && !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

// isLocal reports whether an expression is a local variable.
func isLocal(info *types.Info, e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && !isPackageVar(info.ObjectOf(id))
}
