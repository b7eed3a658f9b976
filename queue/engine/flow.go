package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/contract"
	"github.com/stepwell-dev/stepwell/queue/flow"
)

// askFlow answers the call of a flow's run, as the flow's function would.
func (e *Engine) askFlow(ctx context.Context, d queue.Delivery, c contract.Call) (answer, error) {
	if c.Type != contract.TypeWorkflow {
		message := fmt.Sprintf("%s is a flow: start it as a child instead of calling it", d.DeploymentID)
		return refusal("flow_call", message), nil
	}
	program, err := e.flows.Program(ctx, d.Project, d.DeploymentID)
	if err != nil {
		return answer{}, err
	}
	call := flow.Call{Run: c.Run}
	for _, text := range c.Events {
		if err := addEvent(&call, text); err != nil {
			return answer{}, err
		}
	}
	if err := e.readRest(ctx, d, c, &call); err != nil {
		return answer{}, err
	}
	body, err := program.Answer(ctx, call)
	if ended := ctx.Err(); ended != nil {
		return answer{}, ended
	}
	if err != nil {
		return refusal("flow_log", err.Error()), nil
	}
	return answer{status: http.StatusOK, body: body}, nil
}

// readRest adds the events that the call has left out because the log is long.
func (e *Engine) readRest(ctx context.Context, d queue.Delivery, c contract.Call, call *flow.Call) error {
	for after := c.After; after != nil; {
		page, err := e.log.Events(ctx, d.Project, d.RunID,
			pg.Page{Limit: contract.InlineEvents, Cursor: read.EventCursorAt(*after)}, read.WithPayloads)
		if err != nil {
			return err
		}
		for _, event := range page.Events {
			text, err := json.Marshal(view.Of(event))
			if err == nil {
				err = addEvent(call, text)
			}
			if err != nil {
				return err
			}
		}
		after = nil
		if page.More {
			after = &page.Events[len(page.Events)-1].Seq
		}
	}
	return nil
}

func addEvent(call *flow.Call, text json.RawMessage) error {
	var event flow.Event
	if err := json.Unmarshal(text, &event); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	call.Events = append(call.Events, event)
	return nil
}

// refusal is the answer of a function that refuses a call. The run is held until a call succeeds.
func refusal(code, message string) answer {
	body, err := json.Marshal(map[string]contract.Failure{"error": {Message: message, Code: code}})
	if err != nil {
		panic(err) // texts have a JSON form
	}
	return answer{status: http.StatusUnprocessableEntity, body: body}
}
