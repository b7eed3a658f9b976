package wire_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// executionContext is a free map with values that the server's own encoder would encode differently.
var executionContext = []field{
	{"workflowCoreVersion", "4.8.9"},
	{"traceCarrier", []field{}},
	{"features", []field{{"encryption", false}}},
	{"big", codec.Raw{0x1b, 0, 0, 0, 1, 0, 0, 0, 0}},         // BigInt
	{"nothing", codec.Raw{0xf6}},                             // null
	{"tags", codec.Raw{0xd9, 0x01, 0x02, 0x81, 0x61, 't'}},   // Set
	{"half", codec.Raw{0xf9, 0x3e, 0x00}},                    // 1.5
	{"wide", codec.Raw{0x19, 0x00, 0x07}},                    // 7, not as short as it could be
	{"bytes", codec.Raw{0xd8, 0x40, 0x43, 0x00, 0xff, 0x7f}}, // Uint8Array
}

// creation returns the metadata of the protocol's example of run_created.
func creation(name string) []field {
	return []field{
		{"occurredAt", t0}, {"remoteRefBehavior", "resolve"}, {"deploymentId", "dpl_x"}, {"workflowName", name},
		{"correlationId", undefined}, {"executionContext", executionContext},
	}
}

// newRun creates a run and returns its ID.
func (c client) newRun(t *testing.T) string {
	t.Helper()
	id := newID("wrun_")
	c.must(t, id, "run_created", []byte("devl[1]"), creation("workflow//./a//b")...)
	return id
}

// startedRun creates a run and starts it.
func (c client) startedRun(t *testing.T) string {
	t.Helper()
	id := c.newRun(t)
	c.must(t, id, "run_started", nil, field{"remoteRefBehavior", "lazy"})
	return id
}

// wantEventHeaders checks the headers that clients require after each accepted event (§1.4).
func wantEventHeaders(t *testing.T, got answer, runID string, seq int, at time.Time) {
	t.Helper()
	wantStatus(t, got, http.StatusOK)
	for name, want := range map[string]string{
		"X-Wf-Event-Id": eventID(seq), "X-Wf-Run-Id": runID, "X-Wf-Created-At": at.Format(time.RFC3339Nano),
	} {
		check.Equal(t, name, got.header.Get(name), want)
	}
}

// createdData returns the decoded data of the event that creation posts.
func createdData(t *testing.T, name string) map[string]any {
	t.Helper()
	return map[string]any{
		"deploymentId": "dpl_x", "workflowName": name, "executionContext": decode(t, encode(t, executionContext)),
	}
}

func TestRunCreatedCreatesTheRun(t *testing.T) { // §3.4
	t.Parallel()
	c := client{newServer(t), stable}
	id := newID("wrun_")
	got := c.post(t, id, "run_created", []byte("devl[1]"), creation("workflow//./a//b")...)
	wantEventHeaders(t, got, id, 1, shown(t0))
	check.Equal(t, "answer", got.cbor(t), map[string]any{
		"event": map[string]any{
			"eventId": eventID(1), "runId": id, "eventType": "run_created", "specVersion": uint64(3),
			"createdAt": shown(t0), "occurredAt": shown(t0), "eventData": createdData(t, "workflow//./a//b"),
		},
		"run": map[string]any{
			"runId": id, "status": "pending", "deploymentId": "dpl_x", "workflowName": "workflow//./a//b",
			"specVersion": uint64(3), "executionContext": decode(t, encode(t, executionContext)),
			"attributes": map[string]any{}, "input": []byte("devl[1]"), "createdAt": shown(t0), "updatedAt": shown(t0),
		},
	})
	if verbatim := encode(t, executionContext); bytes.Count(got.body, verbatim) != 2 {
		t.Errorf("executionContext was encoded again: %x", got.body)
	}

	again := c.post(t, id, "run_created", []byte("devl[1]"), creation("workflow//./a//b")...)
	wantProblem(t, again, http.StatusConflict, "conflict")
}

