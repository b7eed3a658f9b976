package flow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/contract"
)

// many is what steps with a body have: map, loop and plan. The body of a plan is the call of its planner.
type many struct {
	*body
	*mapping
	*looping
	*planning
}

// body is what such a step does again and again. Each time is an instance, with IDs of its own.
type body struct {
	*Program

	// single is set if it is one step, which has the ID of its instance.
	single bool
	// undoable is set if any of its steps can be undone.
	undoable bool
}

// bodyReader is where a body is that is being read.
type bodyReader struct {
	program       *Program
	outer         *reader
	step          int // of the outer program
	depth         int
	inMap, inLoop bool
}

const (
	// maxNesting limits how deep bodies are nested.
	maxNesting = 4
	// maxCorrelation limits the IDs of a run's steps, in bytes.
	maxCorrelation = 256
)

// readMany reads what a step with a body does.
func (r *reader) readMany(o *object, kind actionKind, u usage) *many {
	switch kind {
	case kindMap:
		return r.readMap(o, u)
	case kindLoop:
		return r.readLoop(o, u)
	default:
		return r.readPlan(o, u)
	}
}

// inner returns the reader of the body of a step.
func (r *reader) inner(u usage, kind actionKind) *reader {
	in := &reader{
		memory: r.memory, faults: r.faults, objects: r.objects, partial: r.partial, defaults: r.defaults,
		deployment: r.deployment, drain: r.drain,
		body: &bodyReader{
			program: &Program{byID: map[string]int{}, drain: r.drain}, outer: r, step: u.step, depth: 1,
			inMap: kind == kindMap, inLoop: kind == kindLoop,
		},
	}
	if b := r.body; b != nil {
		in.body.depth, in.body.inMap, in.body.inLoop = b.depth+1, in.body.inMap || b.inMap, in.body.inLoop || b.inLoop
	}
	r.bodies = append(r.bodies, in)
	return in
}

// readBody reads a body: {steps, output}, or one call or flow.
func (r *reader) readBody(n, at *node, u usage, kind actionKind) *body {
	in := r.inner(u, kind)
	b := &body{Program: in.body.program}
	switch {
	case n == nil:
		r.faults.add(at, CodeMissing, `want "do", with what is done each time: a call, a flow, or "steps"`)
		return b
	case in.body.depth > maxNesting:
		r.faults.add(n, CodeType, "nested too deeply; the limit is %d", maxNesting)
		return b
	case n.get("steps") == nil:
		in.readSingle(b, n)
		return b
	}
	o := in.object(n)
	in.readSteps(b.Program, o.get("steps"), n)
	b.output = o.template("output", usage{place: placeOutput})
	o.end()
	b.note()
	return b
}

// readSingle reads a body that is one step.
func (r *reader) readSingle(b *body, n *node) {
	b.single, b.byID, r.ids = true, map[string]int{"": 0}, map[string]int{"": 0}
	s := r.readStep("", n)
	if k := s.action.kind; k != kindCall && k != kindFlow && k != "" {
		r.faults.add(n, CodeConflict, `a body is a call, a flow, or "steps", and this is a %s`, k)
	}
	for _, name := range []string{"needs", "join"} {
		if field := n.get(name); field != nil {
			r.faults.add(field, CodeConflict, `a body of one step needs no other: use "steps"`)
		}
	}
	if slices.ContainsFunc(s.catches, func(c catch) bool { return c.to != 0 }) {
		r.faults.add(n, CodeConflict, `there is no other step that a catch could lead to: use "steps"`)
	}
	b.steps = []step{s}
	b.note()
}

// note notes whether a step of the body can be undone.
func (b *body) note() {
	b.undoable = slices.ContainsFunc(b.steps, func(s step) bool { return s.canBeUndone() })
}

// canBeUndone reports whether the step, or one in its body, has an undo. The steps of a plan are not known yet.
func (s *step) canBeUndone() bool {
	m := s.action.many
	return s.undo != nil || m != nil && (m.planning != nil || m.body != nil && m.undoable)
}

