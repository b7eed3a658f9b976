package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// impure returns what is not deterministic in a node by itself (SW001 to SW004), or is repeated by replays (SW013). The
// body is that of the function around it.
func (c *checker) impure(n ast.Node, body *ast.BlockStmt) []finding {
	const wait = "start coroutines with stepwell.Go, and wait with Await, Select or w.Until"
	switch n := n.(type) {
	case *ast.GoStmt:
		return []finding{found(n.Pos(), "SW002", "a goroutine runs beside the workflow; %s", wait)}
	case *ast.SelectStmt:
		return []finding{found(n.Pos(), "SW002", "select waits for channels; %s", wait)}
	case *ast.SendStmt:
		return []finding{found(n.Pos(), "SW002", "a channel is used; %s", wait)}
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return []finding{found(n.Pos(), "SW002", "a channel is used; %s", wait)}
		}
	case *ast.RangeStmt:
		return c.impureRange(n, body)
	case *ast.CallExpr:
		return c.impureCall(n, body)
	}
	return nil
}

// rule is why a function must not be called.
type rule struct {
	name string
	// instead is what to do.
	instead string
	// names are the functions; empty: all of the package.
	names []string
	// except are functions that may be called nevertheless.
	except []string
}

const (
	doIt     = "do it in a step, or in stepwell.Do"
	logIt    = "each replay repeats it; use w.Log"
	randomly = "use w.Rand or w.UUID, or stepwell.Value for secrets"
)

// rules are those of functions and methods, by their package.
var rules = map[string]rule{
	"time": {"SW001", "use w.Now, w.Sleep or w.Timer", []string{
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
	}, nil},
	"context": {"SW001", "contexts are for steps", []string{
		"Background", "TODO", "WithCancel", "WithTimeout", "WithDeadline",
	}, nil},
	"sync": {"SW002", "one coroutine runs at a time, so workflows need no locks", []string{
		"Lock", "RLock", "Wait", "Go", "Do",
	}, nil},
	"golang.org/x/sync/errgroup": {"SW002", "start coroutines with stepwell.Go", nil, nil},
	"math/rand":                  {"SW004", randomly, nil, []string{"New", "NewSource", "NewZipf"}},
	"math/rand/v2":               {"SW004", randomly, nil, []string{"New", "NewPCG", "NewChaCha8", "NewZipf"}},
	"crypto/rand":                {"SW004", randomly, nil, nil},
	"github.com/google/uuid": {"SW004", randomly, []string{
		"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7",
	}, nil},
	"os": {"SW004", doIt, nil, []string{
		"IsExist", "IsNotExist", "IsPermission", "IsTimeout", "Expand", "Error", "String",
	}},
	"os/exec": {"SW004", doIt, nil, nil},
	"net": {"SW004", doIt, []string{
		"Dial", "DialTimeout", "DialContext", "Listen", "ListenPacket", "LookupHost", "LookupIP", "LookupAddr", "Interfaces",
	}, nil},
	"net/http": {"SW004", doIt, []string{
		"Get", "Post", "PostForm", "Head", "Do", "RoundTrip", "ListenAndServe",
	}, nil},
	"database/sql":                    {"SW004", doIt, nil, []string{"Error", "Scan", "Value"}},
	"github.com/jackc/pgx/v5":         {"SW004", doIt, nil, []string{"Error", "Identifier", "Sanitize"}},
	"github.com/jackc/pgx/v5/pgxpool": {"SW004", doIt, nil, nil},
	"log":                             {"SW013", logIt, nil, []string{"Flags", "Prefix", "New", "Default"}},
	"log/slog": {"SW013", logIt, []string{
		"Debug", "Info", "Warn", "Error", "Log", "DebugContext", "InfoContext", "WarnContext", "ErrorContext",
	}, nil},
	"fmt": {"SW013", logIt, []string{"Print", "Printf", "Println"}, nil},
}

func (c *checker) impureCall(call *ast.CallExpr, body *ast.BlockStmt) []finding {
	if isBuiltin(c.TypesInfo, call, "close") {
		return []finding{found(call.Pos(), "SW002", "a channel is used; wait with Await, Select or w.Until")}
	}
	fn := typeutil.StaticCallee(c.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil {
		return nil
	}
	name := fn.Name()
	if fn.Pkg().Path() == "maps" && (name == "Keys" || name == "Values" || name == "All") && !c.isSorted(call, body) {
		return []finding{found(call.Pos(), "SW003", "maps.%s has a random order; sort it with slices.Sorted", name)}
	}
	r, ok := rules[fn.Pkg().Path()]
	if !ok || len(r.names) > 0 && !slices.Contains(r.names, name) || slices.Contains(r.except, name) {
		return nil
	}
	if receiver := fn.Signature().Recv(); receiver != nil && isPureReceiver(fn, receiver.Type().String()) {
		return nil
	}
	return []finding{found(call.Pos(), r.name, "%s.%s is called; %s", fn.Pkg().Name(), name, r.instead)}
}

// isPureReceiver reports whether a method may be called because of its receiver: a generator, which has a seed, the
// logger of w.Log, a time or a header.
func isPureReceiver(fn *types.Func, receiver string) bool {
	return strings.HasPrefix(fn.Pkg().Path(), "math/rand") ||
		slices.Contains([]string{"*log/slog.Logger", "time.Time", "net/http.Header"}, receiver)
}

// isSorted reports whether the call is an argument of a function that sorts.
func (c *checker) isSorted(call *ast.CallExpr, body *ast.BlockStmt) (sorted bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if outer, ok := n.(*ast.CallExpr); ok && slices.Contains(outer.Args, ast.Expr(call)) && c.sorts(outer) {
			sorted = true
		}
		return !sorted
	})
	return sorted
}

