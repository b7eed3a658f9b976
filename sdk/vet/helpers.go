package vet

import (
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// taint is the fact that a function breaks a rule, if a workflow calls it.
type taint struct{ Rule, Text string }

// AFact implements analysis.Fact.
func (*taint) AFact() {}

// String implements fmt.Stringer.
func (t *taint) String() string { return t.Rule + ": " + t.Text }

// helper is a function that is no workflow, but may be called by one.
type helper struct {
	taint *taint
	calls []*types.Func // of the same package
}

// findHelpers finds out which functions of the package break rules, by themselves or by what they call, and keeps that
// as facts.
func (c *checker) findHelpers() {
	var order []*helper
	for _, file := range c.Files {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || c.isWorkflow(fn.Type) || isDeterministic(fn) {
				continue
			}
			if object, ok := c.TypesInfo.Defs[fn.Name].(*types.Func); ok {
				c.helpers[object] = c.newHelper(fn.Body)
				order = append(order, c.helpers[object])
			}
		}
	}
	c.spread(order)
	for fn, h := range c.helpers {
		if h.taint != nil {
			c.ExportObjectFact(fn, h.taint)
		}
	}
}

// spread taints all functions that call one that is tainted.
func (c *checker) spread(order []*helper) {
	for changed := true; changed; {
		changed = false
		for _, h := range order {
			for _, callee := range h.calls {
				if other := c.helpers[callee]; h.taint == nil && other != nil && other.taint != nil {
					h.taint, changed = &taint{other.taint.Rule, "calls " + callee.Name() + ", which " + other.taint.Text}, true
				}
			}
		}
	}
}

func isDeterministic(fn *ast.FuncDecl) bool {
	return fn.Doc != nil && slices.ContainsFunc(fn.Doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, deterministicMark)
	})
}

// inherited are the rules that a workflow breaks by calling a function that breaks them.
var inherited = map[string]bool{"SW001": true, "SW002": true, "SW003": true, "SW004": true}

func (c *checker) newHelper(body *ast.BlockStmt) *helper {
	h := &helper{}
	ast.Inspect(body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && (c.isWorkflow(lit.Type) || c.isStep(lit.Type)) {
			return false
		}
		for _, f := range c.impure(n, body) {
			at := c.Fset.Position(f.pos)
			if h.taint == nil && inherited[f.rule] && !c.allowed.allow(at, f.rule) {
				what, _, _ := strings.Cut(f.text, ";")
				h.taint = &taint{f.rule, fmt.Sprintf("is not deterministic: %s (%s:%d)", what, filepath.Base(at.Filename), at.Line)}
			}
		}
		if call, ok := n.(*ast.CallExpr); ok {
			c.addCall(h, call)
		}
		return true
	})
	return h
}

func (c *checker) addCall(h *helper, call *ast.CallExpr) {
	fn := typeutil.StaticCallee(c.TypesInfo, call)
	if fn == nil {
		return
	}
	fn = fn.Origin()
	if fn.Pkg() == c.Pkg {
		h.calls = append(h.calls, fn)
		return
	}
	if fact := new(taint); h.taint == nil && c.ImportObjectFact(fn, fact) {
		h.taint = &taint{fact.Rule, "calls " + fn.Name() + ", which " + fact.Text}
	}
}

// indirect reports calls of functions that break rules.
func (s scope) indirect(n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	fn := typeutil.StaticCallee(s.c.TypesInfo, call)
	if fn == nil {
		return
	}
	if fact := new(taint); s.c.ImportObjectFact(fn.Origin(), fact) {
		s.c.report(found(call.Pos(), fact.Rule, "%s %s", fn.Name(), fact.Text))
	}
}
