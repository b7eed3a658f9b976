package flow

import (
	"fmt"
	"regexp"
	"slices"
)

var (
	// unexpected matches what the parser of CEL says of a text that it cannot read: what stands there, and before what.
	unexpected = regexp.MustCompile(`(?s)^Syntax error: (?:mismatched input|extraneous input|` +
		`no viable alternative at input|token recognition error at:) '(.*?)'(?: expecting .*)?$`)
	absent = regexp.MustCompile(`(?s)^Syntax error: missing '(.*?)' at `)
	// stepPath matches the name of a step in an expression, and identifier those that CEL reads there.
	stepPath   = regexp.MustCompile(`\bsteps\.([A-Za-z0-9_-]+)`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	literals   = []string{"false", "in", "null", "true"}
)

// plainly returns what the compiler of CEL says is wrong with an expression, without the words of its parser.
func plainly(message string) string {
	if found := absent.FindStringSubmatch(message); found != nil {
		return quote(found[1]) + " is missing"
	}
	switch found := unexpected.FindStringSubmatch(message); {
	case found == nil:
		return message
	case found[1] == "<EOF>":
		return "something is missing at its end"
	default:
		return "it cannot be read from " + quote(found[1]) + " on"
	}
}

// bracketed says how to write the first step in an expression whose ID is no name in CEL, such as "in" or one with a
// dash; empty if there is none.
func bracketed(text string) string {
	for _, found := range stepPath.FindAllStringSubmatch(text, -1) {
		if id := found[1]; !identifier.MatchString(id) || slices.Contains(literals, id) {
			return fmt.Sprintf(`; write steps[%q] for the step %s`, id, id)
		}
	}
	return ""
}
