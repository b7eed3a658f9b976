package vet

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const (
	allowMark         = "//stepwell:allow"
	deterministicMark = "//stepwell:deterministic"
)

var allowForm = regexp.MustCompile(`^//stepwell:allow (SW\d{3}) \S`)

// allowances are the places where comments allow what is reported.
type allowances struct {
	rules   map[place]string
	refused []finding // comments without a reason
}

type place struct {
	file string
	line int
}

func newAllowances(pass *analysis.Pass) allowances {
	a := allowances{rules: map[place]string{}}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				a.add(pass, comment)
			}
		}
	}
	return a
}

func (a *allowances) add(pass *analysis.Pass, comment *ast.Comment) {
	switch {
	case strings.HasPrefix(comment.Text, allowMark):
		match := allowForm.FindStringSubmatch(comment.Text)
		if match == nil {
			a.refused = append(a.refused, found(comment.Pos(), "SW000", "want %s SWnnn and a reason", allowMark))
			return
		}
		at := pass.Fset.Position(comment.Pos())
		a.rules[place{at.Filename, at.Line}] += match[1] + " "
	case strings.HasPrefix(comment.Text, deterministicMark):
		if strings.TrimSpace(strings.TrimPrefix(comment.Text, deterministicMark)) == "" {
			a.refused = append(a.refused, found(comment.Pos(), "SW000", "want %s and a reason", deterministicMark))
		}
	}
}

// allow reports whether a comment on the line or the one before allows the rule.
func (a *allowances) allow(at token.Position, rule string) bool {
	return strings.Contains(a.rules[place{at.Filename, at.Line}]+a.rules[place{at.Filename, at.Line - 1}], rule)
}
