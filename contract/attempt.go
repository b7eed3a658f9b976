package contract

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// maxRetryAfter is the longest pause between two attempts that a function can request.
const maxRetryAfter = 24 * time.Hour

// execution describes an attempt at a step that the function made itself.
type execution struct {
	StartedAt *time.Time `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt"`
}

// recordStep records a step that the function executed itself, or an attempt at it that is to be repeated.
type recordStep struct {
	head
	execution

	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Error  *Failure        `json:"error"`
	// Skipped is why the step was not executed. It then completes without an output.
	Skipped string `json:"skipped"`
	// Store is what the step has written to the run's store. It is written with the output, or not at all.
	Store map[string]json.RawMessage `json:"store"`
	// Seen is the position of the last event that the code had seen when it got the result.
	Seen int64 `json:"seen"`
	// RetryAfter keeps the step open after the error: the run is invoked again after this time.
	RetryAfter *duration `json:"retryAfter"`
	At         place     `json:"at"`
	Undo       place     `json:"undo"`
}

// check checks that the fields fit together.
func (c *recordStep) check() error {
	switch {
	case c.Skipped != "" && (c.Output != nil || c.Error != nil):
		return entities.Invalid("a step that was skipped has neither an output nor an error")
	case c.Output != nil && c.Error != nil:
		return entities.Invalid("a step has either an output or an error, not both")
	case c.RetryAfter != nil && c.Error == nil:
		return entities.Invalid("retryAfter is for a step with an error")
	case len(c.Store) > 0 && c.Error != nil:
		return entities.Invalid("store is for a step with an output: an attempt that failed writes nothing")
	case c.Seen < 0:
		return entities.Invalid("seen %d is not the position of an event", c.Seen)
	case c.Skipped != "":
		return entities.ValidateName("skipped", c.Skipped)
	default:
		return nil
	}
}

func (c *recordStep) requests(planner Planner) ([]eventlog.Request, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	name := cmp.Or(c.Name, c.ID)
	created := eventlog.Request{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input,
		Data: entities.EventData{StepName: name, At: string(c.At), Undo: string(c.Undo)},
	}
	ended := eventlog.Request{
		Type: entities.EventStepCompleted, CorrelationID: c.ID, Payload: orNull(c.Output), Inline: true,
		Data: entities.EventData{
			StepName: name, Seen: c.Seen, StartedAt: c.StartedAt, EndedAt: c.EndedAt, Skipped: c.Skipped,
		},
	}
	if c.Error != nil {
		ended.Type, ended.Payload, ended.Data.ErrorCode = entities.EventStepFailed, c.Error.Text(), c.Error.Code
	}
	if c.RetryAfter != nil {
		planner.retry(&ended, time.Duration(*c.RetryAfter))
	}
	if len(c.Store) == 0 {
		return []eventlog.Request{created, ended}, nil
	}
	values, err := kv.Encode(c.Store)
	written := eventlog.Request{
		Type: entities.EventStoreSet, CorrelationID: c.ID, Payload: values, Data: entities.EventData{StepName: name},
	}
	return []eventlog.Request{created, written, ended}, err
}

// retry makes the result of a step one that is to be repeated after the pause. Its work then has the run invoked.
func (planner Planner) retry(r *eventlog.Request, pause time.Duration) {
	pause = min(pause, maxRetryAfter)
	at := planner.Now.Add(pause)
	r.Type, r.Data.RetryAfter = entities.EventStepRetrying, &at
	r.Messages = []message.Message{{ // without a deployment: earlier versions of the server then call no function for it
		Project: planner.Run.Project, RunID: planner.Run.ID, Topic: r.Data.StepName,
		Work: message.WorkStep, Subject: r.CorrelationID, Delay: pause,
	}}
}

// firstAttempt is the first attempt at a step, which the function made itself. It failed.
type firstAttempt struct {
	execution

	Error      *Failure  `json:"error"`
	RetryAfter *duration `json:"retryAfter"`
}

// attempt returns the attempt for the log: it counts as the first of the step's policy.
func (a *firstAttempt) attempt(now time.Time, spec entities.StepSpec) (*eventlog.FirstAttempt, error) {
	if a.Error == nil || a.Error.Message == "" {
		return nil, entities.Invalid(`firstAttempt: want {"error": {"message": "…"}}`)
	}
	first := eventlog.FirstAttempt{Payload: a.Error.Text(), Data: entities.EventData{
		ErrorCode: a.Error.Code, StartedAt: a.StartedAt, EndedAt: a.EndedAt,
	}}
	if spec.MaxAttempts > 1 {
		pause := min(max(spec.Backoff(1), or(a.RetryAfter, 0)), maxRetryAfter)
		at := now.Add(spec.Within(pause, now))
		first.Data.RetryAfter = &at
	}
	return &first, nil
}
