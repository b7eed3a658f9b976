package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/condition"
)

// status is how far a step is.
type status string

const (
	statusNone      status = ""
	statusOpen      status = "open"
	statusCompleted status = "completed"
	statusFailed    status = "failed"
	statusSkipped   status = "skipped"
)

func (s status) ended() bool { return s != statusNone && s != statusOpen }

// progress is how far one step of a run is, or the undoing of one.
type progress struct {
	status status
	output json.RawMessage // of a completed step
	error  json.RawMessage // of a failed one, as [contract.Failure]
	code   string          // of the error
	step   string          // the ID of the step whose failure this is, if it is what has become of one
	why    string          // the reason for which it was skipped
	// seq orders the ends of steps.
	seq int64
	// inFlight is set while an attempt has no result, pausing while the next one has not begun, and uncertain once the
	// result of an earlier one was lost. Asked is set once a child is asked to cancel.
	inFlight, pausing, uncertain, asked bool
}

// history is what the log of a run says about the run itself.
type history struct {
	run   contract.Run
	input json.RawMessage
	// unreadable is why the input cannot be read; nil if it can.
	unreadable *contract.Failure

	at    time.Time // the log's clock
	seq   int64     // of the last event
	bytes int64     // bytes of values and instances
	begun bool      // whether anything has been decided
	asked bool      // whether the run is asked to cancel
	timed bool      // whether the wait that limits the run's time has begun
	// overdue is the failure of a run whose time is over; nil before.
	overdue *progress
	// continuations counts the decisions that were too long, and touched is what the last events were about.
	continuations int
	touched       touched
}

// state is what the log of a run says, by the steps of its program, or of an instance of a body.
type state struct {
	*Program
	*history
	frame

	steps []progress
	undos []progress
	// inputs are those of the steps that can be undone.
	inputs []json.RawMessage
	// hooks and limits say which signals, hooks and approvals have a hook that is open, and a wait that limits their time.
	hooks, limits []bool
	// votes are those of approvals.
	votes map[int]*approval.Tally
	// groups are the instances of the bodies of steps that have one.
	groups []*group
}

// TimeSuffix follows the ID of a step in the ID of the wait that limits the time of a signal, a hook or an approval.
const TimeSuffix = "~within"

// undoSuffix follows the ID of a step in the ID of the step that undoes it, and cancelSuffix in that of the step that
// records that a child is asked to cancel.
const (
	undoSuffix   = "~undo"
	cancelSuffix = "~cancel"
)

// timeoutID is the ID of the wait that limits the time of a run.
const timeoutID = "~timeout"

// ErrLog reports a log that this program cannot have produced.
var ErrLog = errors.New("the log is not one of this flow")

// ErrOtherBuild reports a run that was started with another document, in the database that it was exported from.
var ErrOtherBuild = fmt.Errorf("the version has another document in this database than where the run was started: %w",
	ErrLog)

// newState returns the state before anything has happened.
func newState(p *Program, h *history, f frame) *state {
	n := len(p.steps)
	return &state{
		Program: p, history: h, frame: f, steps: make([]progress, n), undos: make([]progress, n),
		inputs: make([]json.RawMessage, n), hooks: make([]bool, n), limits: make([]bool, n),
		votes: map[int]*approval.Tally{}, groups: make([]*group, n),
	}
}

// apply folds one event.
func (s *state) apply(e Event) error {
	s.at, s.seq = e.CreatedAt, e.Seq
	switch e.Type {
	case entities.EventRunCreated:
		s.input, s.unreadable = e.Payload, e.Unreadable()
		return nil
	case entities.EventCancelRequested:
		s.asked = true
		return nil
	default:
	}
	if e.CorrelationID == "" || e.Type == entities.EventAttrSet {
		return nil
	}
	s.begun = true
	if e.CorrelationID == timeoutID {
		s.applyTimeout(e)
		return nil
	}
	if s.isContinuation(e) {
		return nil
	}
	return s.applyAt(e.CorrelationID, e)
}

// applyTimeout folds an event of the wait that limits the time of the run.
func (s *state) applyTimeout(e Event) {
	s.timed = true
	if e.Type == entities.EventWaitCompleted {
		late := contract.Failure{
			Message: fmt.Sprintf("the run did not end within %s", s.timeout), Code: contract.CodeTimeout,
		}
		s.overdue = new(failedWith(late, e.Seq))
	}
}

