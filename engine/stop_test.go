package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestACallThatOutlastsItsServerIsMadeAgain: the call of a plain function that takes longer than the grace period of a
// server that stops is cut off, and another server makes it again, as the same attempt.
func TestACallThatOutlastsItsServerIsMadeAgain(t *testing.T) {
	t.Parallel()
	workflow := completeWith("step_completed", "pay", object{
		"type": "runStep", "id": "pay", "retry": object{"maxAttempts": 1},
	})
	var calls atomic.Int32
	called, cut := make(chan struct{}), make(chan struct{})
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeWorkflow:
			workflow(c)
		case calls.Add(1) == 1:
			close(called)
			<-c.r.Context().Done()
			close(cut)
		default:
			if c.Attempt != 1 {
				t.Errorf("the second call has attempt %d, want 1", c.Attempt)
			}
			_, _ = fmt.Fprint(c.w, `"paid"`)
		}
	})
	dsn := testdb.New(t)
	stops, other := newServer(t, dsn), newServer(t, dsn)
	stops.register(t, deployment, f.URL)
	w := stops.newWorker(t, func(o *queue.WorkerOptions) {
		o.Handlers, o.Grace = stops.runs.Handlers(), time.Millisecond
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := stops.startRun(t, `null`)
	<-called
	other.worker(t, func(o *queue.WorkerOptions) { o.Handlers = other.runs.Handlers() })
	if err := w.Stop(context.Background()); err != nil {
		t.Logf("stop: %v", err) // the grace period was over
	}
	<-cut
	other.wantEnd(t, id, entities.RunCompleted, `"paid"`)
	if n := other.countEvents(t, id, "step_started pay") + other.countEvents(t, id, "step_retrying pay"); n != 1 {
		t.Errorf("the log has %d events about attempts, want one", n)
	}
}
