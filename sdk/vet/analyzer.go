package vet

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
)

// sdk is the import path of the SDK.
const sdk = "github.com/stepwell-dev/stepwell/sdk"

// Analyzer reports code of workflows that does not survive a replay.
var Analyzer = &analysis.Analyzer{
	Name:      "stepwellvet",
	Doc:       "report workflows of the Stepwell SDK that are not deterministic",
	URL:       "https://pkg.go.dev/" + sdk + "/vet",
	Run:       run,
	FactTypes: []analysis.Fact{new(taint)},
}

// checker analyzes one package.
type checker struct {
	*analysis.Pass

	allowed allowances
	// helpers has the functions of the package that are no workflows.
	helpers map[*types.Func]*helper
}

// finding is a place that breaks a rule.
type finding struct {
	pos  token.Pos
	rule string
	text string
}

func run(pass *analysis.Pass) (any, error) {
	if !analyzed(pass) {
		return nil, nil
	}
	c := &checker{pass, newAllowances(pass), map[*types.Func]*helper{}}
	c.findHelpers()
	for _, file := range pass.Files {
		for _, decl := range file.Decls {
			c.declaration(decl)
		}
	}
	c.dataTypes()
	for _, f := range c.allowed.refused {
		c.report(f)
	}
	return nil, nil
}

// goroot returns where the standard library is. A program that was built with -trimpath has to ask for it.
var goroot = sync.OnceValue(func() string {
	if build.Default.GOROOT != "" {
		return build.Default.GOROOT
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "" // then the standard library is checked, too
	}
	return strings.TrimSpace(string(out))
})

// analyzed reports whether the package belongs to the module that is checked. Others are judged by tables.
func analyzed(pass *analysis.Pass) bool {
	path := pass.Pkg.Path()
	if path == sdk || strings.HasPrefix(path, sdk+"/internal/") || path == sdk+"/stepwelltest" {
		return false
	}
	if m := pass.Module; m != nil && m.Path != "" {
		return m.Version == "" && m.Path != "std"
	}
	for _, file := range pass.Files {
		name := pass.Fset.Position(file.Package).Filename
		if strings.HasPrefix(name, filepath.Join(goroot(), "src")+string(filepath.Separator)) {
			return false
		}
	}
	return true
}

// report reports a finding unless it is allowed.
func (c *checker) report(f finding) {
	if !c.allowed.allow(c.Fset.Position(f.pos), f.rule) {
		c.Report(analysis.Diagnostic{Pos: f.pos, Category: f.rule, Message: f.rule + ": " + f.text})
	}
}

func found(pos token.Pos, rule, format string, args ...any) finding {
	return finding{pos, rule, fmt.Sprintf(format, args...)}
}

// declaration checks the workflows of a declaration.
func (c *checker) declaration(decl ast.Decl) {
	if fn, ok := decl.(*ast.FuncDecl); ok {
		if fn.Body != nil {
			c.function(scope{c: c, workflow: c.isWorkflow(fn.Type)}, fn.Type, fn.Body)
		}
		return
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if ok {
			c.function(scope{c: c, workflow: c.isWorkflow(lit.Type)}, lit.Type, lit.Body)
		}
		return !ok
	})
}

// scope is what is known about the function around a node.
type scope struct {
	c *checker
	// workflow is set if the function is code of a workflow, and step if it is one of a step inside a workflow.
	workflow, step bool
	fn             ast.Node // the innermost function with a Context of its own; nil if there is none
	body           *ast.BlockStmt
}

// function checks a function and those inside it.
func (c *checker) function(s scope, signature *ast.FuncType, body *ast.BlockStmt) {
	s.body = body
	if c.isWorkflow(signature) {
		s.fn = signature
	}
	s.check(body)
}

// check checks a node and all below it.
func (s scope) check(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.c.function(s.inside(n), n.Type, n.Body)
			return false
		case *ast.CallExpr:
			if s.c.isSDK(n, "Value") { // its function may do what it likes, once
				for _, arg := range n.Args[:len(n.Args)-1] {
					s.check(arg)
				}
				return false
			}
		}
		s.node(n)
		return true
	})
}

// inside returns the scope of a function inside another one.
func (s scope) inside(lit *ast.FuncLit) scope {
	switch {
	case s.c.isWorkflow(lit.Type):
		s.workflow, s.step = true, false
	case s.c.isStep(lit.Type):
		s.workflow, s.step = false, s.workflow || s.step
	}
	return s
}

// node checks a node by all rules.
func (s scope) node(n ast.Node) {
	if s.step {
		s.capturedByStep(n)
	}
	if !s.workflow {
		return
	}
	for _, f := range s.c.impure(n, s.body) {
		s.c.report(f)
	}
	s.indirect(n)
	s.misuse(n)
	s.results(n)
	s.loops(n)
}

// isWorkflow reports whether a function has a parameter of the type *stepwell.Context.
func (c *checker) isWorkflow(signature *ast.FuncType) bool {
	for _, field := range signature.Params.List {
		if isWorkflowContext(c.TypesInfo.TypeOf(field.Type)) {
			return true
		}
	}
	return false
}

// isStep reports whether the first parameter of a function is a context.Context.
func (c *checker) isStep(signature *ast.FuncType) bool {
	parameters := signature.Params.List
	return len(parameters) > 0 && isNamed(c.TypesInfo.TypeOf(parameters[0].Type), "context", "Context")
}

// isWorkflowContext reports whether a type is *stepwell.Context.
func isWorkflowContext(t types.Type) bool { return isPointerTo(t, "Context") }

// isPointerTo reports whether a type is a pointer to the SDK's type with the name.
func isPointerTo(t types.Type, name string) bool {
	p, ok := t.(*types.Pointer)
	return ok && isNamed(p.Elem(), sdk, name)
}

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok {
		return false
	}
	object := named.Obj()
	return object.Pkg() != nil && object.Pkg().Path() == path && object.Name() == name
}
