package flow

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

// fail does what is left of a run that fails, or is asked to cancel: it wraps up, undoes, and ends the run. It reports
// whether it has decided anything that may lead to more.
func (t *decision) fail(why progress) (moved bool) {
	done, moved := t.wrapUp()
	if !done {
		return moved
	}
	done, moved = t.undo()
	if done {
		t.end(why)
	}
	return moved
}

// wrapUp runs the steps that must run in any case, and ends those that are open. It reports whether nothing is under
// way any more, and otherwise whether it has decided anything that may lead to more.
func (t *decision) wrapUp() (done, moved bool) {
	open := false
	for i := range t.Program.steps {
		if t.isFull() {
			return false, false
		}
		switch {
		case t.steps[i].status == statusNone && t.runsAnyway(i):
			t.start(i)
			return false, true
		case t.isDriven(i):
			moved = t.driveOrStop(i) || moved
		case t.steps[i].status == statusOpen && t.isCancelled(i):
			moved = t.cancel(i) || moved // a step before this one may have waited for it
		}
		open = open || t.steps[i].status == statusOpen
	}
	return !open && !moved, moved
}

// runsAnyway reports whether a step that has not begun runs although the run is about to end: all that it needs has
// ended, or will not begin any more.
func (t *decision) runsAnyway(i int) bool {
	s := &t.Program.steps[i]
	if !s.isLast() {
		return false
	}
	for _, needed := range s.needs {
		if t.isAwaited(needed) {
			return false
		}
		if c := t.catchOf(needed); c != nil && c.to != 0 && t.isAwaited(c.to-1) {
			return false
		}
	}
	return true
}

// isLast reports whether the step runs in any case: when the run fails, too, or has reached its goals.
func (s *step) isLast() bool { return s.join == joinAlways && s.target == 0 }

// isAwaited reports whether a step of a run that is about to end is under way, or still begins.
func (t *decision) isAwaited(i int) bool {
	return t.steps[i].status == statusOpen || t.steps[i].status == statusNone && t.Program.steps[i].isLast()
}

// isCancelled reports whether a step that is open ends when the run is about to end. One that can be undone does so
// only between two attempts: while one is under way, nobody knows whether it is carried out.
func (t *decision) isCancelled(i int) bool {
	s := &t.Program.steps[i]
	return !t.drain && !s.isLast() && (s.undo == nil || t.steps[i].pausing)
}

// DefaultGrace is how long a flow may take to undo what it did once its time is over, or its parent cancels it, unless
// somebody says otherwise: long enough for calls that undo, with the default of attempts.
const DefaultGrace = time.Hour

// codeUndo means that a run was asked to cancel, and something could not be undone.
const codeUndo = "flow.undo"

// cancel ends a step that is open, or asks the child to end. It reports whether it has decided anything.
func (t *decision) cancel(i int) bool {
	s := &t.Program.steps[i]
	switch s.action.kind {
	case kindFlow: // its step ends with it, after it has undone what it did
		return t.cancelChild(i)
	case kindWait:
		t.send(partOf{"cancelWait", s.id})
	case kindSignal, kindHook, kindApproval: // its hook is closed with what belongs to it
	default:
		t.send(partOf{"cancelStep", s.id})
	}
	uncertain := t.steps[i].uncertain
	t.steps[i] = failedWith(contract.Failure{Message: "cancelled", Code: contract.CodeCancelled}, t.next())
	t.steps[i].uncertain = uncertain
	return true
}

// cancelChild asks a child to cancel, once: the log notes it, since it has no event for such a request.
func (t *decision) cancelChild(i int) bool {
	if t.steps[i].asked {
		return false
	}
	s := &t.Program.steps[i]
	t.send(cancelChild{"cancelStep", s.id, duration(s.action.grace)})
	t.send(recordStep{Type: "recordStep", ID: s.id + cancelSuffix, Name: s.id + cancelSuffix})
	t.steps[i].asked = true
	return true
}

// needsUndo reports whether a step has to be undone: it has completed, or nobody knows whether it was carried out.
func (s *state) needsUndo(i int) bool {
	p := s.steps[i]
	if s.groups[i] != nil {
		return p.status == statusCompleted && s.groups[i].isKept()
	}
	return s.Program.steps[i].undo != nil &&
		(p.status == statusCompleted || p.status == statusFailed && (unknownOutcome[p.code] || p.uncertain))
}

// unknownOutcome are the codes of failures after which a step may have been carried out.
var unknownOutcome = map[string]bool{
	contract.CodeTimeout: true, contract.CodeNoAnswer: true,
	// The step was carried out, and its output was refused.
	strictjson.CodeTooDeep: true, strictjson.CodeNumber: true, strictjson.CodeName: true,
	// Of HTTP steps: a proxy has answered, or the answer was too large.
	"http_408": true, "http_502": true, "http_504": true, "answer_too_large": true,
}

