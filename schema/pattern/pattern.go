// Package pattern bounds the work of regular expressions that users write: those of conditions and of JSON Schemas. The
// time of a match is the size of the pattern times the length of the text, so the size must be known before a pattern
// is compiled, and the work of a match is charged before it is done.
package pattern

import (
	"regexp"
	"regexp/syntax"
)

// endless is a size beyond all limits. Sizes are not added up any further.
const endless = 1_000_000

// TooLarge says what to change about patterns whose [Size] is beyond a limit.
const TooLarge = "the patterns are too large: repeats such as {100} count as often as they repeat; " +
	"use smaller ones, or * and +"

// stepsPerUnit is how many steps of matching a pattern make up one unit of cost: instructions of the pattern times
// bytes of the text.
const stepsPerUnit = 10

// Pattern is a compiled pattern.
type Pattern struct {
	*regexp.Regexp

	size int
}

// Compile compiles a pattern, whose [Size] the caller has limited.
func Compile(text string) (*Pattern, error) {
	size, err := Size(text)
	if err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &Pattern{compiled, size}, nil
}

// Cost returns the cost of matching a text of some bytes.
func (p *Pattern) Cost(bytes int) int { return 1 + (bytes+1)*p.size/stepsPerUnit }

// Size returns the approximate number of instructions that a pattern compiles to, and some more for large classes of
// characters. A pattern for e-mail addresses has about 30. Size does not compile the pattern, because repeats may
// multiply to millions of instructions.
func Size(text string) (int, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return size(tree), nil
}

func size(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n = min(n+size(sub), endless)
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
	return min(n, endless)
}
