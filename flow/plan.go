package flow

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stepwell-dev/stepwell/contract"
)

const (
	// maxPlanned limits the steps that a planner may return, with those in bodies, and defaultPlanned is how many it may
	// return unless the plan says otherwise.
	maxPlanned     = 100
	defaultPlanned = 50
	// maxRepairs limits how often a planner may be asked again, and defaultRepairs is how often it is unless the plan says
	// otherwise.
	maxRepairs     = 20
	defaultRepairs = 3
)

// codePlan means that a planner has returned no valid steps.
const codePlan = "flow.plan"

// planning is what a plan does.
type planning struct {
	calls, flows []string
	most         int
	repairs      int
	deployment   string
	defaults     defaults
	drain        bool
	depth        int
}

// readPlan reads "plan: NAME", with the fields of a call, and what the planner may return.
func (r *reader) readPlan(o *object, u usage) *many {
	p := &planning{
		repairs: o.count("repairs", defaultRepairs, 0, maxRepairs), most: defaultPlanned,
		defaults: r.defaults, drain: r.drain,
	}
	if r.body != nil {
		p.depth = r.body.depth
	}
	if allow := o.get("allow"); allow != nil {
		in := r.object(allow)
		p.calls, p.flows = in.texts("calls"), in.texts("flows")
		p.most = in.count("maxSteps", defaultPlanned, 1, maxPlanned)
		in.end()
	}
	if len(p.calls)+len(p.flows) == 0 {
		r.faults.add(orNode(o.node.get("allow"), o.node), CodeMissing,
			`want "allow" with "calls" or "flows", the names that the steps of the planner may have`)
	}
	s := step{at: o.node, join: joinAll}
	s.action.kind = kindCall
	r.readCall(o, kindPlan, &s.action, u)
	p.deployment = r.deployment
	if p.deployment == "" {
		p.deployment = s.action.deployment
	}
	b := &body{Program: &Program{byID: map[string]int{"": 0}, steps: []step{s}, drain: r.drain}, single: true}
	return &many{planning: p, body: b}
}

// texts returns the texts of a list.
func (o *object) texts(name string) (list []string) {
	for _, n := range o.list(name, maxPlanned) {
		if n.kind != kindText || n.text == "" {
			o.r.faults.add(n, CodeType, "want a name instead of %s", n.kind)
			continue
		}
		list = append(list, n.text)
	}
	return list
}

// fragment compiles what a planner has returned: {steps, output}. The faults are all that it has.
func (p *planning) fragment(text json.RawMessage) (*body, Faults) {
	root, faults := ReadNodes(text)
	if root == nil {
		return nil, faults.sorted()
	}
	b := &body{Program: &Program{byID: map[string]int{}, drain: p.drain}}
	r := &reader{
		memory: new(int), faults: &faults, objects: map[*node]bool{}, partial: len(faults) > 0, defaults: p.defaults,
		deployment: p.deployment, drain: p.drain,
	}
	r.body = &bodyReader{program: b.Program, depth: p.depth + 1}
	o := r.object(root)
	r.readSteps(b.Program, o.get("steps"), root)
	b.output = o.template("output", usage{place: placeOutput})
	o.end()
	steps := p.check(b.Program, &faults)
	if steps > p.most {
		faults.add(root, CodeType, "%d steps, with those in bodies; the limit is %d", steps, p.most)
	}
	r.check(b.Program)
	if len(faults) > 0 {
		return nil, faults.sorted()
	}
	b.note()
	return b, nil
}

// check checks that a plan allows the steps, and counts them.
func (p *planning) check(program *Program, faults *Faults) (steps int) {
	for i := range program.steps {
		s := &program.steps[i]
		steps++
		p.checkAction(&s.action, s.at, faults)
		if s.undo != nil {
			p.checkAction(s.undo, s.at, faults)
		}
		if m := s.action.many; m != nil && s.action.kind != kindPlan {
			steps += p.check(m.Program, faults)
		}
	}
	return steps
}

// unplanned are kinds that only authors use: they reach others by names that a plan cannot allow.
var unplanned = []actionKind{kindHTTP, kindHook, kindApproval, kindStart, kindEmit, kindRespond}

