package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// functionCall is a call that a function receives.
type functionCall struct {
	contract.Call

	// log has the payload of the last event for each type and correlation ID.
	log map[string]json.RawMessage
	w   http.ResponseWriter
	r   *http.Request
}

func (c *functionCall) has(event, id string) bool { _, ok := c.log[event+" "+id]; return ok }

// reply answers with commands.
func (c *functionCall) reply(commands ...map[string]any) {
	_ = json.NewEncoder(c.w).Encode(map[string]any{"commands": commands})
}

// serve starts an HTTP server for a function. The test stops it.
func serve(t testing.TB, do func(*functionCall)) *httptest.Server {
	t.Helper()
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &functionCall{log: map[string]json.RawMessage{}, w: w, r: r}
		if err := json.NewDecoder(r.Body).Decode(&c.Call); err != nil {
			t.Error(err)
		}
		for _, text := range c.Events {
			var e struct {
				Type, CorrelationID string
				Payload             json.RawMessage
			}
			if err := json.Unmarshal(text, &e); err != nil {
				t.Error(err)
			}
			c.log[e.Type+" "+e.CorrelationID] = e.Payload
		}
		do(c)
	}))
	t.Cleanup(f.Close)
	return f
}

// server is a replica with a log and an engine.
type server struct {
	*replica

	log  *eventlog.Log
	runs *Engine
}

func newServer(t testing.TB, dsn string) *server {
	t.Helper()
	r := newReplica(t, dsn)
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	return &server{r, log, New(r.Queue, log)}
}

// startServer starts a server with a worker, and registers the function.
func startServer(t testing.TB, f *httptest.Server) *server {
	t.Helper()
	d := newServer(t, testdb.New(t))
	d.serveWith(t, f)
	return d
}

// serveWith starts a worker, and registers the function.
func (d *server) serveWith(t testing.TB, f *httptest.Server) {
	t.Helper()
	d.register(t, deployment, f.URL)
	d.worker(t, d.works)
}

// works has a worker do the engine's work.
func (d *server) works(o *queue.WorkerOptions) { o.Handlers = d.runs.Handlers() }

// newRun returns the request that creates a run of the function.
func newRun(input string, change ...func(*eventlog.Request)) eventlog.Request {
	r := eventlog.Request{
		RunID: entities.NewRunID(time.Now()), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
		Payload: []byte(input),
		Data: entities.EventData{
			DeploymentID: deployment, WorkflowName: "order", Driver: entities.DriverServer,
		},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// startRun starts a run of the function.
func (d *server) startRun(t testing.TB, input string, change ...func(*eventlog.Request)) entities.RunID {
	t.Helper()
	run, _, err := d.log.Start(t.Context(), project, newRun(input, change...))
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// waitForEnd waits until a run ends. It returns the status and the payload of the last event.
func (d *server) waitForEnd(t *testing.T, id entities.RunID) (entities.RunStatus, string) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), testdb.Timeout)
	defer cancel()
	run, err := d.log.WaitForEnd(t.Context(), deadline, project, id)
	if err != nil {
		t.Fatal(err)
	}
	if !run.Status.Ended() {
		t.Fatalf("run is %s after %s; its log is\n%s", run.Status, testdb.Timeout, d.describe(t, id))
	}
	e, err := d.log.Event(t.Context(), project, id, run.EndSeq)
	if err != nil {
		t.Fatal(err)
	}
	return run.Status, string(e.Payload)
}

func (d *server) wantEnd(t *testing.T, id entities.RunID, status entities.RunStatus, payload string) {
	t.Helper()
	if s, p := d.waitForEnd(t, id); s != status || p != payload {
		t.Errorf("run ended %s with %s, want %s with %s; its log is\n%s", s, p, status, payload, d.describe(t, id))
	}
}

// TestCallsKeepConnectionsOpen: cancelling a query would close its connection, and the next query would have to open
// one.
func TestCallsKeepConnectionsOpen(t *testing.T) {
	t.Parallel()
	f := serve(t, func(c *functionCall) { c.reply(map[string]any{"type": "complete"}) })
	d := startServer(t, f)
	lost := func() int64 { s := d.pool.Stat(); return s.NewConnsCount() - int64(s.TotalConns()) }
	d.wantEnd(t, d.startRun(t, "{}"), entities.RunCompleted, "null")
	before := lost() // most connections that listen have left the pool
	const runs, listeners = 50, 3
	for range runs {
		d.wantEnd(t, d.startRun(t, "{}"), entities.RunCompleted, "null")
	}
	if n := lost() - before; n > listeners {
		t.Errorf("the pool replaced %d connections in %d calls, want none but those that listen late", n, runs)
	}
}