func TestRunCreatedRejectsIDsWithOtherTimes(t *testing.T) { // §2.6
	t.Parallel()
	c := client{newServer(t), stable}
	made := func(at time.Time, tagged bool) string {
		u := ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy())
		if tagged {
			u[0] |= 0x80
		}
		return "wrun_" + u.String()
	}
	for name, tt := range map[string]struct {
		id     string
		status int
	}{
		"OK":               {made(t0, false), http.StatusOK},
		"OK tagged":        {made(t0, true), http.StatusOK},
		"OK a day old":     {made(t0.Add(-24*time.Hour+time.Second), false), http.StatusOK},
		"OK soon":          {made(t0.Add(5*time.Minute-time.Second), true), http.StatusOK},
		"Err too old":      {made(t0.Add(-24*time.Hour-time.Second), false), http.StatusBadRequest},
		"Err too new":      {made(t0.Add(5*time.Minute+time.Second), true), http.StatusBadRequest},
		"Err other prefix": {"run_" + ulid.Make().String(), http.StatusBadRequest},
		"Err no ULID":      {"wrun_1", http.StatusBadRequest},
		"Err letter U":     {made(t0, false)[:30] + "U", http.StatusBadRequest},
		"Err path":         {"wrun_..%2F..", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.post(t, tt.id, "run_created", []byte("devl[1]"), creation("w")...); tt.status == http.StatusOK {
				wantEventHeaders(t, got, tt.id, 1, shown(t0))
			} else {
				wantProblem(t, got, tt.status, "invalid_request")
			}
		})
	}
}

func TestRunStartedStartsTheRun(t *testing.T) { // §3.5
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.newRun(t)
	at := c.advance(time.Second)
	// Data in run_started is only for creating a missing run; it is not stored otherwise.
	along := append(creation("another name"), field{"vercelId", "req_1"})
	got := c.post(t, id, "run_started", []byte("devl[2]"), along...)
	wantEventHeaders(t, got, id, 2, at)
	run := map[string]any{
		"runId": id, "status": "running", "deploymentId": "dpl_x", "workflowName": "workflow//./a//b",
		"specVersion": uint64(3), "executionContext": decode(t, encode(t, executionContext)),
		"attributes": map[string]any{}, "input": []byte("devl[1]"),
		"createdAt": shown(t0), "updatedAt": at, "startedAt": at,
	}
	data := createdData(t, "workflow//./a//b")
	data["input"] = []byte("devl[1]")
	started := map[string]any{
		"eventId": eventID(2), "runId": id, "eventType": "run_started", "specVersion": uint64(3),
		"createdAt": at, "occurredAt": shown(t0),
	}
	check.Equal(t, "answer", got.cbor(t), map[string]any{
		"event": started, "run": run,
		"events": []any{map[string]any{
			"eventId": eventID(1), "runId": id, "eventType": "run_created", "specVersion": uint64(3),
			"createdAt": shown(t0), "occurredAt": shown(t0), "eventData": data,
		}, started},
		"cursor": "eid:" + eventID(2), "hasMore": false,
	})

	// A redelivery writes nothing. It returns the existing event and the run, but not the log.
	c.advance(time.Second)
	got = c.post(t, id, "run_started", []byte("devl[2]"), along...)
	wantEventHeaders(t, got, id, 2, at)
	check.Equal(t, "answer to the second", got.cbor(t), map[string]any{"event": started, "run": run})

	missing := c.post(t, newID("wrun_"), "run_started", nil, field{"remoteRefBehavior", "resolve"})
	wantProblem(t, missing, http.StatusNotFound, "run_not_found")
}

func TestRunStartedCreatesTheRunIfMissing(t *testing.T) { // §3.5
	t.Parallel()
	c := client{newServer(t), stable}
	id := newID("wrun_")
	got := c.post(t, id, "run_started", []byte("devl[1]"), creation("w")...)
	wantEventHeaders(t, got, id, 2, shown(t0))
	body := got.cbor(t)
	if run := body["run"].(map[string]any); run["status"] != "running" || string(run["input"].([]byte)) != "devl[1]" {
		t.Errorf("run: got %v", run)
	}
	events, _ := c.get(t, "/v4/runs/"+id+"/events").list(t)
	data := events[0].meta["eventData"]
	if len(events) != 2 || events[0].body != "devl[1]" {
		t.Errorf("got events %v, want run_created with the input and run_started", events)
	}
	check.Equal(t, "data of run_created", data, any(createdData(t, "w")))
	if events[1].meta["eventData"] != nil || events[1].body != "" {
		t.Errorf("run_started: got %v, want no data", events[1])
	}

	late := c.post(t, id, "run_created", []byte("devl[1]"), creation("w")...)
	wantProblem(t, late, http.StatusConflict, "conflict")
	for name, tt := range map[string]struct {
		id     string
		fields []field
		body   string
		status int
		code   string
	}{
		"Err no input":      {newID("wrun_"), creation("w"), "", http.StatusNotFound, "run_not_found"},
		"Err no deployment": {newID("wrun_"), []field{{"workflowName", "w"}}, "devl[1]", http.StatusNotFound, "run_not_found"},
		"Err no name":       {newID("wrun_"), []field{{"deploymentId", "d"}}, "devl[1]", http.StatusNotFound, "run_not_found"},
		"Err no ULID":       {"wrun_1", creation("w"), "devl[1]", http.StatusBadRequest, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, c.post(t, tt.id, "run_started", []byte(tt.body), tt.fields...), tt.status, tt.code)
		})
	}
}

