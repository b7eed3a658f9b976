package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/approval"
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

// state is what the log of a run says, by the steps of its program.
type state struct {
	*Program

	run   contract.Run
	input json.RawMessage
	at    time.Time // the log's clock
	steps []progress
	undos []progress
	// inputs are those of the steps that can be undone.
	inputs []json.RawMessage
	// hooks and limits say which signals, hooks and approvals have a hook that is open, and a wait that limits their time.
	hooks, limits []bool
	// votes are those of approvals.
	votes map[int]*approval.Tally
	begun bool // whether anything has been decided
	asked bool // whether the run is asked to cancel
}

// undoSuffix follows the ID of a step in the ID of the step that undoes it, and timeSuffix in that of the wait that
// limits the time of a signal.
const (
	undoSuffix = "~undo"
	timeSuffix = "~within"
)

// errLog reports a log that this program cannot have produced.
var errLog = errors.New("the log is not one of this flow")

// fold returns the state after a log.
func (p *Program) fold(c Call) (*state, error) {
	n := len(p.steps)
	s := &state{
		Program: p, run: c.Run, input: c.Run.Input, steps: make([]progress, n), undos: make([]progress, n),
		inputs: make([]json.RawMessage, n),
		hooks:  make([]bool, n), limits: make([]bool, n), votes: map[int]*approval.Tally{},
	}
	for _, e := range c.Events {
		if err := s.apply(e); err != nil {
			return nil, fmt.Errorf("event %d: %w", e.Seq, err)
		}
	}
	s.input = orNull(s.input)
	return s, nil
}

// apply folds one event.
func (s *state) apply(e Event) error {
	s.at = e.CreatedAt
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
	i, list, suffix, err := s.find(e.CorrelationID)
	if err != nil {
		return err
	}
	if suffix == timeSuffix {
		s.applyLimit(i, e)
		return nil
	}
	return s.applyStep(&list[i], i, e)
}

// find returns the step that an ID is about.
func (s *state) find(id string) (i int, list []progress, suffix string, err error) {
	list = s.steps
	for _, suffix = range []string{undoSuffix, timeSuffix, ""} {
		if n := len(id) - len(suffix); suffix != "" && n > 0 && id[n:] == suffix {
			id = id[:n]
			break
		}
	}
	if suffix == undoSuffix {
		list = s.undos
	}
	i, ok := s.byID[id]
	if !ok {
		return 0, nil, "", fmt.Errorf("there is no step %q: %w", id, errLog)
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
	case entities.EventHookReceived:
		*p = s.received(*p, i, e)
	case entities.EventStepCompleted, entities.EventWaitCompleted:
		*p = progress{status: statusCompleted, output: orNull(e.Payload), seq: e.Seq}
		if e.Data.Skipped != "" {
			p.status = statusSkipped
		}
	case entities.EventStepFailed:
		f, err := failureOf(e)
		if err != nil {
			return err
		}
		*p = progress{status: statusFailed, error: e.Payload, code: f.Code, seq: e.Seq}
	case entities.EventHookConflict:
		*p = failedWith(contract.Failure{Message: "another hook has the token", Code: codeHookConflict}, e.Seq)
	case entities.EventWaitCancelled, entities.EventHookDisposed:
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
