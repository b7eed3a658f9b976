package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Do executes fn as a step of its own, right here, and returns its output. The result is recorded: when the workflow
// runs again, fn is not called. A failed attempt is repeated, up to the number of [Attempts] with the pauses of
// [Backoff]: in this call as long as the pauses are no longer than a second all in all, then in later ones. If the last
// attempt fails, its error is recorded.
//
// Fn is called again if the process dies before the result is on disk. If it seems to be fn that ends the process, the
// step fails with the code crashed when all attempts are used up.
func Do[T any](w *W, name string, fn func(context.Context) (T, error), options ...StepOption) (T, error) {
	return DoGo(w, name, fn, options...).Await(w)
}

// DoGo is [Do] that does not wait.
func DoGo[T any](w *W, name string, fn func(context.Context) (T, error), options ...StepOption) *Future[T] {
	if w.scope.err != nil {
		return failed[T](w.scope.err)
	}
	o := collect(options)
	id := o.id
	if id == "" {
		id = w.co.Scope.ID(name)
	}
	s := &inlineStep{
		turn: w.turn, options: o, known: w.turn.snapshot(),
		info: StepInfo{Run: w.turn.info, ID: id, Name: name, Inline: true},
	}
	op := &engine.Operation{Kind: engine.KindInline, ID: id, Name: name, Durable: o.durable}
	op.Execute = func(ctx context.Context) engine.Result {
		return s.execute(ctx, func(ctx context.Context) (json.RawMessage, error) {
			v, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(v)
			if err != nil {
				return nil, Fail("unencodable", fmt.Sprintf("encode the output: %v", err))
			}
			return data, nil
		})
	}
	op.Ready = func(failed []engine.Event) engine.Readiness { return s.ready(op, failed) }
	op.Record = recording(op)
	op.Retry = func(a engine.Attempt) any {
		return recordStep{
			Type: "recordStep", ID: id, Name: name, Error: a.Error, At: op.Place, RetryAfter: a.Pause.String(),
			StartedAt: a.StartedAt, EndedAt: a.EndedAt,
		}
	}
	op.Store = storing(op)
	w.ask(op)
	return resultOf[T](w.turn, op)
}

// Exec is [Do] without an output.
func Exec(w *W, name string, fn func(context.Context) error, options ...StepOption) error {
	_, err := Do(w, name, func(ctx context.Context) (None, error) { return None{}, fn(ctx) }, options...)
	return err
}

// recordStep is the command that records the result of an inline step, or an attempt that is not the last.
type recordStep struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      json.RawMessage `json:"error,omitempty"`
	Seen       int64           `json:"seen,omitempty"`
	StartedAt  time.Time       `json:"startedAt"`
	EndedAt    time.Time       `json:"endedAt"`
	RetryAfter string          `json:"retryAfter,omitempty"`
	At         string          `json:"at,omitempty"`
}

// recording returns what makes the command that records the result of an operation.
func recording(op *engine.Operation) func(engine.Result, engine.Recorded) any {
	return func(r engine.Result, how engine.Recorded) any {
		return recordStep{
			Type: "recordStep", ID: op.ID, Name: op.Name, Input: op.Input, Output: r.Output, Error: r.Error,
			Seen: how.Seen, StartedAt: how.StartedAt, EndedAt: how.EndedAt, At: op.Place,
		}
	}
}
