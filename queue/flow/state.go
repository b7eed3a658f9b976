package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
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
	// seq orders the ends of steps.
	seq int64
	// tried is set while an attempt has no result, and doubtful once nobody knows what an earlier one has done.
	tried, doubtful bool
}

// history is what the log of a run says about the run itself.
type history struct {
	run   contract.Run
	input json.RawMessage
	at    time.Time // the log's clock
	seq   int64     // of the last event
	held  int64     // bytes of values and instances
	begun bool      // whether anything has been decided
	asked bool      // whether the run is asked to cancel
	// turns counts the turns that were too long, and news is what the last events were about.
	turns int
	news  news
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
	// hooks and limits say which signals have a hook that is open, and a wait that limits their time.
	hooks, limits []bool
	// groups are the instances of the bodies of steps that have one.
	groups []*group
}

// undoSuffix follows the ID of a step in the ID of the step that undoes it, and timeSuffix in that of the wait that
// limits the time of a signal.
const (
	undoSuffix = "~undo"
	timeSuffix = "~within"
)

// ErrLog reports a log that this program cannot have produced.
var ErrLog = errors.New("the log is not one of this flow")

// newState returns the state before anything has happened.
func newState(p *Program, h *history, f frame) *state {
	n := len(p.steps)
	return &state{
		Program: p, history: h, frame: f, steps: make([]progress, n), undos: make([]progress, n),
		inputs: make([]json.RawMessage, n), hooks: make([]bool, n), limits: make([]bool, n), groups: make([]*group, n),
	}
}

// apply folds one event.
func (s *state) apply(e Event) error {
	s.at, s.seq = e.CreatedAt, e.Seq
	switch e.Type {
	case entities.EventRunCreated:
		s.input = e.Payload
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
	if s.isContinuation(e) {
		return nil
	}
	return s.applyAt(e.CorrelationID, e)
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
	if suffix == timeSuffix {
		s.applyLimit(i, e)
		return nil
	}
	if err := s.applyStep(&list[i], i, e); err != nil {
		return err
	}
	if g := s.groups[i]; g != nil && s.steps[i].status.ended() {
		s.held -= g.release()
	}
	return nil
}

// find returns the step that an ID is about.
func (s *state) find(id string) (i int, list []progress, suffix string, err error) {
	list = s.steps
	for _, suffix = range []string{undoSuffix, timeSuffix, ""} {
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
		s.steps[i] = failedWith(contract.Failure{Message: "no signal came in time", Code: codeWaitTimeout}, e.Seq)
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
	doubtful := p.doubtful
	defer func() { p.doubtful = p.doubtful || doubtful }()
	switch e.Type {
	case entities.EventStepStarted:
		p.tried, p.doubtful = true, p.tried
	case entities.EventStepRetrying:
		f, err := failureOf(e)
		p.tried, p.doubtful = false, unknownOutcome[f.Code]
		return err
	case entities.EventStepCreated, entities.EventWaitCreated, entities.EventHookCreated:
		p.status = statusOpen
	case entities.EventStepCompleted, entities.EventWaitCompleted, entities.EventHookReceived:
		*p = progress{status: statusCompleted, output: orNull(e.Payload), seq: e.Seq}
		s.held += int64(len(e.Payload))
		if e.Data.Skipped != "" {
			p.status = statusSkipped
		}
	case entities.EventStepFailed:
		f, err := failureOf(e)
		if err != nil {
			return err
		}
		*p = progress{status: statusFailed, error: e.Payload, code: f.Code, seq: e.Seq}
	case entities.EventWaitCancelled, entities.EventHookDisposed, entities.EventHookConflict:
		*p = failedWith(contract.Failure{Message: "nobody waits for it any more", Code: contract.CodeCancelled}, e.Seq)
	default:
	}
	return nil
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
			s.held += int64(len(e.Payload))
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
