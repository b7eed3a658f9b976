package stepwell

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// waitCommand is the command that starts a timer.
type waitCommand struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	For   string `json:"for,omitempty"`
	Until string `json:"until,omitempty"`
	At    string `json:"at,omitempty"`
}

// longestTimer is the longest that the server takes.
const longestTimer = 10 * 365 * 24 * time.Hour

// Timer starts a timer, and returns the future of its end. Timers are durable: they may last for up to ten years.
func (w *Context) Timer(d time.Duration) *Future[time.Time] {
	if d > longestTimer {
		panic(fmt.Sprintf("%s: a timer of %s: the longest is ten years", engine.Caller(), d))
	}
	return w.timer(waitCommand{For: max(d, 0).String()})
}

// TimerAt starts a timer that ends at the time.
func (w *Context) TimerAt(t time.Time) *Future[time.Time] {
	return w.timer(waitCommand{Until: t.UTC().Format(time.RFC3339Nano)})
}

func (w *Context) timer(c waitCommand) *Future[time.Time] {
	c.Type, c.ID, c.At = "wait", w.co.Scope.ID("wait"), engine.Caller()
	x, op := w.exec, &engine.Operation{Kind: engine.KindWait, ID: c.ID, Place: c.At, Command: c}
	w.askUnlessCancelled(op)
	return &Future[time.Time]{
		op:   op,
		stop: func(reason string) { x.cancel(op, reason) },
		done: func() bool { return op.Done() || op.Cancelled },
		get: func() (time.Time, error) {
			if len(op.Received) == 0 {
				return time.Time{}, ErrCancelled
			}
			return op.Received[0].At, nil
		},
	}
}

// Sleep waits for d. If the handle's part of the workflow is cancelled first, the error is [ErrCancelled].
func (w *Context) Sleep(d time.Duration) error { return w.sleep(w.Timer(d)) }

// SleepUntil waits until the time, as [Context.Sleep] does.
func (w *Context) SleepUntil(t time.Time) error { return w.sleep(w.TimerAt(t)) }

func (w *Context) sleep(end *Future[time.Time]) error {
	_, err := end.rest(w)
	return err
}

// Now returns the time of the last event that the workflow has seen. It is the same in each replay, and never goes
// back.
func (w *Context) Now() time.Time {
	w.co.CheckRead()
	return w.exec.engine.Now()
}

// randoms has the sources of random numbers.
type randoms map[*engine.Scope]*rand.Rand

// Rand returns random numbers that are the same in each replay. They can be guessed from the run's ID: for secrets, use
// [Value] and crypto/rand. Each scope has its own sequence: each coroutine, each item of a [Map], and each
// [Context.Scope].
func (w *Context) Rand() *rand.Rand {
	w.co.Check()
	random := w.exec.randoms[w.co.Scope]
	if random == nil {
		seed := sha256.Sum256([]byte(w.exec.seed + "/" + w.co.Scope.Path()))
		random = rand.New(rand.NewChaCha8(seed)) //nolint:gosec // its numbers are to be the same in each replay
		w.exec.randoms[w.co.Scope] = random
	}
	return random
}

// UUID returns a random UUID (version 4) that is the same in each replay. Like those of [Context.Rand], it can be
// guessed.
func (w *Context) UUID() string {
	var u [16]byte
	for i, random := 0, w.Rand(); i < len(u); i++ {
		u[i] = byte(random.Uint32())
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Log returns a logger that is silent while the workflow repeats what an earlier invocation has done.
func (w *Context) Log() *slog.Logger {
	w.co.CheckRead()
	return slog.New(liveHandler{w.exec.app.logger.Handler(), w.exec.engine}).
		With("run", w.exec.info.ID, "workflow", w.exec.info.Workflow, "scope", w.co.Scope.Path())
}

// liveHandler handles only what a workflow logs for the first time.
type liveHandler struct {
	slog.Handler

	engine *engine.Engine
}

// Enabled implements slog.Handler.
func (h liveHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.engine.Live() && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h liveHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return liveHandler{h.Handler.WithAttrs(attrs), h.engine}
}

// WithGroup implements slog.Handler.
func (h liveHandler) WithGroup(name string) slog.Handler {
	return liveHandler{h.Handler.WithGroup(name), h.engine}
}

// setAttributes is the command that sets attributes.
type setAttributes struct {
	Type       string             `json:"type"`
	ID         string             `json:"id"`
	Attributes map[string]*string `json:"attributes"`
	At         string             `json:"at,omitempty"`
}

// Attribute returns an attribute of the run, as far as the workflow has seen changes; false if it is not set.
func (w *Context) Attribute(key string) (string, bool) {
	w.co.CheckRead()
	data, ok := w.exec.attributes.get(key)
	if !ok {
		return "", false
	}
	value, err := decode[string](data)
	return value, err == nil
}

// SetAttribute sets an attribute of the run, by which runs can be found. A run has at most 64, with keys of up to 256
// characters and values of up to 256 bytes.
func (w *Context) SetAttribute(key, value string) { w.setAttribute(key, &value) }

// RemoveAttribute removes an attribute of the run.
func (w *Context) RemoveAttribute(key string) { w.setAttribute(key, nil) }

func (w *Context) setAttribute(key string, value *string) {
	old, known := w.Attribute(key)
	if value == nil && !known || value != nil && known && old == *value {
		return
	}
	data, _ := json.Marshal(value) // texts always encode
	id, t := w.co.Scope.ID("set:"+key), w.exec
	w.ask(&engine.Operation{Kind: engine.KindAttribute, ID: id, Command: setAttributes{
		"setAttributes", id, map[string]*string{key: value}, engine.Caller(),
	}})
	t.attributes[key] = entry{data, func() int64 { return t.engine.Written(engine.KindAttribute, id) }}
}
