package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
)

const (
	// MaxSignal is the limit of a signal's data in bytes.
	MaxSignal = 1 << 20
	// MaxKeep is the longest time a signal may be kept for hooks that look back.
	MaxKeep = 30 * 24 * time.Hour
)

// emit sends a signal. It is a step that has completed: the signal is sent if the step is in the log, and once.
type emit struct {
	head

	ID     string          `json:"id"`
	Signal string          `json:"signal"`
	Data   json.RawMessage `json:"data"`
	// KeepFor is how long the signal is kept for hooks that look back.
	KeepFor *duration `json:"keepFor"`
	At      place     `json:"at"`
}

// Emitted is the body of the work that posts a signal.
type Emitted struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
	// Key makes the signal count once.
	Key  string        `json:"key"`
	Keep time.Duration `json:"keep"`
	// RootID and Depth are those of a run that the signal starts.
	RootID entities.RunID `json:"rootId"`
	Depth  int            `json:"depth"`
}

func (c *emit) requests(planner Planner) ([]eventlog.Request, error) {
	keep := or(c.KeepFor, 0)
	switch {
	case entities.ValidateName("signal", c.Signal) != nil:
		return nil, entities.ValidateName("signal", c.Signal)
	case len(c.Data) > MaxSignal:
		return nil, entities.Invalid("the data is %d bytes long; the limit is %d", len(c.Data), MaxSignal)
	case keep > MaxKeep:
		return nil, entities.Invalid("keepFor %s is more than %s", keep, MaxKeep)
	}
	place := sha256.Sum256([]byte(string(planner.Run.ID) + "/" + c.ID))
	root, depth := planner.Run.Descend()
	body, err := json.Marshal(Emitted{
		Name: c.Signal, Data: orNull(c.Data), Keep: keep, Key: "emit_" + hex.EncodeToString(place[:]),
		RootID: root, Depth: depth,
	})
	requests := atOnce(c.ID, c.Signal, c.Data, nil, c.At)
	// The message is not the run's, whose end would delete it.
	requests[1].Messages = []message.Message{{
		Project: planner.Run.Project, Topic: c.Signal, Work: message.WorkEmit, Subject: string(planner.Run.ID) + "/" + c.ID,
		Body: body,
	}}
	return requests, err
}

// atOnce returns the requests for a step that has completed as soon as it is there.
func atOnce(id, name string, input, output []byte, at place) []eventlog.Request {
	return []eventlog.Request{
		{
			Type: entities.EventStepCreated, CorrelationID: id, Payload: input,
			Data: entities.EventData{StepName: name, At: string(at)},
		},
		{
			Type: entities.EventStepCompleted, CorrelationID: id, Payload: orNull(output), Inline: true,
			Data: entities.EventData{StepName: name},
		},
	}
}

// StartRefused is why no run can begin, now or later: it is the failure of the step that would have started it.
type StartRefused Failure

func (e StartRefused) Error() string { return e.Message }

// requests returns the requests for the step, which fails as soon as it is there.
func (e StartRefused) requests(id, name string, input []byte, at place) []eventlog.Request {
	requests := atOnce(id, name, input, nil, at)
	failed := &requests[1]
	failed.Type, failed.Payload, failed.Data.ErrorCode = entities.EventStepFailed, Failure(e).Text(), e.Code
	return requests
}

// startRun starts a run that is no child: nobody waits for it, and it goes on when this run has ended. It is a step
// that has completed, with the run's ID in its output, or that of the run that has its key.
type startRun struct {
	head

	ID         string            `json:"id"`
	Workflow   string            `json:"workflow"`
	Input      json.RawMessage   `json:"input"`
	Deployment string            `json:"deployment"`
	Attributes map[string]string `json:"attributes"`
	// Key is unique among the live runs of the workflow: if one has it, no other is started. Empty for none.
	Key string `json:"key"`
	// Delay is how long after the step the run starts, and Timeout how long it may take from then on.
	Delay   *duration `json:"delay"`
	Timeout *duration `json:"timeout"`
	At      place     `json:"at"`
}

func (c *startRun) requests(planner Planner) ([]eventlog.Request, error) {
	deployment, err := planner.deploymentOf(c.Workflow, c.Deployment, Latest)
	if refused := (StartRefused{}); errors.As(err, &refused) {
		return refused.requests(c.ID, c.Workflow, c.Input, c.At), nil
	}
	if err != nil {
		return nil, err
	}
	run := eventlog.NewRun(planner.Now, c.Input, entities.EventData{
		DeploymentID: deployment, WorkflowName: c.Workflow, Attributes: c.Attributes, UniqueKey: c.Key,
	})
	if c.Delay != nil && *c.Delay > 0 {
		run.Data.StartAt = planner.after(*c.Delay)
	}
	if c.Timeout != nil {
		run.Data.Deadline = planner.after(duration(or(c.Delay, 0) + time.Duration(*c.Timeout)))
	}
	return []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input, Child: &run,
		Output: eventlog.StartedRun(run.RunID), Data: entities.EventData{StepName: c.Workflow, At: string(c.At)},
	}}, nil
}