// TestRunEndsAreStoredWithTheirErrors covers each way in which a run ends, and the form of its error (§3.6).
func TestRunEndsAreStoredWithTheirErrors(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	for name, tt := range map[string]struct {
		eventType, body string
		fields          []field
		data            any            // of the event, without its payload
		result          map[string]any // what GET then shows besides
	}{
		"completed": {
			eventType: "run_completed", body: "devl[42]",
			data: map[string]any{}, result: map[string]any{"status": "completed", "output": []byte("devl[42]")},
		},
		"completed without output": {
			eventType: "run_completed",
			data:      map[string]any{}, result: map[string]any{"status": "completed"},
		},
		"failed, stable line": {
			eventType: "run_failed",
			fields: []field{
				{"errorCode", "USER_ERROR"}, {"error", []field{{"message", "boom"}, {"stack", "Error: boom\n at x"}}},
			},
			data: map[string]any{
				"errorCode": "USER_ERROR", "error": map[string]any{"message": "boom", "stack": "Error: boom\n at x"},
			},
			result: map[string]any{"status": "failed", "errorCode": "USER_ERROR", "error": map[string]any{
				"message": "boom", "stack": "Error: boom\n at x", "code": "USER_ERROR",
			}},
		},
		"failed, error is a string": {
			eventType: "run_failed", fields: []field{{"error", "boom"}},
			data:   map[string]any{"error": "boom"},
			result: map[string]any{"status": "failed", "error": map[string]any{"message": "boom"}},
		},
		"failed, error is something else": {
			eventType: "run_failed", fields: []field{{"error", uint16(7)}},
			data:   map[string]any{"error": uint64(7)},
			result: map[string]any{"status": "failed", "error": map[string]any{"message": "Unknown error"}},
		},
		"failed, next line": {
			eventType: "run_failed", body: "devl[[\"Error\",1]]", fields: []field{{"errorCode", "RUNTIME_ERROR"}},
			data: map[string]any{"errorCode": "RUNTIME_ERROR"},
			result: map[string]any{
				"status": "failed", "errorCode": "RUNTIME_ERROR", "error": []byte("devl[[\"Error\",1]]"),
			},
		},
		"cancelled": {eventType: "run_cancelled", result: map[string]any{"status": "cancelled"}},
		"cancelled with a reason": {
			eventType: "run_cancelled", fields: []field{{"cancelReason", "enough"}},
			data: map[string]any{"cancelReason": "enough"}, result: map[string]any{"status": "cancelled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := c.startedRun(t)
			fields := append([]field{{"remoteRefBehavior", "lazy"}, {"stateUpdatedAt", 1763000000000.0}}, tt.fields...)
			got := c.post(t, id, tt.eventType, []byte(tt.body), fields...)
			wantEventHeaders(t, got, id, 3, shown(t0))
			run := map[string]any{
				"runId": id, "deploymentId": "dpl_x", "workflowName": "workflow//./a//b", "specVersion": uint64(3),
				"attributes": map[string]any{},
				"createdAt":  shown(t0), "updatedAt": shown(t0), "startedAt": shown(t0), "completedAt": shown(t0),
			}
			short := mergeMaps(run, map[string]any{"status": tt.result["status"]})
			if code := tt.result["errorCode"]; code != nil {
				short["errorCode"] = code
			}
			event := map[string]any{
				"eventId": eventID(3), "runId": id, "eventType": tt.eventType, "specVersion": uint64(3), "createdAt": shown(t0),
			}
			if tt.data != nil {
				event["eventData"] = tt.data
			}
			check.Equal(t, "answer", got.cbor(t), map[string]any{"event": event, "run": short})

			run = mergeMaps(run, tt.result)
			run["executionContext"], run["input"] = decode(t, encode(t, executionContext)), []byte("devl[1]")
			check.Equal(t, "run", c.get(t, "/v2/runs/"+id+"?remoteRefBehavior=resolve").cbor(t), run)
			delete(run, "input")
			delete(run, "output")
			delete(run, "error")
			check.Equal(t, "lazy run", c.get(t, "/v2/runs/"+id+"?remoteRefBehavior=lazy").cbor(t), run)

			one := c.get(t, "/v4/runs/"+id+"/events/"+eventID(3)).frames(t)
			if len(one) != 1 || one[0].body != tt.body {
				t.Fatalf("got frames %v, want the one event with body %q", one, tt.body)
			}
			check.Equal(t, "event", one[0].meta, event)
			if strings.Contains(string(got.body), "stateUpdatedAt") {
				t.Error("the guard is no data of the event")
			}
		})
	}
}

