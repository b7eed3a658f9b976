package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/contract"
	"github.com/stepwell-dev/stepwell/queue/flow"
	"github.com/stepwell-dev/stepwell/queue/flow/registry"
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
	body, err := e.follow(ctx, d, c, kept)
	if ended := ctx.Err(); ended != nil {
		return answer{}, ended
	}
	if errors.Is(err, flow.ErrLog) {
		return refusal("flow_log", err.Error()), nil
	}
	if err != nil {
		return answer{}, err
	}
	e.flowStates.put(d.RunID, kept)
	return answer{status: http.StatusOK, body: body}, nil
}

// UnknownFlows returns the versions of flows, in all projects, whose runs this server leaves alone, because it does not
// have the rules by which their documents are interpreted.
func (e *Engine) UnknownFlows(ctx context.Context) ([]string, error) { return e.flows.Unknown(ctx) }

// laterServer is the pause before a run is looked at again whose rules this server does not know.
const laterServer = time.Minute

// stateOf returns the state of a run before the call's events; nil if the engine does not have it any more.
func (e *Engine) stateOf(ctx context.Context, d queue.Delivery, c contract.Call) (*flow.State, error) {
	kept := e.flowStates.take(d.RunID)
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
	return program.Begin(), nil
}

// keepFlows is how long the engine promises to keep a state.
const keepFlows = time.Minute

// follow applies the events of a call to a state, and returns the answer. Expressions are evaluated in the project's
// turn.
func (e *Engine) follow(ctx context.Context, d queue.Delivery, c contract.Call, kept *flow.State) ([]byte, error) {
	events := make([]flow.Event, 0, len(c.Events))
	for _, text := range c.Events {
		event, err := decodeEvent(text)
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	if err := kept.Apply(c.Run, events); err != nil {
		return nil, err
	}
	if err := e.applyRest(ctx, d, c, kept); err != nil {
		return nil, err
	}
	release, err := e.conditions.Acquire(ctx, d.Project)
	if err != nil {
		return nil, err
	}
	defer release()
	commands, err := kept.Next(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Commands []any `json:"commands"`
		Keep     any   `json:"keep"`
	}{commands, map[string]any{"seq": kept.Seq(), "by": "server", "for": keepFlows.String()}})
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
		events := make([]flow.Event, 0, len(page.Events))
		for _, event := range page.Events {
			text, err := json.Marshal(view.Of(event))
			if err != nil {
				return err
			}
			decoded, err := decodeEvent(text)
			if err != nil {
				return err
			}
			events = append(events, decoded)
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

func decodeEvent(text json.RawMessage) (event flow.Event, err error) {
	if err := json.Unmarshal(text, &event); err != nil {
		return event, fmt.Errorf("decode event: %w", err)
	}
	return event, nil
}

// keptState is a state of a run, and the memory that it took when it was kept.
type keptState struct {
	*flow.State

	bytes int64
}

const (
	// maxFlowStates and maxFlowBytes limit the states that an engine keeps.
	maxFlowStates = 4096
	maxFlowBytes  = 64 << 20
	// stateBytes is what a small state takes, about.
	stateBytes = 8 << 10
)

// flowStates keeps the states of the runs that were answered last. A state is taken out while it is used. Losing one
// costs a call with the whole log.
type flowStates struct {
	mu    sync.Mutex
	runs  *simplelru.LRU[entities.RunID, keptState]
	bytes int64
}

func newFlowStates() *flowStates {
	f := &flowStates{}
	var err error
	f.runs, err = simplelru.NewLRU(maxFlowStates, func(_ entities.RunID, s keptState) { f.bytes -= s.bytes })
	if err != nil {
		panic(err) // the size is not positive
	}
	return f
}

// take takes out the state of a run, or returns nil.
func (f *flowStates) take(id entities.RunID) *flow.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, _ := f.runs.Peek(id)
	f.runs.Remove(id)
	return s.State
}

// put keeps a state, unless it is too large, and drops the oldest ones beyond the limits.
func (f *flowStates) put(id entities.RunID, s *flow.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs.Remove(id)
	kept := keptState{s, s.Bytes() + stateBytes}
	if kept.bytes > maxFlowBytes {
		return
	}
	f.bytes += kept.bytes
	f.runs.Add(id, kept)
	for f.bytes > maxFlowBytes {
		f.runs.RemoveOldest()
	}
}

// refusal is the answer of a function that refuses a call. The run is held until a call succeeds.
func refusal(code, message string) answer {
	body, err := json.Marshal(map[string]contract.Failure{"error": {Message: message, Code: code}})
	if err != nil {
		panic(err) // texts have a JSON form
	}
	return answer{status: http.StatusUnprocessableEntity, body: body}
}
