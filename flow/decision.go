package flow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/schema"
)

// decision is what follows from a state. What it decides changes the state as the events of its commands will, so that
// a decision sees those before it.
type decision struct {
	*state
	*round

	ended bool // whether the run has ended, or the instance of a body
	// stopping is why an instance of a body must end; nil if it need not.
	stopping *progress
	// result is what an instance that has ended comes to.
	result progress
}

// round is what a decision has in common with those of the instances of bodies.
type round struct {
	commands []any
	made     int // bytes of values, up to [maxMade]
	stopped  func() error
	// decoded has the variables that stay as they are in a decision, by their names, and the steps that have ended.
	decoded map[any]any
	// more is set if there is more to decide than a decision may have.
	more bool
}

func (t *decision) send(command any) { t.commands = append(t.commands, command) }

// decide goes through the steps, in the order of the document, until nothing follows any more.
func (t *decision) decide() {
	if t.refuse() {
		return
	}
	if t.timeout > 0 && !t.timed {
		t.send(wait{Type: "wait", ID: timeoutID, For: duration(t.timeout)})
	}
	t.settle()
	t.continueLater()
}

// settle goes through the steps until nothing follows any more.
func (t *decision) settle() {
	for moved := true; moved && !t.ended && !t.isFull() && t.stopped() == nil; {
		failed, failing := t.failure()
		switch {
		case failing:
			moved = t.fail(failed)
		case t.isReached():
			moved = t.finishReached()
		default:
			moved = t.advance()
		}
	}
	if !t.ended {
		t.closeAll()
	}
}

// refuse fails a run at its start if its input does not fit. Once something has begun, the input did fit.
func (t *decision) refuse() bool {
	if t.begun {
		return false
	}
	if t.unreadable != nil {
		t.send(fail{"fail", contract.Failure{Message: "the input: " + t.unreadable.Message, Code: codeInput}})
		t.ended = true
		return true
	}
	err := t.CheckInput(t.input, t.stopped)
	if err == nil {
		return false
	}
	f := contract.Failure{Message: "the input does not fit: " + err.Error(), Code: codeInput}
	if violations := (schema.Violations)(nil); errors.As(err, &violations) {
		f.Details = mustJSON(violations.Details())
	}
	t.send(fail{"fail", f})
	t.ended = true
	return true
}

// advance begins or skips all steps that can, and ends the run if nothing is left. It reports whether it has decided
// anything.
func (t *decision) advance() (moved bool) {
	if t.completesEarly() {
		return true
	}
	open := false
	for i := range t.Program.steps {
		if t.isFull() {
			return false
		}
		if t.steps[i].status == statusNone && t.consider(i) || t.isDriven(i) && t.drive(i) {
			moved = true
		}
		if t.ended {
			return true
		}
		if t.steps[i].status == statusOpen {
			t.limit(i, &t.Program.steps[i].action)
		}
		open = open || !t.steps[i].status.ended()
	}
	if !moved && !open {
		return t.complete(t.output())
	}
	return moved
}

// completesEarly ends the run if a catch says so.
func (t *decision) completesEarly() bool {
	for i := range t.Program.steps {
		if c := t.catchOf(i); c == nil || c.then != thenComplete {
			continue
		}
		if p := t.outcome(i); p.status == statusCompleted {
			return t.complete(p.output, nil)
		}
	}
	return false
}

// start begins a step, unless its condition is false.
func (t *decision) start(i int) {
	when := t.Program.steps[i].when
	if when == nil {
		t.begin(i)
		return
	}
	is, err := when.isTrue(t.scope(i, placeStep))
	switch {
	case err != nil:
		t.record(i, expressionFailed("when", err))
	case is:
		t.begin(i)
	default:
		t.skip(i, "when is false")
	}
}

// catchOf returns the catch for the failure of a step, or nil.
func (s *state) catchOf(i int) *catch {
	if s.steps[i].status != statusFailed {
		return nil
	}
	list := s.Program.steps[i].catches
	at := slices.IndexFunc(list, func(c catch) bool { return c.fits(s.steps[i].code) })
	if at < 0 {
		return nil
	}
	return &list[at]
}

// outcome returns what has become of a step for those who need it. If a catch leads from its failure to another step,
// that one stands for it.
func (s *state) outcome(i int) progress {
	p, c := s.steps[i], s.catchOf(i)
	p.step = s.Program.steps[i].id
	switch {
	case c == nil:
		return p
	case c.to == 0:
		return progress{status: statusCompleted, output: orNull(nil), seq: p.seq}
	}
	stands := s.outcome(c.to - 1)
	switch {
	case !stands.status.ended():
		return progress{status: statusOpen}
	case stands.status == statusFailed:
		return stands
	case c.then == thenFail:
		return progress{status: statusFailed, error: p.error, code: p.code, step: p.step, seq: p.seq}
	default:
		return progress{status: statusCompleted, output: orNull(stands.output), seq: stands.seq}
	}
}