// logOf returns the log of a run.
func (d *server) logOf(t testing.TB, id entities.RunID) []entities.Event {
	t.Helper()
	page, err := d.log.Events(t.Context(), project, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil || page.More {
		t.Fatalf("read the log: more %v, error %v", page.More, err)
	}
	return page.Events
}

// resume sends a payload to a hook.
func (d *server) resume(t *testing.T, id entities.RunID, hook, payload string) {
	t.Helper()
	if _, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventHookReceived, CorrelationID: hook, SpecVersion: entities.SpecDriven,
		Payload: []byte(payload),
	}); err != nil {
		t.Fatal(err)
	}
}

// events returns the types and correlation IDs of a run's log.
func (d *server) events(t *testing.T, id entities.RunID) []string {
	t.Helper()
	var list []string
	for _, e := range d.logOf(t, id) {
		name := string(e.Type)
		if e.CorrelationID != "" {
			name += " " + e.CorrelationID
		}
		list = append(list, name)
	}
	return list
}

// describe returns the run's log and the queue's messages, for test failures.
func (d *server) describe(t testing.TB, id entities.RunID) string {
	t.Helper()
	text := ""
	for _, e := range d.logOf(t, id) {
		text += fmt.Sprintln(e.Seq, e.Type, e.CorrelationID, string(e.Payload))
	}
	list, _, err := d.Messages(t.Context(), project, queue.Filter{}, pg.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		text += fmt.Sprintf("%+v\n", m)
	}
	return text
}

// TestFunctionRunsToCompletion with steps of two deployments, a wait, a hook, attributes, a child and a result.
func TestFunctionRunsToCompletion(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(c *functionCall) {
		_, _ = fmt.Fprintf(c.w, `{"shipped":%s}`, c.Step.Input)
	})
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			_, _ = fmt.Fprintf(c.w, `{"charged":%s}`, c.Step.Input)
		case c.Run.Workflow == "child":
			c.reply(map[string]any{"type": "complete", "output": "grown up"})
		case !c.has("step_completed", "pack"):
			c.reply(
				map[string]any{"type": "setAttributes", "attributes": map[string]any{"stage": "paying"}},
				map[string]any{"type": "recordStep", "id": "pack", "output": "packed"},
				map[string]any{"type": "runStep", "id": "charge", "input": c.Run.Input},
			)
		case !c.has("step_completed", "charge"):
			c.reply()
		case !c.has("wait_completed", "pause") || !c.has("hook_received", "approval") || !c.has("step_completed", "kid") ||
			!c.has("step_completed", "ship"):
			c.reply(
				map[string]any{"type": "wait", "id": "pause", "for": "50ms"},
				map[string]any{"type": "openHook", "id": "approval", "token": "T"},
				map[string]any{"type": "startChild", "id": "kid", "workflow": "child"},
				map[string]any{"type": "runStep", "id": "ship", "deployment": "elsewhere", "input": 7},
			)
		default:
			c.reply(map[string]any{"type": "complete", "output": map[string]any{
				"charge": c.log["step_completed charge"], "ship": c.log["step_completed ship"],
				"kid": c.log["step_completed kid"], "approval": c.log["hook_received approval"],
			}})
		}
	})
	d := startServer(t, f)
	d.register(t, "elsewhere", elsewhere.URL)
	id := d.startRun(t, `{"total":42}`)
	d.waitForEvent(t, id, "hook_created approval")
	d.resume(t, id, "approval", `"yes"`)
	d.wantEnd(t, id, entities.RunCompleted,
		`{"approval":"yes","charge":{"charged":{"total":42}},"kid":"grown up","ship":{"shipped":7}}`)
	list, _, err := d.Messages(t.Context(), project, queue.Filter{}, pg.Page{Limit: 100})
	if err != nil || len(list) != 0 {
		t.Errorf("got messages %+v and error %v, want none", list, err)
	}
}

// waitForEvent waits until a run's log has an event.
func (d *server) waitForEvent(t *testing.T, id entities.RunID, event string) {
	t.Helper()
	testdb.Eventually(t, "the log has "+event, func() bool { return slices.Contains(d.events(t, id), event) })
}