// undo undoes what has to be undone: a step after all that came after it, and what is independent at once. It reports
// whether all is done, and otherwise whether it has begun anything: that may have failed here, and so let more begin.
func (t *decision) undo() (done, moved bool) {
	done = true
	for i := range t.Program.steps {
		if !t.needsUndo(i) || t.undos[i].status.ended() {
			continue
		}
		done = false
		if t.isFull() || t.isAwaitedByUndo(i) {
			continue
		}
		switch {
		case t.groups[i] != nil:
			moved = t.undoStep(i) || moved
		case t.undos[i].status == statusNone:
			moved = t.beginUndo(i) || moved
		}
	}
	return done, moved
}

// isAwaitedByUndo reports whether a step that came after this one has to be undone first.
func (t *decision) isAwaitedByUndo(i int) bool {
	return slices.ContainsFunc(t.undoneBefore[i], func(later int) bool {
		return t.needsUndo(later) && !t.undos[later].status.ended()
	})
}

// beginUndo begins to undo a step, unless the values of this decision are too large already and something else is being
// undone: then a later decision begins it.
func (t *decision) beginUndo(i int) bool {
	s := &t.Program.steps[i]
	command, err := t.commandOf(s.id+undoSuffix, s.undo, t.scope(i, placeUndo))
	isOpen := func(p progress) bool { return p.status == statusOpen }
	if errors.Is(err, errTooMuch) && slices.ContainsFunc(t.undos, isOpen) {
		return false
	}
	if err != nil {
		f := expressionFailed("input", err)
		t.send(recordStep{Type: "recordStep", ID: s.id + undoSuffix, Name: s.id + undoSuffix, Error: &f})
		t.undos[i] = failedWith(f, 0)
		return true
	}
	t.send(command)
	t.undos[i].status = statusOpen
	return true
}

// end ends the run after everything that had to be undone.
func (t *decision) end(why progress) {
	if t.up != nil {
		t.finish(why)
		return
	}
	t.ended = true
	report := undoReport{Done: []string{}, Failed: []string{}}
	for i := range t.undos {
		switch t.undoOf(i) {
		case statusCompleted:
			report.Done = append(report.Done, t.Program.steps[i].id)
		case statusFailed:
			report.Failed = append(report.Failed, t.Program.steps[i].id)
		default: // it did not have to be undone
		}
	}
	var f contract.Failure
	switch {
	case t.asked && len(report.Failed) == 0:
		t.send(partOf{Type: "cancelled"})
		return
	case t.asked: // a run that is cancelled has no error that could name them
		f = *failedAs(codeUndo, "the run was asked to cancel, and not all could be undone")
	case json.Unmarshal(why.error, &f) != nil:
		f = contract.Failure{Message: string(why.error)}
	}
	details := runDetails{Of: f.Details, Step: why.step}
	if len(report.Done)+len(report.Failed) > 0 {
		details.Undo = &report
	}
	if details.Step != "" || details.Undo != nil {
		f.Details = mustJSON(details)
	}
	t.send(fail{"fail", accepted(f)})
}

// runDetails are the details of the error of a run that a step has failed, or that has undone something.
type runDetails struct {
	// Of are the details of the step's error.
	Of   json.RawMessage `json:"of,omitempty"`
	Step string          `json:"step,omitempty"`
	Undo *undoReport     `json:"undo,omitempty"`
}

// undoReport has the IDs of the steps of which something was undone, and of those of which something could not be.
type undoReport struct {
	Done   []string `json:"done"`
	Failed []string `json:"failed"`
}

// stop ends a step with a body: its open instances, then what has to be undone of the others, and then the step.
func (t *decision) stop(i int, why progress) (moved bool) {
	g := t.groups[i]
	id := t.Program.steps[i].id
	if g.pause {
		t.send(partOf{"cancelWait", id + "#" + strconv.Itoa(g.paused) + delaySuffix})
		g.pause = false
	}
	for _, n := range g.openInstances() {
		if t.isFull() {
			return moved
		}
		moved = t.move(i, n, &why) || moved
	}
	if g.plan != nil {
		return t.movePlan(i, &why) || moved
	}
	if g.open > 0 {
		return moved
	}
	done, undid := t.undoGroup(i)
	if done && !t.isFull() {
		t.record(i, failureIn(why))
		return true
	}
	return undid || moved
}

// undoStep undoes a step with a body.
func (t *decision) undoStep(i int) (moved bool) {
	done, moved := t.undoGroup(i)
	if done {
		t.undos[i].status = statusCompleted // unless it is faulty: see undoOf
	}
	return done || moved
}

// undoGroup undoes the instances of a body, as many at once as may be open.
func (t *decision) undoGroup(i int) (done, moved bool) {
	g := t.groups[i]
	if g.plan != nil && !g.plan.isUnneeded() {
		sub := t.enterPlan(i)
		return sub.undo()
	}
	active := 0
	for k := g.undone; k < g.begun; k++ {
		n := g.inUndo(k)
		if g.frame(n) == nil || g.result(n).status != statusCompleted {
			continue
		}
		if t.isFull() || active >= g.atOnce() {
			return false, moved
		}
		sub := t.enter(i, n)
		is, did := sub.undo()
		moved = moved || did
		if is {
			g.noteUndo(sub.state)
		} else {
			active++
		}
	}
	return active == 0, moved
}

// atOnce is how many instances may be open at once.
func (g *group) atOnce() int {
	if g.mapping == nil {
		return 1
	}
	return cmp.Or(g.window, defaultConcurrency)
}
