package flow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// place is where in a document an expression is, as far as it decides what the expression may read.
type place int

const (
	placeStep place = iota
	placeUndo
	placeOutput
	placeKey  // of the items of a map
	placeLoop // the conditions of a loop
)

// usage is the step and the place that use an expression.
type usage struct {
	step  int
	place place
}

// use is an expression in a document.
type use struct {
	at   *node
	expr *expression
	usage
}

// check checks what the steps of a program say about each other.
func (r *reader) check(p *Program) {
	if len(p.steps) == 0 {
		return // a fault that has been reported
	}
	r.checkOrder(p)
	r.checkEnds(p)
	r.checkGoals(p)
	r.checkReferences(p)
}

// checkOrder checks that no step needs itself.
func (r *reader) checkOrder(p *Program) {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(p.steps))
	var visit func(i int, path []string)
	visit = func(i int, path []string) {
		switch state[i] {
		case open:
			from := slices.Index(path, p.steps[i].id)
			r.faults.add(p.steps[i].at, CodeCycle, "these steps wait for each other: %s",
				strings.Join(append(path[from:], p.steps[i].id), " needs "))
			r.partial = true
		case unseen:
			state[i] = open
			for _, before := range p.before(i) {
				visit(before, append(slices.Clip(path), p.steps[i].id))
			}
			state[i] = done
		}
	}
	for i := range p.steps {
		visit(i, nil)
	}
}

// checkEnds checks that runs are completed only where they can be, and warns of steps that are skipped with another.
func (r *reader) checkEnds(p *Program) {
	for i := range p.steps {
		if s := &p.steps[i]; s.isLast() && s.action.kind == kindComplete {
			r.faults.add(s.at, CodeConflict, "%s would complete runs that have failed: join must not be always", s.id)
		}
		if s := &p.steps[i]; r.body != nil && s.endsRun() {
			r.faults.add(s.at, CodeConflict, "%s is in a body, which cannot complete the run: let the step after the body do it",
				s.name)
		}
		if s := &p.steps[i]; s.join == joinAll && len(s.needs) == 1 && p.steps[s.needs[0]].when != nil {
			p.Warnings.add(s.at, CodeConflict, "%s is skipped whenever %s is, which it alone needs; if that is not meant, "+
				"let it need something else as well", s.id, p.steps[s.needs[0]].id)
		}
	}
}

// before returns the steps that have to have ended before a step begins. What stands for a step that failed counts as
// that step.
func (p *Program) before(i int) (list []int) {
	if s := &p.steps[i]; s.target != 0 {
		return []int{s.target - 1}
	}
	for _, needed := range p.steps[i].needs {
		list = append(list, p.standing(needed)...)
	}
	return list
}

// standing returns a step and those that may stand for it.
func (p *Program) standing(i int) []int {
	list := []int{i}
	for _, c := range p.steps[i].catches {
		if c.to != 0 && p.steps[c.to-1].target == i+1 {
			list = append(list, c.to-1)
		}
	}
	return list
}

// readable returns the steps that have ended for sure when a step begins. Of a step that begins with any of those that
// it needs, these are what is readable after each. Known has what has been found before.
func (p *Program) readable(i int, known map[int]map[int]bool) map[int]bool {
	if found, ok := known[i]; ok {
		return found
	}
	after := func(ended []int) map[int]bool {
		found := map[int]bool{}
		for _, j := range ended {
			found[j] = true
			maps.Copy(found, p.readable(j, known))
		}
		return found
	}
	s := &p.steps[i]
	if s.join != joinAny || len(s.needs) == 0 {
		known[i] = after(p.before(i))
		return known[i]
	}
	known[i] = after(p.standing(s.needs[0]))
	for _, needed := range s.needs[1:] {
		other := after(p.standing(needed))
		maps.DeleteFunc(known[i], func(j int, _ bool) bool { return !other[j] })
	}
	return known[i]
}

// ancestors returns all steps that come before a step.
func (p *Program) ancestors(i int) map[int]bool {
	found := map[int]bool{}
	var visit func(int)
	visit = func(i int) {
		for _, before := range p.before(i) {
			if !found[before] {
				found[before] = true
				visit(before)
			}
		}
	}
	visit(i)
	return found
}

// endsRun reports whether the step, or a catch of it, completes the run.
func (s *step) endsRun() bool {
	return s.action.kind == kindComplete ||
		slices.ContainsFunc(s.catches, func(c catch) bool { return c.then == thenComplete })
}

// orderUndo notes what is undone before each step: the steps that came after it.
func (p *Program) orderUndo() {
	p.undoneBefore = make([][]int, len(p.steps))
	for later := range p.steps {
		if !p.steps[later].canBeUndone() {
			continue
		}
		for i := range p.ancestors(later) {
			if p.steps[i].canBeUndone() {
				p.undoneBefore[i] = append(p.undoneBefore[i], later)
			}
		}
	}
}

// checkReferences checks that expressions read what is known when they are evaluated.
func (r *reader) checkReferences(p *Program) {
	known := map[int]map[int]bool{}
	r.checkResponses(p)
	r.checkBodies(p, known)
	for _, u := range r.uses {
		for _, id := range u.expr.steps {
			r.checkRead(p, known, u, id)
		}
		r.checkPlace(u)
		inStep := u.place == placeStep || u.place == placeUndo
		if slices.Contains(u.expr.vars, varError) && (!inStep || p.steps[u.step].target == 0) && !r.partial {
			r.faults.add(u.at, CodeExpression, "error is known only in a step that a catch leads to")
		}
		if slices.Contains(u.expr.vars, varUndo) && u.place != placeUndo {
			r.faults.add(u.at, CodeExpression, "undo is known only where a step is undone")
		}
		if slices.Contains(u.expr.vars, varData) || slices.Contains(u.expr.vars, varSignal) {
			r.faults.add(u.at, CodeExpression, "data and signal are known only in the start of a trigger: read input")
		}
	}
	p.orderUndo()
}

// checkStep checks that a step has ended when an expression reads it.
func (r *reader) checkStep(p *Program, known map[int]map[int]bool, u use, id string) {
	read, ok := p.byID[id]
	if !ok {
		r.faults.add(u.at, CodeUnknown, "%s reads the step %q, which does not exist%s", quote(u.expr.text), id,
			nearest(r.faults, id, p.byID))
		return
	}
	if r.partial || u.place == placeOutput || u.place == placeUndo && read == u.step {
		return
	}
	switch {
	case p.readable(u.step, known)[read]:
	case len(p.goals) > 0 && slices.Contains(p.steps[u.step].needs, read): // its status says whether it has ended
	case len(p.goals) > 0 && p.steps[u.step].join == joinAny && p.ancestors(u.step)[read]: // so does theirs
	case p.steps[u.step].join == joinAny:
		r.faults.add(u.at, CodeExpression, "%s reads steps.%s, which may not have ended then, since join is any",
			quote(u.expr.text), id)
	default:
		r.faults.add(u.at, CodeExpression, "%s reads steps.%s, which may not have ended then: add %s to needs",
			quote(u.expr.text), id, id)
	}
}

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

// Add adds a fault at a place in a document. Code is one of the Code constants.
func (f *Faults) Add(at *Node, code, format string, args ...any) { f.add(at, code, format, args...) }

// Sorted returns the faults in the order of their places, each once.
func (f Faults) Sorted() Faults { return slices.Compact(f.sorted()) }

// sorted returns the faults in the order of their places.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}