// longest returns how many bytes the longest ID in the program has at least, without the prefix.
func (p *Program) longest() (n int) {
	for i := range p.steps {
		own := 1 + len(p.steps[i].name) + len("~within")
		if m := p.steps[i].action.many; m != nil {
			own = max(own, 1+len(p.steps[i].name)+len("#10000")+m.longest())
		}
		n = max(n, own)
	}
	return n
}

// checkBodies checks the bodies of a program's steps, and what they read of it.
func (r *reader) checkBodies(p *Program, known map[int]map[int]bool) {
	for _, in := range r.bodies {
		in.check(in.body.program)
		for _, read := range in.outside {
			r.checkRead(p, known, use{read.at, read.expr, usage{step: in.body.step}}, read.id)
		}
	}
	if r.body == nil && p.longest() > maxCorrelation {
		r.faults.add(p.steps[0].at, CodeType, "the IDs of nested steps have %d bytes together; the limit is %d", p.longest(),
			maxCorrelation)
	}
}

// outsideRead is a use of a step that is not in the body where it is read.
type outsideRead struct {
	use

	id string
}

// checkRead checks that a step that an expression reads has ended. If the step is not in this body, it is one outside.
func (r *reader) checkRead(p *Program, known map[int]map[int]bool, u use, id string) {
	if _, own := p.byID[id]; !own && r.body != nil && r.body.outer != nil {
		r.outside = append(r.outside, outsideRead{u, id})
		return
	}
	r.checkStep(p, known, u, id)
}

// checkPlace checks that an expression reads the variables of bodies only there.
func (r *reader) checkPlace(u use) {
	b := r.body
	if (slices.Contains(u.expr.vars, varItem) || slices.Contains(u.expr.vars, varIndex)) && (b == nil || !b.inMap) &&
		u.place != placeKey {
		r.faults.add(u.at, CodeExpression, "item and index are known only in the body of a map, and in its key")
	}
	if slices.Contains(u.expr.vars, varLoop) && (b == nil || !b.inLoop) && u.place != placeLoop {
		r.faults.add(u.at, CodeExpression, "iteration is known only in the body of a loop, and in its while and until")
	}
}

// at returns the program with the IDs of an instance of a body.
func (b *body) at(prefix string) *Program {
	p := *b.Program
	p.steps = slices.Clone(p.steps)
	for i := range p.steps {
		p.steps[i].id = prefix
		if !b.single {
			p.steps[i].id += "." + p.steps[i].name
		}
	}
	return &p
}

// touchedOf returns the instances that the last events were about, or all that are open after a decision that was too
// long.
func (t *decision) touchedOf(g *group) []int {
	if t.touched.all {
		return g.openInstances()
	}
	return slices.Sorted(maps.Keys(g.touched))
}

const (
	// fullDecision is the number of commands with which a decision ends early. The next decision decides what is left.
	fullDecision = 500
	// commandLimit leaves space for what ends a decision.
	commandLimit = contract.MaxCommands - 10
)

// isFull reports whether the decision must begin nothing more, and notes that there is more to do.
func (t *decision) isFull() bool {
	full := len(t.commands) >= fullDecision
	t.more = t.more || full
	return full
}

// isAtLimit is like isFull for what ends other things.
func (t *decision) isAtLimit() bool {
	full := len(t.commands) >= commandLimit || t.up != nil && t.isFull()
	t.more = t.more || full
	return full
}

// continuation is the ID of the wait that begins the decision after one that was too long; its number follows.
const continuation = "~continue#"

// continueLater asks for another decision if this one has left something.
func (t *decision) continueLater() {
	if t.more && !t.ended {
		t.send(wait{Type: "wait", ID: continuation + strconv.Itoa(t.continuations+1), For: "0s"})
	}
}

// isContinuation folds the wait after a decision that was too long.
func (s *state) isContinuation(e Event) bool {
	number, ok := strings.CutPrefix(e.CorrelationID, continuation)
	if n, err := strconv.Atoi(number); ok && err == nil {
		s.continuations, s.touched.all = max(s.continuations, n), true
	}
	return ok
}

