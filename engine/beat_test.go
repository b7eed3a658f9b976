package engine

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// beats sends a heartbeat for each progress, as soon as each may be sent.
func (d *server) beats(t *testing.T, c *functionCall, progress ...string) {
	t.Helper()
	for _, p := range progress {
		testdb.Eventually(t, "heartbeat "+p+" may be sent", func() bool {
			err := d.runs.Beat(t.Context(), callOf(c.Run.ID, c.Invocation), []byte(p))
			if err != nil && !errors.Is(err, queue.ErrTooSoon) {
				t.Errorf("heartbeat %s: %v", p, err)
			}
			return err == nil
		})
	}
}

// TestStepsWhoseHeartbeatsStopAreGivenUp long before the time of their attempt, and not while they send some. The next
// attempt gets what was said last. The log has an event of the attempt that was lost, and none of a heartbeat.
func TestStepsWhoseHeartbeatsStopAreGivenUp(t *testing.T) {
	t.Parallel()
	ready, closed, attempts := make(chan *server, 1), make(chan struct{}), atomic.Int64{}
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep && attempts.Add(1) == 1:
			d := <-ready
			d.beats(t, c, `1`, `2`, `3`, `{"rows":4}`) // it takes longer than it may be silent
			<-c.r.Context().Done()
			close(closed)
		case c.Type == contract.TypeStep:
			_, _ = fmt.Fprintf(c.w, `{"from":%s,"attempt":%d}`, c.Step.Progress, c.Attempt)
		case c.has("step_completed", "train"):
			c.reply(map[string]any{"type": "complete", "output": c.log["step_completed train"]})
		default:
			c.reply(map[string]any{
				"type": "runStep", "id": "train", "attemptTimeout": "12h", "heartbeatTimeout": "2s",
				"retry": map[string]any{"backoff": "1ms"},
			})
		}
	})
	d := startServer(t, f)
	id := d.startRun(t, "{}")
	ready <- d
	d.wantEnd(t, id, entities.RunCompleted, `{"from":{"rows":4},"attempt":2}`)
	testdb.Receive(t, "the end of the first call", closed)
	want := []string{"run_created", "run_started", "step_created train", "step_started train", "step_retrying train",
		"step_started train", "step_completed train", "run_completed"}
	if got := d.events(t, id); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
	if n := d.Count(t, `SELECT count(*) FROM events WHERE run_id = $1 AND type = 'step_retrying'
		AND data->>'errorCode' = 'no_answer' AND convert_from(payload, 'UTF8') LIKE '%no heartbeat within 2s%'`, id); n != 1 {
		t.Errorf("the log does not say why the attempt was given up:\n%s", d.describe(t, id))
	}
}

// TestHeartbeatsOfStepsThatNobodyWaitsFor are refused: the run has ended, or the step was cancelled.
func TestHeartbeatsOfStepsThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  map[string]any
		want error
	}{
		"the run has ended":      {map[string]any{"type": "complete"}, entities.ErrRunEnded},
		"the step was cancelled": {map[string]any{"type": "cancelStep", "id": "train"}, message.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, over := make(chan *functionCall, 1), make(chan struct{})
			f := serve(t, func(c *functionCall) {
				switch {
				case c.Type == contract.TypeStep:
					calls <- c
					select {
					case <-over:
					case <-c.r.Context().Done():
					}
					c.w.WriteHeader(http.StatusInternalServerError)
				case c.has("wait_completed", "soon"):
					c.reply(tt.end)
				default:
					c.reply(map[string]any{"type": "runStep", "id": "train"}, map[string]any{"type": "openHook", "id": "go"},
						map[string]any{"type": "wait", "id": "soon", "for": "1ms"})
				}
			})
			d := startServer(t, f)
			d.startRun(t, "{}")
			c := testdb.Receive(t, "the call of the step", calls)
			defer close(over)
			testdb.Eventually(t, "its heartbeats are refused", func() bool {
				err := d.runs.Beat(t.Context(), callOf(c.Run.ID, c.Invocation), nil)
				if err != nil && !errors.Is(err, queue.ErrTooSoon) {
					testdb.WantError(t, "a heartbeat", err, tt.want)
					return true
				}
				return false
			})
		})
	}
}
