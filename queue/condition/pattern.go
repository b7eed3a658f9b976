package condition

import (
	"regexp/syntax"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
)

// maxPatterns limits the size of all patterns of a condition together: roughly the number of instructions of their
// compiled programs. A pattern for e-mail addresses has about 30.
const maxPatterns = 500

// patterns checks the patterns of a condition before they are compiled: their size must be known in advance, because
// the time of a match is the size of the pattern times the length of the text. It is a validator of CEL.
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
		tree, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			issues.ReportErrorAtID(arg.ID(), "%v", err)
			return
		}
		if left -= patternSize(tree); left < 0 {
			issues.ReportErrorAtID(arg.ID(), "the patterns are too large: repeats such as {100} count as often as they repeat; "+
				"use smaller ones, or * and +")
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

// patternSize returns the approximate number of instructions that a pattern compiles to, and some more for large
// classes of characters. It does not compile the pattern, because repeats may multiply to millions of instructions. The
// result is at most maxPatterns+1.
func patternSize(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n = min(n+patternSize(sub), maxPatterns+1)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n = 1 + len(re.Rune)/4
	case syntax.OpRepeat:
		n = n*max(re.Min+1, re.Max) + max(re.Max-re.Min, 0) // x{2,4} becomes xx(x(x)?)?, x{2,} xxx*
	case syntax.OpConcat:
	default:
		n += max(1, len(re.Sub))
	}
	return min(n, maxPatterns+1)
}