// applyAt folds an event of what an ID is about. The ID is without the prefix of the state.
func (s *state) applyAt(id string, e Event) error {
	if i, rest, ok := s.inBody(id); ok {
		return s.applyInBody(i, rest, e)
	}
	i, list, suffix, err := s.find(id)
	if err != nil {
		return err
	}
	switch suffix {
	case TimeSuffix:
		s.applyLimit(i, e)
		return nil
	case cancelSuffix:
		s.steps[i].asked = true
		return nil
	}
	if err := s.applyStep(&list[i], i, e); err != nil {
		return err
	}
	if g := s.groups[i]; g != nil && s.steps[i].status.ended() {
		s.bytes -= g.release()
	}
	return nil
}

// find returns the step that an ID is about.
func (s *state) find(id string) (i int, list []progress, suffix string, err error) {
	list = s.steps
	for _, suffix = range []string{undoSuffix, TimeSuffix, cancelSuffix, ""} {
		if n := len(id) - len(suffix); suffix != "" && n >= 0 && id[n:] == suffix {
			id = id[:n]
			break
		}
	}
	if suffix == undoSuffix {
		list = s.undos
	}
	i, ok := s.byID[id]
	if !ok {
		return 0, nil, "", fmt.Errorf("there is no step %q: %w", id, ErrLog)
	}
	return i, list, suffix, nil
}

// applyLimit folds an event of the wait that limits the time of a signal.
func (s *state) applyLimit(i int, e Event) {
	s.limits[i] = e.Type == entities.EventWaitCreated
	if e.Type == entities.EventWaitCompleted && s.steps[i].status == statusOpen {
		s.steps[i] = s.late(i, e.Seq)
	}
}

func failedWith(f contract.Failure, seq int64) progress {
	return progress{status: statusFailed, error: f.Text(), code: f.Code, seq: seq}
}

// applyStep folds an event of a step, or of what undoes one.
func (s *state) applyStep(p *progress, i int, e Event) error {
	s.note(p, i, e)
	if p.status.ended() {
		return nil
	}
	uncertain := p.uncertain
	defer func() { p.uncertain = p.uncertain || uncertain }()
	switch e.Type {
	case entities.EventStepStarted:
		p.inFlight, p.pausing, p.uncertain = true, false, p.inFlight
	case entities.EventStepRetrying:
		f, err := failureOf(e)
		p.inFlight, p.pausing, p.uncertain = false, true, unknownOutcome[f.Code]
		return err
	case entities.EventStepCreated, entities.EventWaitCreated, entities.EventHookCreated:
		p.status = statusOpen
	case entities.EventHookReceived:
		s.bytes += int64(len(e.Payload))
		if f := e.Unreadable(); f != nil {
			*p = failedWith(*f, e.Seq)
		} else {
			*p = s.received(*p, i, e)
		}
	case entities.EventStepCompleted, entities.EventWaitCompleted:
		*p = completedBy(e)
		s.bytes += int64(len(e.Payload))
	case entities.EventStepFailed:
		f, err := failureOf(e)
		if err != nil {
			return err
		}
		*p = progress{status: statusFailed, error: e.Payload, code: f.Code, seq: e.Seq}
		s.bytes += int64(len(e.Payload))
	case entities.EventHookConflict:
		*p = failedWith(contract.Failure{Message: "another hook has the token", Code: codeHookConflict}, e.Seq)
	case entities.EventWaitCancelled, entities.EventHookDisposed:
		*p = failedWith(contract.Failure{Message: "nobody waits for it any more", Code: contract.CodeCancelled}, e.Seq)
	default:
	}
	return nil
}

// completedBy returns what a step is that has completed. One whose output cannot be read has failed.
func completedBy(e Event) progress {
	if f := e.Unreadable(); f != nil {
		return failedWith(*f, e.Seq)
	}
	if e.Data.Skipped != "" {
		return progress{status: statusSkipped, why: e.Data.Skipped, output: orNull(e.Payload), seq: e.Seq}
	}
	return progress{status: statusCompleted, output: orNull(e.Payload), seq: e.Seq}
}

// note keeps what is needed of a step beside its progress: whether its hook is open, and its input if it can be undone.
func (s *state) note(p *progress, i int, e Event) {
	switch e.Type {
	case entities.EventHookCreated:
		s.hooks[i] = true
	case entities.EventHookDisposed, entities.EventHookConflict:
		s.hooks[i] = false
	case entities.EventStepCreated:
		if s.Program.steps[i].undo != nil && p == &s.steps[i] {
			s.inputs[i] = e.Payload
			s.bytes += int64(len(e.Payload))
		}
	default:
	}
}

// failureOf returns the failure in an event.
func failureOf(e Event) (f contract.Failure, err error) {
	if err = json.Unmarshal(orNull(e.Payload), &f); err != nil {
		err = fmt.Errorf("the failure of %s: %w", e.CorrelationID, err)
	}
	return f, err
}

func orNull(text json.RawMessage) json.RawMessage {
	if text == nil {
		return json.RawMessage("null")
	}
	return text
}