// failure returns the first failure that ends the run, if there is one.
func (t *decision) failure() (first progress, failing bool) {
	switch {
	case t.stopping != nil:
		return *t.stopping, true
	case t.asked && t.up == nil:
		return progress{}, true
	}
	if first, failing = t.failed(); t.overdue != nil && t.up == nil && (!failing || t.overdue.seq < first.seq) {
		return *t.overdue, true
	}
	return first, failing
}

// failed returns the first failure of a step, or of a goal, that ends the run, if there is one.
func (t *decision) failed() (first progress, failing bool) {
	if len(t.goals) > 0 {
		return t.goalMissed()
	}
	for i := range t.Program.steps {
		if t.Program.steps[i].target != 0 {
			continue // it counts for the step that it stands for
		}
		if p := t.outcome(i); p.status == statusFailed && (!failing || p.seq < first.seq) {
			first, failing = p, true
		}
	}
	return first, failing
}

// begin begins a step.
func (t *decision) begin(i int) {
	s := &t.Program.steps[i]
	a := &s.action
	where := t.scope(i, placeStep)
	if a.kind.isWork() || a.kind == kindStart {
		command, err := t.commandOf(s.id, a, where)
		if err != nil {
			t.record(i, expressionFailed("input", err))
			return
		}
		t.send(command)
		t.steps[i].status = statusOpen
		return
	}
	input, err := t.inputOf(a, where)
	if err != nil {
		t.record(i, a.failed(expressionFailed("input", err)))
		return
	}
	switch a.kind {
	case kindEmit:
		t.emit(i, a, input)
	case kindRespond:
		t.respond(i, a, where)
	case kindHook, kindApproval:
		t.openOther(i, a, where)
	case kindWait:
		t.wait(i, a, where)
	case kindSignal:
		t.openHook(i, a, where)
	case kindSet:
		t.set(i, a, input)
	case kindComplete:
		t.complete(input, nil)
	case kindFail:
		t.failStep(i, a, where)
	case kindMap, kindLoop, kindPlan:
		t.beginMany(i)
	default: // it has begun above
	}
}

// set ends a step with a value, if it fits.
func (t *decision) set(i int, a *action, value json.RawMessage) {
	if err := a.schema.Check(value, t.stopped); err != nil {
		t.record(i, *failedAs(codeSchema, "the value does not fit: %v", err))
		return
	}
	id := t.Program.steps[i].id
	t.send(recordStep{Type: "recordStep", ID: id, Name: id, Output: value})
	t.steps[i] = progress{status: statusCompleted, output: value, seq: t.next()}
}

// failed returns a failure with the code that the document has for it, if it has one.
func (a *action) failed(f contract.Failure) contract.Failure {
	if a.kind == kindSet {
		f.Code = cmp.Or(a.code, f.Code)
	}
	return f
}

// inputOf returns the input of a step: the run's unless it says otherwise. Undoing a step gets all that is known of it.
func (t *decision) inputOf(a *action, where *stepScope) (json.RawMessage, error) {
	switch {
	case a.input != nil:
		return a.input.json(where)
	case where.place == placeUndo:
		value := where.value(varUndo, nil)
		return value, where.spend(len(value))
	case a.kind == kindCall || a.kind == kindFlow || a.kind == kindStart:
		input := t.given()
		return input, where.spend(len(input))
	default:
		return nil, nil
	}
}

// commandOf returns the command that calls a function, starts a child or another run, or makes a request.
func (t *decision) commandOf(id string, a *action, where *stepScope) (any, error) {
	if a.kind == kindHTTP {
		return t.request(id, a, where)
	}
	input, err := t.inputOf(a, where)
	if err != nil {
		return nil, err
	}
	if where.place == placeStep {
		input = t.asPlanned(input)
	}
	if a.kind == kindCall {
		command, err := work(id, a, where)
		command.Name, command.Input, command.Deployment = a.name, input, a.deployment
		return command, err
	}
	command := startChild{
		Type: "startChild", ID: id, Workflow: a.name, Input: input, Timeout: duration(a.timeout),
		Deployment: cmp.Or(a.deployment, contract.Latest),
	}
	if a.kind == kindStart {
		command.Type, command.Delay = "startRun", duration(a.delay)
	}
	if command.Attributes, err = a.attributesOf(where); err == nil {
		command.Key, err = a.keyOf(where)
	}
	return command, err
}

