package vet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"
)

// results reports results of the SDK's functions that are dropped (SW009).
func (s scope) results(n ast.Node) {
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && s.c.isSDK(call) {
			s.dropped(call, func(int) bool { return true })
		}
	case *ast.AssignStmt:
		if len(n.Rhs) != 1 {
			return
		}
		if call, ok := n.Rhs[0].(*ast.CallExpr); ok && s.c.isSDK(call) {
			s.dropped(call, func(i int) bool {
				id, ok := n.Lhs[i].(*ast.Ident)
				return ok && id.Name == "_"
			})
		}
	}
}

// dropped reports the results that are dropped and must not be.
func (s scope) dropped(call *ast.CallExpr, isDropped func(i int) bool) {
	signature, ok := s.c.TypesInfo.TypeOf(call.Fun).(*types.Signature)
	if !ok || s.c.isSDK(call, "Sleep", "SleepUntil", "Until") { // they only tell of a cancellation, as the next wait does
		return
	}
	for i := range signature.Results().Len() {
		if !isDropped(i) {
			continue
		}
		switch t := signature.Results().At(i).Type(); {
		case types.Identical(t, types.Universe.Lookup("error").Type()):
			s.c.report(found(call.Pos(), "SW009", "the error is dropped, and with it a failed step"))
		case isPointerTo(t, "Future"):
			s.c.report(found(call.Pos(), "SW009",
				"nobody waits for it, so the run may end without its result; keep the future, and Await it"))
		}
	}
}

// asks are the functions and methods of the SDK that ask for something with an ID.
var asks = []string{"Run", "Go", "Do", "DoGo", "Exec", "Child"}

// loops reports steps in loops over items whose IDs are numbered (SW010).
func (s scope) loops(n ast.Node) {
	loop, ok := n.(*ast.RangeStmt)
	if !ok {
		return
	}
	switch s.c.TypesInfo.TypeOf(loop.X).Underlying().(type) {
	case *types.Slice, *types.Array, *types.Map:
	default: // numbers count, and functions are sequences such as Hook.All
		return
	}
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // it has its own Context, or is a step
		case *ast.CallExpr:
			if s.numbered(n, loop) {
				s.c.report(found(n.Pos(), "SW010", "the IDs of steps in this loop are numbered, so runs in progress diverge when"+
					" items are inserted; use stepwell.MapBy, w.Scope with the item's key, or stepwell.ID"))
			}
		}
		return true
	})
}

// numbered reports whether a call asks for something with a Context from outside the loop and without an ID.
func (s scope) numbered(call *ast.CallExpr, loop *ast.RangeStmt) bool {
	if !s.c.isSDK(call, asks...) {
		return false
	}
	fn := typeutil.StaticCallee(s.c.TypesInfo, call)
	if fn.Signature().Recv() == nil && len(call.Args) > 1 && s.c.TypesInfo.Types[call.Args[1]].Value == nil {
		return false // its name is made of the item
	}
	outer := false
	for _, arg := range call.Args {
		if id, ok := arg.(*ast.Ident); ok && isWorkflowContext(s.c.TypesInfo.TypeOf(id)) {
			at := s.c.TypesInfo.ObjectOf(id).Pos()
			outer = at < loop.Pos() || at > loop.End()
		}
		if inner, ok := arg.(*ast.CallExpr); ok {
			if fn := typeutil.StaticCallee(s.c.TypesInfo, inner); fn != nil && fn.Name() == "ID" {
				return false
			}
		}
	}
	return outer
}