// stepScope has the values that the expressions of a step can read.
type stepScope struct {
	*decision

	step  int
	place place
}

func (t *decision) scope(i int, where place) *stepScope { return &stepScope{t, i, where} }

// now is the time of the newest event that the decision has seen.
func (s *stepScope) now() time.Time { return s.at }

// maxMade limits the bytes of the values that a decision makes: inputs, outputs and texts.
const maxMade = 16 << 20

var errTooMuch = errors.New(
	"the values of this decision are larger than " + fmt.Sprint(maxMade>>20) + " MiB together: hand on references instead")

// decode returns a variable for CEL, or the error of a context that has ended.
func (s *stepScope) decode(name string, steps []string) (any, error) {
	if err := s.stopped(); err != nil {
		return nil, err
	}
	if name == varSteps {
		return s.decodeSteps(steps)
	}
	if value, ok := s.decoded[name]; ok {
		return value, nil
	}
	value, err := condition.Decode(s.value(name, steps))
	if err == nil && (name == varInput || name == varRun) {
		s.decoded[name] = value
	}
	return value, err
}

func (s *stepScope) left() int { return maxMade - s.made }

func (s *stepScope) spend(bytes int) error {
	if bytes > s.left() {
		return errTooMuch
	}
	s.made += bytes
	return nil
}

func (s *stepScope) value(name string, ids []string) json.RawMessage {
	switch name {
	case varInput:
		return s.input
	case varSteps:
		return s.stepValues(ids)
	case varRun:
		return mustJSON(map[string]any{
			"id": s.run.ID, "key": s.run.Key, "workflow": s.run.Workflow, "createdAt": s.run.CreatedAt,
			"attributes": s.run.Attributes,
		})
	case varError:
		return s.caught()
	case varItem, varIndex, varLoop:
		return s.bodyValue(name)
	case varUndo:
		return s.undoValue()
	}
	return orNull(nil)
}

// stepKey is a step of a state.
type stepKey struct {
	in *state
	i  int
}

// decodeSteps returns the steps that are named for CEL. Those that have ended are decoded once in a decision.
func (s *stepScope) decodeSteps(ids []string) (any, error) {
	steps := make(map[string]any, len(ids))
	for _, id := range ids {
		in, i := s.lookup(id)
		value, ok := s.decoded[stepKey{in, i}]
		if !ok {
			var err error
			if value, err = condition.Decode(in.appendStep(nil, i)); err != nil {
				return nil, err
			}
		}
		if in.steps[i].status.ended() && in.outcome(i).status.ended() {
			s.decoded[stepKey{in, i}] = value
		}
		steps[id] = value
	}
	return steps, nil
}

// stepValues returns an object with the steps that are named. The outputs are the bytes of the log.
func (s *stepScope) stepValues(ids []string) json.RawMessage {
	text := []byte{'{'}
	for n, id := range ids {
		if n > 0 {
			text = append(text, ',')
		}
		in, i := s.lookup(id)
		text = in.appendStep(append(appendText(text, id), ':'), i)
	}
	return append(text, '}')
}

// appendStep appends what expressions read of a step.
func (s *state) appendStep(text []byte, i int) []byte {
	p := s.steps[i]
	text = append(append(text, `{"output":`...), orNull(s.outcome(i).output)...)
	text = append(append(text, `,"error":`...), orNull(p.error)...)
	text = appendText(append(text, `,"status":`...), string(p.status))
	text = append(append(text, `,"skipped":`...), mustJSON(p.status == statusSkipped)...)
	text = append(append(text, `,"failed":`...), mustJSON(p.status == statusFailed)...)
	text = strconv.AppendInt(append(text, `,"order":`...), p.seq, 10)
	if g := s.groups[i]; g != nil && g.mapping != nil {
		text = append(append(text, `,"failures":`...), g.failures()...)
	}
	return append(text, '}')
}

// caught returns the failure that has led to the step. The call of a planner has that of the plan.
func (s *stepScope) caught() json.RawMessage {
	in, i := s.state, s.step
	for in.Program.steps[i].target == 0 && in.up != nil {
		in, i = in.up, in.of
	}
	return orNull(in.steps[in.Program.steps[i].target-1].error)
}

// undoValue returns what is known of a step that is undone. Its output is null if nobody knows whether it was carried
// out.
func (s *stepScope) undoValue() json.RawMessage {
	p := s.steps[s.step]
	known := "completed"
	if p.status != statusCompleted {
		known = "unknown"
	}
	return mustJSON(map[string]json.RawMessage{
		"input": orNull(s.inputs[s.step]), "output": orNull(p.output), "error": orNull(p.error),
		"outcome": mustJSON(known),
	})
}
