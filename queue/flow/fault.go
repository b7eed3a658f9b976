package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is a mistake in a document.
type Fault struct {
	// Line and Column are where it is, counted from 1.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path leads to it, such as "steps.charge.retry".
	Path string `json:"path"`
	// Code is one of the Code constants.
	Code string `json:"code"`
	// Message says what is wrong, and what to do.
	Message string `json:"message"`
}

// The codes of faults.
const (
	CodeSyntax     = "syntax"     // it is not YAML or JSON
	CodeUnknown    = "unknown"    // a field, or a step, that does not exist
	CodeMissing    = "missing"    // something that must be there
	CodeType       = "type"       // a value of another type, or out of bounds
	CodeConflict   = "conflict"   // things that exclude each other
	CodeCycle      = "cycle"      // steps that need each other
	CodeForbidden  = "forbidden"  // what a plan does not allow
	CodeExpression = "expression" // an expression that cannot be compiled, or reads what it cannot know
)

// Faults are all mistakes of a document, in the order of their lines.
type Faults []Fault

// Error implements error: a line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// ErrFaults is what all [Faults] match.
var ErrFaults = errors.New("the document has faults")

// Is implements the matching of [errors.Is].
func (f Faults) Is(target error) bool { return target == ErrFaults }

// Details returns the faults for machines.
func (f Faults) Details() map[string]any { return map[string]any{"faults": []Fault(f)} }

// String returns the fault in one line, as compilers do.
func (f Fault) String() string {
	text := fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	if f.Path != "" {
		text += f.Path + ": "
	}
	return text + f.Message
}

// maxFaults is how many faults of a document are reported.
const maxFaults = 200

// add adds a fault at a place in the document.
func (f *Faults) add(at *node, code, format string, args ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, Fault{at.line, at.column, at.path, code, fmt.Sprintf(format, args...)})
	}
}

// sorted returns the faults in the order of their places.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}
