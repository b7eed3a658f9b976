package condition

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"

	"github.com/stepwell-dev/stepwell/schema/pattern"
)

// maxPatterns limits the size of all patterns of a condition together: see [pattern.Size].
const maxPatterns = 500

// patterns checks the patterns of a condition before they are compiled. It is a validator of CEL.
type patterns struct{}

// Name returns the validator's name.
func (patterns) Name() string { return "stepwell.patterns" }

// Validate reports patterns that are not literals, and patterns that are too large.
func (patterns) Validate(_ *cel.Env, _ cel.ValidatorConfig, tree *ast.AST, issues *cel.Issues) {
	left := maxPatterns
	for _, call := range ast.MatchDescendants(ast.NavigateAST(tree), ast.KindMatcher(ast.CallKind)) {
		if call.AsCall().FunctionName() != overloads.Matches {
			continue
		}
		arg := patternOf(call.AsCall())
		text, ok := "", arg != nil && arg.Kind() == ast.LiteralKind
		if ok {
			text, ok = arg.AsLiteral().Value().(string)
		}
		if !ok {
			issues.ReportErrorAtID(call.ID(), "the pattern of matches is not a literal; write it in quotes")
			return
		}
		size, err := pattern.Size(text)
		if err != nil {
			issues.ReportErrorAtID(arg.ID(), "%v", err)
			return
		}
		if left -= size; left < 0 {
			issues.ReportErrorAtID(arg.ID(), pattern.TooLarge)
			return
		}
	}
}

// patternOf returns the pattern of a call of matches, in both of its forms; nil if it has none.
func patternOf(call ast.CallExpr) ast.Expr {
	args := call.Args()
	if len(args) == 0 {
		return nil
	}
	return args[len(args)-1]
}
