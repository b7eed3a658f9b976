package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
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
		"type": "runStep", "id": "pay", "retry": object{"maxAttempts": 2},
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
		map[string]any{"method": "POST", "url": service.URL}, map[string]any{"retry": object{"maxAttempts": 2}},
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

// TestAStoppedServersOnlyAttemptIsNotRepeated: of a step with one attempt that outlasts its server, nobody knows what its
// function, or the service, did. So it fails.
func TestAStoppedServersOnlyAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(url string) object{
		"function": func(string) object { return object{"type": "runStep", "id": "a"} },
		"request": func(url string) object {
			return httpStep(map[string]any{"method": "POST", "url": url, "body": 1}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			called, cut := make(chan struct{}), make(chan struct{})
			hang := func(r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1) > 1 {
					return
				}
				close(called)
				<-r.Context().Done()
				close(cut)
			}
			service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hang(r) }))
			t.Cleanup(service.Close)
			command := step(service.URL)
			command["retry"] = object{"maxAttempts": 1}
			workflow := completeWith("step_failed", "a", command)
			other, id := stopDuring(t, serve(t, withStep(workflow, func(c *functionCall) { hang(c.r) })), called, cut)
			if _, failure := other.waitForEnd(t, id); !strings.Contains(failure, `"code":"no_answer"`) {
				t.Errorf("the step has failed with %s", failure)
			}
			other.wantOneAttempt(t, id, "a")
			if n := calls.Load(); n != 1 {
				t.Errorf("there were %d calls, want 1", n)
			}
		})
	}
}

// TestOnlyAttemptIsNotRepeated after each history of the server that made the call, and is made if it has not reached the
// function.
func TestOnlyAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		history string
		again   bool
	}{
		"the server dies":                          {history: "begin die"},
		"the function is not reached":              {history: "begin unreached", again: true},
		"so it is, and the server dies":            {history: "begin unreached begin die"},
		"the server dies before it begins":         {history: "claim die", again: true},
		"somebody retries what is not reached":     {history: "begin unreached unreached retry", again: true},
		"so it is, and the server dies thereafter": {history: "begin unreached retry begin die"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newServer(t, testdb.New(t))
			id := d.startRun(t, `null`)
			work := d.claim(t, message.WorkRun, "")
			if _, _, err := d.runs.recordStart(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			body := `{"commands":[{"type":"runStep","id":"pay","retry":{"maxAttempts":1}}]}`
			if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease), []byte(body)); err != nil {
				t.Fatal(err)
			}
			for _, event := range strings.Fields(tt.history) {
				d.passThrough(t, event)
			}
			_, again, err := d.runs.startStep(t.Context(), d.claimFrom(t, d, message.WorkStep, "pay"))
			if again != tt.again || err != nil {
				t.Errorf("the step is called: %t, %v, want %t", again, err, tt.again)
			}
			failed := d.countEvents(t, id, "step_failed pay")
			if begun := d.countEvents(t, id, "step_started pay"); begun != 1 || (failed == 1) == tt.again {
				t.Errorf("the log is %q", d.events(t, id))
			}
		})
	}
}

// passThrough lets something happen to a server that executes the step pay.
func (d *server) passThrough(t *testing.T, event string) {
	t.Helper()
	var err error
	switch event {
	case "claim":
		d.claim(t, message.WorkStep, "pay")
	case "begin":
		var called bool
		if _, called, err = d.runs.startStep(t.Context(), d.claimFrom(t, d, message.WorkStep, "pay")); !called {
			t.Errorf("the step is not called: %v", err)
		}
	case "unreached":
		err = d.claimFrom(t, d, message.WorkStep, "pay").Release(t.Context(), queue.Failure{Reason: "connection refused"})
	case "die":
		d.Exec(t, `UPDATE messages SET holder = 'dead' WHERE lease <> '' AND subject = 'pay'`)
		_, err = cluster.ReleaseOrphans(t.Context(), d.pool)
	case "retry":
		var step string
		d.Scan(t, `SELECT id FROM messages WHERE subject = 'pay'`, nil, &step)
		_, err = d.Retry(t.Context(), project, step)
	}
	if err != nil {
		t.Fatalf("%s: %v", event, err)
	}
}