func (p *planning) checkAction(a *action, at *node, faults *Faults) {
	switch {
	case a.kind == kindPlan:
		faults.add(at, CodeForbidden, "a plan cannot return a plan")
	case slices.Contains(unplanned, a.kind):
		faults.add(at, CodeForbidden, "a plan cannot have a step of the kind %s: let it call a function or a flow", a.kind)
	case a.kind == kindCall && !slices.Contains(p.calls, a.name):
		faults.add(at, CodeForbidden, "this plan does not allow the call %q; it allows %q", a.name, p.calls)
	case a.kind == kindCall && a.deployment != p.deployment:
		faults.add(at, CodeForbidden, "a plan cannot name a deployment: leave it out")
	case a.kind == kindFlow && (!slices.Contains(p.flows, a.name) || a.deployment != ""):
		faults.add(at, CodeForbidden, "this plan does not allow the flow %q, or its deployment; it allows the newest of %q",
			a.name, p.flows)
	}
}

// planned returns the state of the steps that a call of the planner has returned, which has not begun.
func (s *state) planned(g *group, i, call int) (*state, Faults) {
	b, faults := g.fragment(g.result(call).output)
	if faults != nil {
		return nil, faults
	}
	prefix := s.Program.steps[i].id
	room := maxCorrelation - len(prefix)
	if b.longest() > room {
		faults.add(&node{line: 1, column: 1, path: "steps"}, CodeType,
			"the IDs of the steps have %d bytes, with those in bodies; the limit is %d", b.longest(), room)
		return nil, faults
	}
	p := b.at(prefix)
	return newState(p, s.history, frame{up: s, of: i, prefix: prefix}), nil
}

// applyPlanned folds an event of a step that a planner has returned.
func (s *state) applyPlanned(g *group, i int, rest string, e Event) error {
	if g.planning == nil {
		return fmt.Errorf("there is no step %q: %w", e.CorrelationID, ErrLog)
	}
	if g.plan == nil {
		plan, faults := s.planned(g, i, g.begun-1)
		if faults != nil {
			return fmt.Errorf("%s: its plan: %w", e.CorrelationID, faults)
		}
		g.plan = plan
	}
	return g.plan.applyAt(rest, e)
}

// drivePlan asks the planner until its steps are valid, and then goes on with them.
func (t *decision) drivePlan(i int) (moved bool) {
	g := t.groups[i]
	if g.plan == nil && g.begun > 0 && g.open == 0 && g.why == nil {
		plan, faults := t.planned(g, i, g.begun-1)
		switch {
		case faults == nil:
			g.plan, g.entered = plan, true
		case g.begun > g.repairs:
			f := failedAs(codePlan, "the planner has returned invalid steps %d times: %v", g.begun, faults)
			f.Details = mustJSON(faults.Details())
			t.stopWith(i, progressOf(*f))
			return true
		default:
			t.beginInstance(i)
			return true
		}
	}
	if g.begun == 0 {
		t.beginInstance(i)
		return true
	}
	if g.plan == nil {
		return false
	}
	return t.movePlan(i, nil)
}

// enterPlan returns the decision of the steps that a planner has returned.
func (t *decision) enterPlan(i int) *decision {
	g := t.groups[i]
	if !g.entered {
		g.plan, g.entered = g.plan.clone(t.state), true
	}
	return &decision{state: g.plan, round: t.round}
}

// movePlan goes on with the steps that a planner has returned.
func (t *decision) movePlan(i int, stopping *progress) bool {
	if t.steps[i].status.ended() {
		return false
	}
	before := len(t.commands)
	sub := t.enterPlan(i)
	sub.stopping = stopping
	sub.settle()
	if sub.ended {
		t.steps[i] = sub.result
		t.steps[i].seq = t.next()
	}
	return sub.ended || len(t.commands) > before
}

// asPlanned returns the input of a call: that of a planner has what it has returned before, and the faults of that.
func (t *decision) asPlanned(input json.RawMessage) json.RawMessage {
	if t.up == nil || t.up.groups[t.of].planning == nil || !t.single {
		return input
	}
	type previous struct {
		Fragment json.RawMessage `json:"fragment"`
		Errors   Faults          `json:"errors"`
	}
	wrapped := struct {
		Input    json.RawMessage `json:"input"`
		Previous *previous       `json:"previous,omitempty"`
	}{Input: orNull(input)}
	if g := t.up.groups[t.of]; t.n > 0 {
		_, faults := t.up.planned(g, t.of, t.n-1)
		wrapped.Previous = &previous{orNull(g.result(t.n - 1).output), faults}
	}
	return mustJSON(wrapped)
}

// progressOf returns what becomes of a step that fails.
func progressOf(f contract.Failure) progress {
	return progress{status: statusFailed, error: f.Text(), code: f.Code}
}
