package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// askFlow answers the call of a flow's run, as the flow's function would. The engine keeps the states of runs, as
// functions may. A call then has only what came after, and costs no more in a long log than in a short one.
func (e *Engine) askFlow(ctx context.Context, d queue.Delivery, c contract.Call) (answer, error) {
	if c.Type != contract.TypeWorkflow {
		message := fmt.Sprintf("%s is a flow: start it as a child instead of calling it", d.DeploymentID)
		return refusal("flow_call", message), nil
	}
	kept, err := e.stateOf(ctx, d, c)
	switch {
	case errors.Is(err, registry.ErrSemantics): // another server may know them
		return answer{}, &queue.Failure{Reason: err.Error(), Public: err.Error(), After: laterServer}
	case err != nil:
		return answer{}, err
	case kept == nil:
		return answer{status: http.StatusPreconditionFailed}, nil
	}
	body, err := e.decideFlow(ctx, d, c, kept)
	if ended := ctx.Err(); ended != nil {
		return answer{}, ended
	}
	if errors.Is(err, flow.ErrLog) {
		return refusal("flow_log", err.Error()), nil
	}
	if err != nil {
		return answer{}, err
	}
	kept.lease = d.Lease
	e.kept.put(d.RunID, kept)
	return answer{status: http.StatusOK, body: body}, nil
}

// CheckPayload fails with [flow.ErrPayloadTooLarge] if a run of the deployment is that of a flow, which cannot read the
// payload.
func (e *Engine) CheckPayload(ctx context.Context, p entities.Project, deploymentID string, payload []byte) error {
	refused := flow.CheckSize(payload)
	if refused == nil {
		return nil
	}
	isFlow, err := e.isFlow(ctx, p, deploymentID)
	if isFlow {
		err = refused
	}
	return err
}

// isFlow reports whether a deployment is a version of a flow.
func (e *Engine) isFlow(ctx context.Context, p entities.Project, deploymentID string) (bool, error) {
	d, err := e.queue.Deployment(ctx, p, deploymentID)
	if errors.Is(err, message.ErrDeploymentNotFound) { // versions of flows stay as long as their runs
		return false, nil
	}
	return strings.HasPrefix(d.URL, contract.FlowScheme), err
}

// UnknownFlows returns the versions of flows, in all projects, whose runs this server leaves alone, because it does not
// have the rules by which their documents are interpreted.
func (e *Engine) UnknownFlows(ctx context.Context) ([]string, error) { return e.flows.Unknown(ctx) }

// laterServer is the pause before a run is looked at again whose rules this server does not know.
const laterServer = time.Minute

// stateOf returns the state of a run before the call's events; nil if the engine does not have it any more.
func (e *Engine) stateOf(ctx context.Context, d queue.Delivery, c contract.Call) (*keptState, error) {
	kept := e.kept.take(d.RunID)
	if c.Since > 0 {
		if kept == nil || kept.Seq() != c.Since {
			return nil, nil
		}
		return kept, nil
	}
	program, err := e.flows.Program(ctx, d.Project, d.DeploymentID)
	if err != nil {
		return nil, err
	}
	return &keptState{State: program.Begin()}, nil
}

// decideFlow applies the events of a call to a state, and returns the answer.
func (e *Engine) decideFlow(ctx context.Context, d queue.Delivery, c contract.Call, kept *keptState) ([]byte, error) {
	events := make([]flow.Event, 0, len(c.Events))
	for _, text := range c.Events {
		event, err := decodeEvent(text)
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	if err := kept.fold(c.Run, events); err != nil {
		return nil, err
	}
	if err := e.applyRest(ctx, d, c, kept.State); err != nil {
		return nil, err
	}
	commands, err := e.decide(ctx, d.Project, kept.State)
	if err != nil {
		return nil, err
	}
	return asAnswer(commands), nil
}

// decide returns the commands that follow from a state. Expressions are evaluated one at a time per project.
func (e *Engine) decide(ctx context.Context, p entities.Project, state *flow.State) ([]any, error) {
	release, err := e.conditions.Acquire(ctx, p)
	if err != nil {
		return nil, err
	}
	defer release()
	return state.Next(ctx)
}

// WithProcessor does work with what users have written or sent as the engine does: see
// [condition.Conditions.WithProcessor].
func (e *Engine) WithProcessor(ctx context.Context, p entities.Project, work func() error) error {
	return e.conditions.WithProcessor(ctx, p, work)
}

// asAnswer returns the commands as functions answer with them.
func asAnswer(commands []any) []byte {
	body, err := json.Marshal(map[string][]any{"commands": commands})
	if err != nil {
		panic(err) // the values are JSON
	}
	return body
}

// applyRest applies the events that the call has left out because the log is long. Each page takes the place of the one
// before in the memory of the delivery.
func (e *Engine) applyRest(ctx context.Context, d queue.Delivery, c contract.Call, kept *flow.State) error {
	var free []func()
	defer func() {
		for _, f := range free {
			f()
		}
	}()
	reading := read.WithMemory(ctx, func(ctx context.Context, bytes int64) error {
		f, err := d.ReserveMemory(ctx, bytes)
		if err == nil {
			free = append(free, f)
		}
		return err
	})
	for after := c.After; after != nil; {
		read.ReuseMemory(reading)
		page, err := e.log.Events(reading, d.Project, d.RunID,
			pg.Page{Limit: contract.InlineEvents, Cursor: read.EventCursorAt(*after)}, read.WithPayloads)
		if err != nil {
			return err
		}
		events, err := flowEvents(page.Events)
		if err != nil {
			return err
		}
		if err := kept.More(events); err != nil {
			return err
		}
		after = nil
		if page.More {
			after = &page.Events[len(page.Events)-1].Seq
		}
	}
	return nil
}

// flowEvents returns events as [decodeEvent] would have them of a call, byte for byte.
func flowEvents(events []entities.Event) (list []flow.Event, err error) {
	for _, e := range events {
		event := flow.Event{Seq: e.Seq, Type: e.Type, CorrelationID: e.CorrelationID, CreatedAt: e.CreatedAt.UTC()}
		event.Data.Skipped = e.Data.Skipped
		shown := view.Of(&e)
		event.Encoding, event.Truncated = shown.Encoding, shown.Truncated
		if len(shown.Payload) > 0 {
			if event.Payload, err = json.Marshal(shown.Payload); err != nil {
				return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
			}
		}
		list = append(list, event)
	}
	return list, nil
}

func decodeEvent(text json.RawMessage) (event flow.Event, err error) {
	if err := json.Unmarshal(text, &event); err != nil {
		return event, fmt.Errorf("decode event: %w", err)
	}
	return event, nil
}

// refusal is the answer of a function that refuses a call. The run is blocked until a call succeeds.
func refusal(code, message string) answer {
	body, err := json.Marshal(map[string]contract.Failure{"error": {Message: message, Code: code}})
	if err != nil {
		panic(err) // texts have a JSON form
	}
	return answer{status: http.StatusUnprocessableEntity, body: body}
}
