package stepwell

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Timer ends at a time.
type Timer struct{ op *engine.Operation }

func (t *Timer) ready() bool { return t.op.Done() }

// waitCommand is the command that starts a timer.
type waitCommand struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	For   string `json:"for,omitempty"`
	Until string `json:"until,omitempty"`
}

// Timer starts a timer. Timers are durable: they may last for up to ten years.
func (w *W) Timer(d time.Duration) *Timer {
	return w.timer(waitCommand{For: max(d, 0).String()})
}

// TimerAt starts a timer that ends at the time.
func (w *W) TimerAt(t time.Time) *Timer {
	return w.timer(waitCommand{Until: t.UTC().Format(time.RFC3339Nano)})
}

func (w *W) timer(c waitCommand) *Timer {
	c.Type, c.ID = "wait", w.co.Scope.ID("wait")
	return &Timer{w.ask(&engine.Operation{Kind: engine.KindWait, ID: c.ID, Command: c})}
}

// Sleep waits for d.
func (w *W) Sleep(d time.Duration) { First(w, w.Timer(d)) }

// SleepUntil waits until the time.
func (w *W) SleepUntil(t time.Time) { First(w, w.TimerAt(t)) }

// Now returns the time of the last event that the workflow has seen. It is the same in each replay, and never goes back.
func (w *W) Now() time.Time {
	w.co.Check()
	return w.turn.engine.Now()
}

// Rand returns random numbers that are the same in each replay. They can be guessed from the run's ID: for secrets, use
// [Value] and crypto/rand. Each coroutine has its own sequence.
func (w *W) Rand() *rand.Rand {
	w.co.Check()
	if w.random == nil {
		w.random = rand.New(rand.NewChaCha8(sha256.Sum256([]byte(w.turn.info.ID + "/" + w.co.Scope.Path()))))
	}
	return w.random
}

// UUID returns a random UUID (version 4) that is the same in each replay. Like those of [W.Rand], it can be guessed.
func (w *W) UUID() string {
	var u [16]byte
	for i := range u {
		u[i] = byte(w.Rand().Uint32())
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Log returns a logger that is silent while the workflow repeats what an earlier invocation has done.
func (w *W) Log() *slog.Logger {
	w.co.Check()
	if !w.turn.engine.Live() {
		return slog.New(slog.DiscardHandler)
	}
	return w.turn.app.logger.With("run", w.turn.info.ID, "workflow", w.turn.info.Workflow, "scope", w.co.Scope.Path())
}