func (t *decision) wait(i int, a *action, where *stepScope) {
	command := wait{Type: "wait", ID: t.Program.steps[i].id, For: duration(a.pause)}
	if a.until != nil {
		until, err := timeOf(a.until, where)
		if err != nil {
			t.record(i, expressionFailed("until", err))
			return
		}
		command.Until = &until
	}
	t.send(command)
	t.steps[i].status = statusOpen
}

// timeOf evaluates a template to a time.
func timeOf(v *template, where *stepScope) (at time.Time, err error) {
	text, err := v.json(where)
	var until *time.Time
	if err == nil {
		err = json.Unmarshal(text, &until)
	}
	switch {
	case err != nil:
		return at, err
	case until == nil:
		return at, errors.New("it is null; want a time")
	case until.Before(time.Unix(0, 0)) || until.After(where.now().Add(maxDuration)):
		return at, fmt.Errorf("%s is before 1970, or more than ten years ahead", until.Format(time.RFC3339))
	}
	return *until, nil
}

// closeAll closes what the steps that have ended do not need any more. It reports whether this decision has space for
// all.
func (t *decision) closeAll() bool {
	for i := range t.Program.steps {
		if !t.steps[i].status.ended() || !t.hooks[i] && !t.limits[i] {
			continue
		}
		if t.isAtLimit() {
			return false
		}
		t.close(i)
	}
	return true
}

// close closes what a step that has ended does not need any more.
func (t *decision) close(i int) {
	id := t.Program.steps[i].id
	if t.hooks[i] {
		t.send(partOf{"closeHook", id})
		t.hooks[i] = false
	}
	if t.limits[i] {
		t.send(partOf{"cancelWait", id + TimeSuffix})
		t.limits[i] = false
	}
}

func (t *decision) skip(i int, why string) {
	id := t.Program.steps[i].id
	t.send(recordStep{Type: "recordStep", ID: id, Name: id, Skipped: why})
	t.steps[i] = progress{status: statusSkipped, output: orNull(nil), why: why}
}

// record records that a step has failed here.
func (t *decision) record(i int, f contract.Failure) {
	f = accepted(f)
	id := t.Program.steps[i].id
	t.send(recordStep{Type: "recordStep", ID: id, Name: id, Error: &f})
	t.steps[i] = failedWith(f, t.next())
}

// accepted returns a failure that the log accepts: with a message, and a code only if it can be one.
func accepted(f contract.Failure) contract.Failure {
	if f.Message == "" {
		f.Message = "it failed without a message"
	}
	if f.Code != "" && entities.ValidateName("code", f.Code) != nil {
		f.Code = ""
	}
	return f
}

// next returns the position of the next event, for the order of failures in one decision.
func (t *decision) next() int64 {
	last := int64(0)
	if t.overdue != nil {
		last = t.overdue.seq
	}
	for _, p := range t.steps {
		last = max(last, p.seq)
	}
	return last + 1
}

func (t *decision) failStep(i int, a *action, where *stepScope) {
	text, err := a.message.json(where)
	if err != nil {
		t.record(i, expressionFailed("message", err))
		return
	}
	t.record(i, contract.Failure{Message: plain(text), Code: a.code})
}

// plain returns a text without its quotes, and any other value as JSON.
func plain(value json.RawMessage) string {
	var text string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// complete ends the run with an output, or has it fail like any other failure if there is none. It reports whether it
// has decided anything that may lead to more.
func (t *decision) complete(output json.RawMessage, err error) (moved bool) {
	switch {
	case err != nil:
		return t.fail(failedWith(expressionFailed("output", err), t.next()))
	case t.up != nil:
		t.finish(progress{status: statusCompleted, output: output, seq: t.next()})
	default:
		t.send(complete{"complete", output})
		t.ended = true
	}
	return true
}

// output returns the output of a run whose steps have all ended: by default, an object of the outputs that no other
// step needs.
func (t *decision) output() (json.RawMessage, error) {
	switch {
	case t.single:
		return t.outcome(0).output, nil
	case t.Program.output != nil:
		return t.Program.output.json(t.scope(0, placeOutput))
	}
	text := []byte{'{'}
	for i := range t.Program.steps {
		s := &t.Program.steps[i]
		if len(s.wantedBy) > 0 || s.target != 0 {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(appendText(text, s.name), ':'), orNull(t.outcome(i).output)...)
		if len(text) >= MaxPayload {
			return nil, errTooMuchOutput
		}
	}
	return append(text, '}'), nil
}

var errTooMuchOutput = errors.New("the outputs of the steps that no other step needs are larger than " +
	strconv.Itoa(MaxPayload>>20) + " MiB together: say with \"output\" what the run answers with")
