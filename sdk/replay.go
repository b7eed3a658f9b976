package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// RunLog is a run with its log, as a line of "stepwell runs export" has it.
type RunLog struct {
	// Run is the run, as GET /v1/runs/{id} returns it.
	Run json.RawMessage `json:"run"`
	// Events is the whole log with its payloads, oldest first.
	Events []Event `json:"events"`
}

// ReplayError says that a run cannot go on with the app's code.
type ReplayError struct {
	RunID, Workflow string
	// Replayed is how many of the run's events the code was called with, and Events how many there are.
	Replayed, Events int

	cause error
}

// Error implements error.
func (e *ReplayError) Error() string {
	return fmt.Sprintf("run %s of workflow %s does not replay with the first %d of its %d events: %v",
		e.RunID, e.Workflow, e.Replayed, e.Events, e.cause)
}

// Unwrap returns the cause, such as an error with the code diverged.
func (e *ReplayError) Unwrap() error { return e.cause }

const (
	// typeCheck is the type of a call that replays a log and executes nothing.
	typeCheck = "check"
	// featuresHeader lists what an app can be called with beyond workflows and steps.
	featuresHeader = "Stepwell-Features"
)

// serveCheck replays the log of an open run with the app's code, which is to go on with it later. No step is executed,
// nothing is written, and no interceptor is called.
func (a *App) serveCheck(request context.Context, c call) reply {
	n := len(c.Events)
	if n == 0 || c.Events[n-1].Seq != int64(n) {
		return errorReply(http.StatusBadRequest, failure{Message: "a check has the whole log"})
	}
	r := &replay{app: a, call: c, events: c.Events}
	if err := r.invoke(request, n); err != nil {
		return errorReply(http.StatusInternalServerError, encodeError(err))
	}
	return jsonReply(http.StatusOK, map[string]int{"replayed": n})
}

// mostPrefixes limits how many invocations of one run are replayed.
const mostPrefixes = 100

// Replay replays a run with the app's code: with each prefix of its log at which an invocation can have begun, up to a
// hundred, and with the whole log. No step is executed, and nothing is written. If the run completed, the code must
// return the same output. The error is a [*ReplayError] if the code does not fit.
func (a *App) Replay(ctx context.Context, log RunLog) error {
	r, err := a.newReplay(log)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for _, n := range r.prefixes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.invoke(ctx, n); err != nil {
			return &ReplayError{r.call.Run.ID, r.call.Run.Workflow, n, len(log.Events), err}
		}
	}
	return nil
}

type replay struct {
	app    *App
	call   call           // of an invocation, without events
	events []engine.Event // without the one that ends the run
	end    engine.Event   // the one that ends the run; its position is 0 if there is none
}

// worldEvents are the types of events after which a run is invoked.
var worldEvents = []string{
	"run_started", "step_completed", "step_failed", "wait_completed", "hook_received", "hook_conflict", "cancel_requested",
}

func (a *App) newReplay(log RunLog) (*replay, error) {
	r := &replay{app: a, call: call{Type: typeCheck, Attempt: 1}}
	r.call.Server.Features = append(slices.Clone(required), "continueAs", "reply")
	run, err := opened(a.codec, log.Run)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(run, &r.call.Run); err != nil {
		return nil, err
	}
	for i, logged := range log.Events {
		data, err := decode[engine.Data](logged.Data)
		if err != nil {
			return nil, err
		}
		if logged.Payload, err = opened(a.codec, logged.Payload); err != nil {
			return nil, err
		}
		e := engine.Event{
			Seq: logged.Seq, Type: logged.Type, ID: logged.CorrelationID, At: logged.CreatedAt, Data: data,
			Payload: logged.Payload,
		}
		if e.Seq != int64(i)+1 {
			return nil, fmt.Errorf("event %d is missing", i+1)
		}
		switch e.Type {
		case "run_completed", "run_failed", "run_cancelled":
			r.end = e
		case "run_created":
			r.call.Run.Input = e.Payload
		}
		if r.end.Seq == 0 {
			r.events = append(r.events, e)
		}
	}
	if len(r.events) == 0 {
		return nil, errors.New("it is empty")
	}
	return r, nil
}

// prefixes returns the lengths of the prefixes to replay. The last one is the whole log.
func (r *replay) prefixes() (lengths []int) {
	for i, e := range r.events[:len(r.events)-1] {
		if slices.Contains(worldEvents, e.Type) {
			lengths = append(lengths, i+1)
		}
	}
	if n := len(lengths); n > mostPrefixes {
		for i := range mostPrefixes {
			lengths[i] = lengths[i*n/mostPrefixes]
		}
		lengths = lengths[:mostPrefixes]
	}
	return append(lengths, len(r.events))
}

// invoke calls the workflow with the first n events.
func (r *replay) invoke(ctx context.Context, n int) error {
	c, whole := r.call, n == len(r.events)
	c.Events, c.Known = slices.Clone(r.events[:n]), int64(n)
	if whole && r.end.Seq > 0 { // the end is what the code has caused
		c.Known++
	}
	effects := &noEffects{}
	ctx, cancel := context.WithTimeout(engine.WithInline(ctx, effects), invocationTime)
	defer cancel()
	got, err := r.app.invoke(ctx, c)
	switch {
	case err != nil && !effects.asked:
		f := encodeError(err)
		return &f
	case whole && r.end.Type == "run_completed":
		return r.compareEnd(got, effects)
	default:
		return nil
	}
}

// compareEnd checks that the code completes the run with the output that it completed with.
func (r *replay) compareEnd(got answer, effects *noEffects) error {
	if effects.asked {
		return diverged("the run has completed, but the code asks for inline step %s at %s", effects.id, effects.place)
	}
	var end completion
	continues := false
	if n := len(got.Commands); n > 0 {
		end, _ = got.Commands[n-1].(completion)
		_, continues = got.Commands[n-1].(continueAs)
	}
	if as := r.end.Data.ContinuedAs; as != "" && continues {
		return nil // the input of the next run is in its log
	} else if as != "" {
		return diverged("the run continues as %s, but the code does not continue it", as)
	}
	switch output := r.end.Payload; {
	case end.Type == "":
		data, _ := json.Marshal(got) // commands always encode
		return diverged("the run has completed, but the code answers %s", data)
	case !engine.EqualJSON(end.Output, output):
		return diverged("the run has completed with %s, but the code completes it with %s", output, end.Output)
	default:
		return nil
	}
}

func diverged(format string, args ...any) error {
	return &failure{Code: codeDiverged, Message: fmt.Sprintf(format, args...)}
}

// noEffects ends an invocation that would execute an inline step: the code has come to the end of the log.
type noEffects struct {
	asked     bool
	id, place string
}

var errEffect = errors.New("a replay executes no steps")

// Next implements engine.Inline.
func (*noEffects) Next([]*engine.Operation) int { return 0 }

// Execute implements engine.Inline.
func (n *noEffects) Execute(_ context.Context, op *engine.Operation) (engine.Result, error) {
	if !n.asked {
		n.asked, n.id, n.place = true, op.ID, op.Place
	}
	return engine.Result{}, errEffect
}