// sorts reports whether a call is one of a function that sorts.
func (c *checker) sorts(call *ast.CallExpr) bool {
	fn := typeutil.StaticCallee(c.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil {
		return false
	}
	return fn.Pkg().Path() == "sort" || fn.Pkg().Path() == "slices" && strings.HasPrefix(fn.Name(), "Sort")
}

// impureRange returns what is random about a loop. A loop over a map is not if its body can be executed in any order.
func (c *checker) impureRange(loop *ast.RangeStmt, body *ast.BlockStmt) []finding {
	switch c.TypesInfo.TypeOf(loop.X).Underlying().(type) {
	case *types.Chan:
		return []finding{found(loop.Pos(), "SW002", "a channel is used; wait with Await, Select or w.Until")}
	case *types.Map:
		if loop.Key != nil && !c.anyOrder(loop, body) {
			return []finding{found(loop.Pos(), "SW003",
				"the order of a map is random; range over slices.Sorted(maps.Keys(m)), or use stepwell.MapBy")}
		}
	}
	return nil
}

// anyOrder reports whether the iterations of a loop can be executed in any order: they only sum up, fill maps, or
// append to slices that are sorted later.
func (c *checker) anyOrder(loop *ast.RangeStmt, body *ast.BlockStmt) bool {
	var appended []types.Object
	var ok func(stmt ast.Stmt) bool
	all := func(list []ast.Stmt) bool { return !slices.ContainsFunc(list, func(s ast.Stmt) bool { return !ok(s) }) }
	ok = func(stmt ast.Stmt) bool {
		switch s := stmt.(type) {
		case nil, *ast.IncDecStmt:
			return true
		case *ast.BranchStmt:
			return s.Tok == token.CONTINUE
		case *ast.BlockStmt:
			return all(s.List)
		case *ast.IfStmt:
			return !c.calls(s.Cond) && ok(s.Init) && ok(s.Body) && ok(s.Else)
		case *ast.ExprStmt:
			call, isCall := s.X.(*ast.CallExpr)
			return isCall && isBuiltin(c.TypesInfo, call, "delete")
		case *ast.AssignStmt:
			object, good := c.anyOrderAssignment(s)
			if object != nil {
				appended = append(appended, object)
			}
			return good
		}
		return false
	}
	if !ok(loop.Body) {
		return false
	}
	return !slices.ContainsFunc(appended, func(o types.Object) bool { return !c.sortedAfter(loop, body, o) })
}

// anyOrderAssignment reports whether assignments like this one can happen in any order, and returns the slice to which
// it appends, if it does.
func (c *checker) anyOrderAssignment(s *ast.AssignStmt) (appended types.Object, ok bool) {
	if len(s.Lhs) != 1 || len(s.Rhs) != 1 {
		return nil, false
	}
	if id, ok := s.Lhs[0].(*ast.Ident); ok && id.Name == "_" { // it has no type
		return nil, !c.calls(s.Rhs[0])
	}
	basic, _ := c.TypesInfo.TypeOf(s.Lhs[0]).Underlying().(*types.Basic)
	switch s.Tok {
	case token.ADD_ASSIGN, token.SUB_ASSIGN, token.OR_ASSIGN, token.AND_ASSIGN, token.XOR_ASSIGN, token.MUL_ASSIGN:
		return nil, basic != nil && basic.Info()&types.IsInteger != 0 && !c.calls(s.Rhs[0])
	case token.DEFINE:
		return nil, !c.calls(s.Rhs[0]) // of this iteration only
	default: // what follows is about =
	}
	if index, isIndex := s.Lhs[0].(*ast.IndexExpr); isIndex {
		_, isMap := c.TypesInfo.TypeOf(index.X).Underlying().(*types.Map)
		return nil, isMap && !c.calls(s.Rhs[0])
	}
	id, isIdent := s.Lhs[0].(*ast.Ident)
	call, isCall := s.Rhs[0].(*ast.CallExpr)
	if isIdent && isCall && isBuiltin(c.TypesInfo, call, "append") && !slices.ContainsFunc(call.Args[1:], c.calls) {
		return c.TypesInfo.ObjectOf(id), true
	}
	return nil, false
}

// calls reports whether an expression calls anything but conversions and built-in functions.
func (c *checker) calls(e ast.Expr) (calls bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if t := c.TypesInfo.Types[call.Fun]; !t.IsType() && !t.IsBuiltin() {
				calls = true
			}
		}
		return !calls
	})
	return calls
}

func isBuiltin(info *types.Info, call *ast.CallExpr, name string) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && info.Uses[id] == types.Universe.Lookup(name)
}

// sortedAfter reports whether a slice is sorted after a loop.
func (c *checker) sortedAfter(loop *ast.RangeStmt, body *ast.BlockStmt, slice types.Object) (sorted bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Pos() > loop.End() && c.sorts(call) && len(call.Args) > 0 {
			if id, ok := call.Args[0].(*ast.Ident); ok && c.TypesInfo.ObjectOf(id) == slice {
				sorted = true
			}
		}
		return !sorted
	})
	return sorted
}
