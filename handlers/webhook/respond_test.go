package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// work runs a worker and the hub during the test.
func (d *testServer) work(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.hub.Run(ctx) })
	allowed := check.Value(egress.Parse(egress.Loopback))(t)
	w := check.Value(d.queue.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 10, MaxDeliveries: 10, BodyMemory: 1 << 20, Handlers: engine.New(d.queue, d.log).Handlers(), Allowed: allowed,
		Logger: slog.New(slog.NewTextHandler(d.logged, nil)),
	}))(t)
	check.NoError(t, w.Start(ctx))
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
	})
}

// respond writes a workflow's response as the respond command does.
func (d *testServer) respond(t *testing.T, id entities.RunID, request, data string) {
	t.Helper()
	_, err := d.log.AppendAll(t.Context(), entities.DefaultProject, id, nil, eventlog.AppendOptions{
		Streams: []eventlog.WholeStream{{Name: webhook.ResponseStream(id, "hook", request), Data: []byte(data)}},
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWorkflowResponds checks the way of a request through the function and back.
func TestWorkflowResponds(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Events []struct {
				Type    string
				Payload json.RawMessage
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		for _, e := range call.Events {
			var payload struct{ Request, Text string }
			if e.Type != string(entities.EventHookReceived) {
				continue
			}
			if err := json.Unmarshal(e.Payload, &payload); err != nil {
				t.Error(err)
			}
			_, _ = fmt.Fprintf(w, `{"commands":[
				{"type":"respond","hook":"ask","request":%q,"status":201,"text":"you said %s","headers":{"X-Answer":"1"}},
				{"type":"respond","hook":"ask","request":%[1]q,"text":"too late"},
				{"type":"complete","output":%[2]q}]}`, payload.Request, payload.Text)
			return
		}
		_, _ = fmt.Fprint(w, `{"commands":[{"type":"openHook","id":"ask","token":"T","webhook":{"respond":"1m"}}]}`)
	}))
	t.Cleanup(function.Close)
	check.Value(d.queue.PutDeployment(t.Context(), entities.DefaultProject, "shop", function.URL))(t)
	d.work(t)
	id := entities.NewRunID(t0)
	if _, _, err := d.log.Start(t.Context(), entities.DefaultProject, created(id, entities.DriverServer)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hook is open", func() bool {
		_, err := store.HookByToken(t.Context(), d.pool, entities.DefaultProject, "T", t0)
		return err == nil
	})
	w := d.call("POST", "/hooks/T", "hello")
	h := w.Header()
	if w.Code != http.StatusCreated || w.Body.String() != "you said hello" || h.Get("X-Answer") != "1" ||
		h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("got %d %s %v", w.Code, w.Body, h)
	}
	eventually(t, "the run has ended", func() bool {
		run, err := store.RunByID(t.Context(), d.pool, entities.DefaultProject, id)
		return err == nil && run.Status == entities.RunCompleted
	})
	wantRejected(t, d.call("POST", "/hooks/T", "hello"), http.StatusNotFound, "not_found")
}

// TestRetriesGetTheSameResponse checks retries before and after the response.
func TestRetriesGetTheSameResponse(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{RespondMS: 60_000})
	try := func() string {
		w := d.call("POST", "/hooks/T", "x", "Idempotency-Key", "k")
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	answers := make(chan string, 3)
	for range 2 {
		go func() { answers <- try() }()
	}
	eventually(t, "the request is there", func() bool { return len(d.received(t, id)) == 1 })
	var payload struct{ Request string }
	check.NoError(t, json.Unmarshal([]byte(d.received(t, id)[0]), &payload))
	d.respond(t, id, payload.Request, `{"status":202,"headers":{},"body":"Zm9v"}`)
	d.respond(t, id, payload.Request, `{"status":500,"headers":{},"body":"YmFy"}`)
	answers <- try()
	for range 3 {
		check.Equal(t, "the answer", <-answers, "202 foo")
	}
	d.wantReceived(t, id, 1)
}

// TestResponseTimeoutReturns202 checks that the request is recorded.
func TestResponseTimeoutReturns202(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{RespondMS: 50})
	wantAccepted(t, d.call("POST", "/hooks/T", "x"))

	patient := d.hook(t, "patient", entities.WebhookSpec{RespondMS: 60_000})
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- d.call("POST", "/hooks/patient", "x") }()
	eventually(t, "the request is there", func() bool { return len(d.received(t, patient)) == 1 })
	d.drain()
	wantAccepted(t, <-done)
	wantAccepted(t, d.call("POST", "/hooks/patient", "x"))
	d.wantReceived(t, id, 1)
	d.wantReceived(t, patient, 2)
}

// TestInvalidResponseIsNotSent checks data that was written to the stream without the respond command.
func TestInvalidResponseIsNotSent(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{RespondMS: 60_000})
	for i, data := range []string{`{"status":99}`, `{"status":1000}`, `{}`, `hello`} {
		key := fmt.Sprint(i)
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- d.call("POST", "/hooks/T", "x", "Idempotency-Key", key) }()
		eventually(t, "the request is there", func() bool { return len(d.received(t, id)) == i+1 })
		var payload struct{ Request string }
		check.NoError(t, json.Unmarshal([]byte(d.received(t, id)[i]), &payload))
		d.respond(t, id, payload.Request, data)
		wantRejected(t, <-first, http.StatusInternalServerError, "internal")
	}
}