func mergeMaps(maps ...map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range maps {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

// TestEndedRunsRejectEvents covers the table of §3.3.
func TestEndedRunsRejectEvents(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.startedRun(t)
	step := func(name string) []field { return []field{{"correlationId", name}, {"stepName", "s"}} }
	for _, name := range []string{"step_pending", "step_running", "step_done"} {
		c.must(t, id, "step_created", []byte("devl[1]"), step(name)...)
	}
	c.must(t, id, "step_started", nil, step("step_running")...)
	c.must(t, id, "step_completed", []byte("devl[1]"), step("step_done")...)
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	c.must(t, id, "wait_created", nil, field{"correlationId", "wait_1"}, field{"resumeAt", t0})
	c.must(t, id, "run_cancelled", nil)

	for _, tt := range []struct {
		eventType, correlationID string
		status                   int
		code                     string
	}{
		{"run_created", "", http.StatusConflict, "conflict"},
		{"run_started", "", http.StatusGone, "run_ended"},
		{"run_completed", "", http.StatusConflict, "conflict"},
		{"run_failed", "", http.StatusConflict, "conflict"},
		{"step_created", "step_new", http.StatusConflict, "conflict"},
		{"hook_created", "hook_new", http.StatusConflict, "conflict"},
		{"wait_created", "wait_new", http.StatusConflict, "conflict"},
		{"attr_set", "attr_1", http.StatusConflict, "conflict"},
		{"step_started", "step_pending", http.StatusGone, "run_ended"},
		{"step_retrying", "step_pending", http.StatusGone, "run_ended"},
		{"step_failed", "step_new", http.StatusGone, "run_ended"},
		{"step_started", "step_done", http.StatusConflict, "conflict"},
		{"step_completed", "step_done", http.StatusConflict, "conflict"},
		{"hook_received", "hook_1", http.StatusNotFound, "hook_not_found"},
		{"hook_disposed", "hook_1", http.StatusNotFound, "hook_not_found"},
		{"wait_completed", "wait_1", http.StatusConflict, "conflict"},
		{"step_started", "step_running", http.StatusOK, ""},
		{"step_completed", "step_running", http.StatusOK, ""},
		{"run_cancelled", "", http.StatusOK, ""},
	} {
		fields := []field{
			{"stepName", "s"}, {"hookToken", "tok"}, {"resumeAt", t0}, {"deploymentId", "dpl_x"}, {"workflowName", "w"},
			{"changes", []any{map[string]any{"key": "k", "value": "v"}}},
		}
		if tt.correlationID != "" {
			fields = append(fields, field{"correlationId", tt.correlationID})
		}
		if got := c.post(t, id, tt.eventType, reportOf(tt.eventType), fields...); tt.status == http.StatusOK {
			wantStatus(t, got, tt.status)
		} else {
			wantProblem(t, got, tt.status, tt.code)
		}
	}
	events, _ := c.get(t, "/v4/runs/"+id+"/events").list(t)
	if last := events[len(events)-1].meta; len(events) != 13 || last["eventType"] != "run_cancelled" {
		t.Errorf("got %d events, the last %v; want only the accepted three after the first ten", len(events), last)
	}
}
