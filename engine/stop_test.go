package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// stopDuring starts a run, stops its server without a grace period when it has called, and waits until the call is cut
// off. It returns another server, which goes on.
func stopDuring(t *testing.T, f *httptest.Server, called, cut <-chan struct{}) (*server, entities.RunID) {
	t.Helper()
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
	other.worker(t, other.works)
	if err := w.Stop(context.Background()); err != nil {
		t.Logf("stop: %v", err) // the grace period was over
	}
	<-cut
	return other, id
}

// wantOneAttempt checks that the log has one attempt of the step.
func (d *server) wantOneAttempt(t *testing.T, id entities.RunID, step string) {
	t.Helper()
	if n := d.countEvents(t, id, "step_started "+step) + d.countEvents(t, id, "step_retrying "+step); n != 1 {
		t.Errorf("the log has %d events about attempts, want one", n)
	}
}

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
	other, id := stopDuring(t, f, called, cut)
	other.wantEnd(t, id, entities.RunCompleted, `"paid"`)
	other.wantOneAttempt(t, id, "pay")
}

// TestARequestThatOutlastsItsServerIsSentAgain: so it is with an HTTP step, whose request the server sends itself. The
// idempotency key tells the service that it is the same.
func TestARequestThatOutlastsItsServerIsSentAgain(t *testing.T) {
	t.Parallel()
	called, cut, keys := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if keys <- r.Header.Get(contract.HeaderIdempotencyKey); len(keys) == 1 {
			close(called)
			<-r.Context().Done()
			close(cut)
		}
	}))
	t.Cleanup(service.Close)
	f := serve(t, completeWith("step_completed", "a", httpStep(
		map[string]any{"method": "POST", "url": service.URL}, map[string]any{"retry": object{"maxAttempts": 1}},
	)))
	other, id := stopDuring(t, f, called, cut)
	other.wantEnd(t, id, entities.RunCompleted, `{"status":200}`)
	other.wantOneAttempt(t, id, "a")
	for range 2 {
		if got, want := <-keys, string(id)+"/a"; got != want {
			t.Errorf("a request has the key %q, want %q", got, want)
		}
	}
}
