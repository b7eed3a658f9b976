package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// RunLog is a run with its log, as a line of "stepwell runs export" has it.
type RunLog struct {
	// Run is the run, as GET /v1/runs/{id} returns it.
	Run json.RawMessage `json:"run"`
	// Events is the whole log with its payloads, as GET /v1/runs/{id}/events returns it, oldest first.
	Events []json.RawMessage `json:"events"`
	// Redacted is set if texts were replaced by others. Outputs are not compared then.
	Redacted bool `json:"redacted,omitempty"`
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
			return &ReplayError{r.run.ID, r.run.Workflow, n, len(log.Events), err}
		}
	}
	return nil
}

type replay struct {
	app    *App
	fields map[string]json.RawMessage // of the run
	run    struct{ ID, Workflow string }
	log    RunLog
	types  []string // of the events
	end    engine.Event
	length int // of the log without the event that ends the run
}

// worldEvents are the types of events after which a run is invoked.
var worldEvents = []string{
	"run_started", "step_completed", "step_failed", "wait_completed", "hook_received", "hook_conflict", "cancel_requested",
}

func (a *App) newReplay(log RunLog) (*replay, error) {
	r := &replay{app: a, log: log, length: len(log.Events)}
	if err := json.Unmarshal(log.Run, &r.fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(log.Run, &r.run); err != nil {
		return nil, err
	}
	for i, data := range log.Events {
		var e engine.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, err
		}
		if e.Seq != int64(i)+1 {
			return nil, fmt.Errorf("event %d is missing", i+1)
		}
		r.types = append(r.types, e.Type)
		switch e.Type {
		case "run_created":
			r.fields["input"] = e.Payload
		case "run_completed", "run_failed", "run_cancelled":
			r.end, r.length = e, i
		}
	}
	if r.length == 0 {
		return nil, errors.New("it is empty")
	}
	return r, nil
}

// prefixes returns the lengths of the prefixes to replay. The last one is the whole log.
func (r *replay) prefixes() (lengths []int) {
	for i, t := range r.types[:r.length-1] {
		if slices.Contains(worldEvents, t) {
			lengths = append(lengths, i+1)
		}
	}
	if n := len(lengths); n > mostPrefixes {
		for i := range mostPrefixes {
			lengths[i] = lengths[i*n/mostPrefixes]
		}
		lengths = lengths[:mostPrefixes]
	}
	return append(lengths, r.length)
}

// invoke calls the workflow with the first n events.
func (r *replay) invoke(ctx context.Context, n int) error {
	heard := n
	if n == r.length && r.end.Seq > 0 { // the end is what the code has caused
		heard++
	}
	body, err := json.Marshal(map[string]any{
		"type": "workflow", "invocation": "replay", "attempt": 1, "run": r.fields, "events": r.log.Events[:n], "heard": heard,
		"server": map[string][]string{"features": features},
	})
	if err != nil {
		return err
	}
	effects := &noEffects{}
	req, err := http.NewRequestWithContext(engine.WithInline(ctx, effects), http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	w := &answerWriter{header: http.Header{}}
	r.app.serve(w, req)
	switch {
	case w.status != http.StatusOK && !effects.asked:
		return w.err()
	case n == r.length && r.end.Type == "run_completed":
		return r.compareEnd(w, effects)
	default:
		return nil
	}
}

// compareEnd checks that the code completes the run with the output that it completed with.
func (r *replay) compareEnd(w *answerWriter, effects *noEffects) error {
	if effects.asked {
		return &failure{Code: codeDiverged, Message: fmt.Sprintf(
			"the run has completed, but the code asks for inline step %s at %s", effects.id, effects.place)}
	}
	var answer struct {
		Commands []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if err := json.Unmarshal(w.body.Bytes(), &answer); err != nil {
		return err
	}
	last := len(answer.Commands) - 1
	if last < 0 || answer.Commands[last].Type != "complete" {
		return &failure{
			Code: codeDiverged, Message: fmt.Sprintf("the run has completed, but the code answers %s", w.body.Bytes()),
		}
	}
	if got := answer.Commands[last].Output; !r.log.Redacted && !equalJSON(got, r.end.Payload) {
		return &failure{Code: codeDiverged, Message: fmt.Sprintf(
			"the run has completed with %s, but the code completes it with %s", r.end.Payload, got)}
	}
	return nil
}

func equalJSON(a, b json.RawMessage) bool {
	x, errX := decode[any](a)
	y, errY := decode[any](b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
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

// answerWriter keeps an answer.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(data []byte) (int, error) { return w.body.Write(data) }

// err returns the error of an answer that is none.
func (w *answerWriter) err() error {
	var failed struct{ Error *failure }
	if json.Unmarshal(w.body.Bytes(), &failed) != nil || failed.Error == nil {
		return fmt.Errorf("the workflow was answered %d: %s", w.status, w.body.Bytes())
	}
	return failed.Error
}