// isDriven reports whether a step is open and has a body.
func (t *decision) isDriven(i int) bool { return t.steps[i].status == statusOpen && t.groups[i] != nil }

// enter returns the decision of an instance.
func (t *decision) enter(i, n int) *decision {
	g := t.groups[i]
	f := g.own[n]
	if f == nil {
		f = g.frames[n].clone(t.state)
		g.own[n] = f
	}
	return &decision{state: f, round: t.round}
}

// beside returns a decision in which expressions read what an instance will read.
func (t *decision) beside(i, n int) *decision {
	return &decision{
		state: &state{Program: &Program{}, history: t.history, frame: frame{up: t.state, of: i, n: n}}, round: t.round,
	}
}

// isBeside reports whether the state is that of [decision.beside].
func (s *state) isBeside() bool { return len(s.Program.steps) == 0 }

// move goes on with an instance, and reports whether it has decided anything.
func (t *decision) move(i, n int, stopping *progress) bool {
	g := t.groups[i]
	if g.frame(n) == nil || g.result(n).status.ended() {
		return false
	}
	before := len(t.commands)
	sub := t.enter(i, n)
	sub.stopping = stopping
	sub.settle()
	if sub.ended {
		g.end(n, sub.result)
		g.noteUndo(sub.state)
	}
	return sub.ended || len(t.commands) > before
}

// beginInstance begins the next instance.
func (t *decision) beginInstance(i int) {
	g := t.groups[i]
	n := g.begun
	f := t.instance(i, n)
	g.own[n] = f
	g.begun, g.open = g.begun+1, g.open+1
	t.move(i, n, nil)
}

// finish ends an instance, unless this decision has no space for closing all that is open of its steps: once the end is
// in the log, nobody closes the rest.
func (t *decision) finish(p progress) {
	if t.isFull() || !t.closeAll() {
		return
	}
	t.ended, t.result = true, p
	if t.single {
		return
	}
	command := recordStep{Type: "recordStep", ID: t.prefix, Name: t.up.Program.steps[t.of].name, Output: p.output}
	if p.status == statusFailed {
		f := failureIn(p)
		command.Output, command.Error = nil, &f
	}
	t.send(command)
}

// failureIn returns the failure of a step that has failed.
func failureIn(p progress) contract.Failure {
	var f contract.Failure
	if err := json.Unmarshal(p.error, &f); err != nil {
		f = contract.Failure{Message: string(p.error), Code: p.code}
	}
	return accepted(f)
}

// beginMany begins a step with a body.
func (t *decision) beginMany(i int) {
	t.group(i)
	g := t.groups[i]
	g.over, g.own = map[int]progress{}, map[int]*state{}
	if g.mapping != nil {
		t.beginMap(i)
	}
	if t.isDriven(i) {
		t.drive(i)
	}
}

// drive goes on with a step that has a body. It reports whether it has decided anything.
func (t *decision) drive(i int) (moved bool) {
	g := t.groups[i]
	if !g.driven {
		g.driven = true
		for _, n := range t.touchedOf(g) {
			moved = t.move(i, n, nil) || moved
		}
	}
	switch {
	case g.why != nil:
		return t.stop(i, *g.why) || moved
	case t.isFull():
		return moved
	case g.mapping != nil:
		return t.driveMap(i) || moved
	case g.looping != nil:
		return t.driveLoop(i) || moved
	default:
		return t.drivePlan(i) || moved
	}
}

// driveOrStop goes on with a step that has a body while the run fails: it stops unless it runs in any case.
func (t *decision) driveOrStop(i int) bool {
	if t.Program.steps[i].isLast() {
		return t.drive(i)
	}
	why := failedWith(contract.Failure{Message: "cancelled", Code: contract.CodeCancelled}, t.next())
	if g := t.groups[i]; g.why != nil {
		why = *g.why
	}
	return t.stop(i, why)
}
