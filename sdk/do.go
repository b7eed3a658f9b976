package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Do executes fn as a step of its own, right here, and returns its output. The result is recorded: when the workflow
// runs again, fn is not called. A failed attempt is repeated at once, up to the number of [Attempts], and then the error
// is recorded.
//
// Fn is called again if the process dies before the result is on disk.
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
	info, now := w.turn.info, w.turn.app.now
	op := &engine.Operation{Kind: engine.KindInline, ID: id, Name: name}
	known := w.turn.snapshot()
	op.Execute = func(ctx context.Context) engine.Result {
		ctx, store := withStore(withStep(ctx, info.ID, id), known)
		output, err := attempt(ctx, o, fn)
		r := engine.Result{EndedAt: now(), Stored: store.writes()}
		if err != nil {
			r.Error, _ = json.Marshal(encodeError(err)) // a failure always encodes
			return r
		}
		r.Output = output
		return r
	}
	op.Record = func(r engine.Result, seen engine.Recorded) any {
		return recordStep{
			Type: "recordStep", ID: id, Name: name, Output: r.Output, Error: r.Error,
			Seen: seen.Seen, EndedAt: seen.EndedAt, At: op.Place,
		}
	}
	op.Store = func(values map[string]json.RawMessage) any { return setStore{"setStore", id, values} }
	w.ask(op)
	return resultOf[T](w.turn, op)
}

// Exec is [Do] without an output.
func Exec(w *W, name string, fn func(context.Context) error, options ...StepOption) error {
	_, err := Do(w, name, func(ctx context.Context) (None, error) { return None{}, fn(ctx) }, options...)
	return err
}

// recordStep is the command that records the result of an inline step.
type recordStep struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	Seen    int64           `json:"seen"`
	EndedAt time.Time       `json:"endedAt"`
	At      string          `json:"at,omitempty"`
}

// attempt calls fn up to the number of attempts, and returns its output as JSON. A panic is an error.
func attempt[T any](ctx context.Context, o stepOptions, fn func(context.Context) (T, error)) (json.RawMessage, error) {
	var err error
	for range max(o.retry.MaxAttempts, 1) {
		var v T
		if v, err = once(ctx, o.attemptTimeout, fn); err == nil {
			data, err := json.Marshal(v)
			if err != nil {
				return nil, Fail("unencodable", fmt.Sprintf("encode the output: %v", err))
			}
			return data, nil
		}
		if isPermanent(err) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func once[T any](ctx context.Context, limit time.Duration, fn func(context.Context) (T, error)) (v T, err error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	return fn(ctx)
}
