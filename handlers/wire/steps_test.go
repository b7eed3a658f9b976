package wire_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// stepMeta returns the metadata of an event of a step as the stable line sends it.
func stepMeta(id string, more ...field) []field {
	return append([]field{
		{"correlationId", id}, {"occurredAt", t0}, {"remoteRefBehavior", "lazy"}, {"stepName", "step//./a//charge"},
		{"workflowName", "workflow//./a//b"}, {"vercelId", "req_1"}, {"stateUpdatedAt", 0},
	}, more...)
}

func TestStepLifecycle(t *testing.T) { // §3.7
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	step := map[string]any{
		"runId": runID, "stepId": "step_1", "stepName": "step//./a//charge", "status": "pending", "attempt": uint64(0),
		"specVersion": uint64(3), "createdAt": shown(t0), "updatedAt": shown(t0),
	}
	data := map[string]any{"stepName": "step//./a//charge", "workflowName": "workflow//./a//b", "vercelId": "req_1"}
	resolve := field{"remoteRefBehavior", "resolve"}
	second, third, fourth := shown(t0.Add(time.Second)), shown(t0.Add(2*time.Second)), shown(t0.Add(3*time.Second))
	later := shown(t0.Add(2500 * time.Millisecond))

	// Each row is an event and the expected changes of the step.
	for i, tt := range []struct {
		name, eventType, body string
		at                    time.Time
		fields                []field
		data                  map[string]any
		changes               map[string]any
		gone                  []string
		input                 bool
	}{
		{
			name: "created", eventType: "step_created", body: `devl[{"args":1},[]]`, at: shown(t0),
			fields: stepMeta("step_1"), data: data,
		},
		{
			name: "started", eventType: "step_started", at: second, input: true,
			fields: append(stepMeta("step_1"), field{"attempt", uint16(1)}, resolve),
			data:   mergeMaps(data, map[string]any{"attempt": uint64(1)}),
			changes: map[string]any{
				"status": "running", "attempt": uint64(1), "startedAt": second, "updatedAt": second,
			},
		},
		{
			name: "started again, as after a crash", eventType: "step_started", at: second, input: true,
			fields: append(stepMeta("step_1"), resolve), data: data, changes: map[string]any{"attempt": uint64(2)},
		},
		{
			name: "retrying", eventType: "step_retrying", at: third,
			fields: stepMeta("step_1", field{"error", "boom"}, field{"stack", "at x"}, field{"retryAfter", later}),
			data:   mergeMaps(data, map[string]any{"error": "boom", "stack": "at x", "retryAfter": later}),
			changes: map[string]any{
				"status": "pending", "retryAfter": later, "updatedAt": third,
			},
		},
		{
			name: "started once due", eventType: "step_started", at: fourth,
			fields: stepMeta("step_1"), data: data, gone: []string{"retryAfter"},
			changes: map[string]any{"status": "running", "attempt": uint64(3), "updatedAt": fourth},
		},
		{
			name: "completed", eventType: "step_completed", body: "devl[7]", at: fourth,
			fields: stepMeta("step_1"), data: data, changes: map[string]any{"status": "completed", "completedAt": fourth},
		},
	} {
		if tt.eventType == "step_started" && tt.at.Equal(fourth) {
			early := c.post(t, runID, "step_started", nil, stepMeta("step_1", resolve)...)
			wantProblem(t, early, http.StatusTooEarly, "too_early")
			// 499.345679 ms are left, which rounds up to a second.
			check.Equal(t, "Retry-After", early.header.Get("Retry-After"), "1")
		}
		c.advance(tt.at.Sub(shown(c.clock())))
		got := c.post(t, runID, tt.eventType, []byte(tt.body), tt.fields...)
		wantEventHeaders(t, got, runID, 3+i, tt.at)
		step = mergeMaps(step, tt.changes)
		for _, key := range tt.gone {
			delete(step, key)
		}
		want := step
		if tt.input {
			want = mergeMaps(step, map[string]any{"input": []byte(`devl[{"args":1},[]]`)})
		}
		check.Equal(t, tt.name, got.cbor(t), map[string]any{"step": want, "event": map[string]any{
			"eventId": eventID(3 + i), "runId": runID, "eventType": tt.eventType, "correlationId": "step_1",
			"specVersion": uint64(3), "createdAt": tt.at, "occurredAt": shown(t0), "eventData": tt.data,
		}})
		if lazy := c.get(t, "/v2/runs/"+runID+"/steps/step_1?remoteRefBehavior=lazy"); lazy.status == http.StatusOK {
			check.Equal(t, tt.name+", lazy", lazy.cbor(t), step)
		} else {
			t.Errorf("%s: GET step: %d %s", tt.name, lazy.status, lazy.body)
		}
	}
	whole := mergeMaps(step, map[string]any{"input": []byte(`devl[{"args":1},[]]`), "output": []byte("devl[7]")})
	check.Equal(t, "step", c.get(t, "/v2/runs/"+runID+"/steps/step_1").cbor(t), whole)
	check.Equal(t, "step without its run", c.get(t, "/v2/steps/step_1?remoteRefBehavior=resolve").cbor(t), whole)
	wantProblem(t, c.get(t, "/v2/steps/step_2"), http.StatusNotFound, "step_not_found")
	wantProblem(t, c.get(t, "/v2/runs/"+newID("wrun_")+"/steps/step_1"), http.StatusNotFound, "step_not_found")
}

// reportOf returns the body of an event. A step_started has one only if it creates its step.
func reportOf(eventType string) []byte {
	if eventType == "step_started" {
		return nil
	}
	return []byte("devl[1]")
}

func TestIllegalStepEventsAreRejected(t *testing.T) { // §3.7
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	c.must(t, runID, "step_created", []byte("devl[1]"), stepMeta("step_new")...)
	c.must(t, runID, "step_created", []byte("devl[1]"), stepMeta("step_done")...)
	c.must(t, runID, "step_failed", nil, stepMeta("step_done", field{"error", "boom"})...)
	for _, tt := range []struct {
		name, eventType, id string
		status              int
		code                string
	}{
		{"created again", "step_created", "step_new", http.StatusConflict, "conflict"},
		{"started, missing", "step_started", "step_x", http.StatusNotFound, "step_not_found"},
		{"completed, missing", "step_completed", "step_x", http.StatusNotFound, "step_not_found"},
		{"failed, missing", "step_failed", "step_x", http.StatusNotFound, "step_not_found"},
		{"retrying, missing", "step_retrying", "step_x", http.StatusNotFound, "step_not_found"},
		{"started, ended", "step_started", "step_done", http.StatusConflict, "conflict"},
		{"completed, ended", "step_completed", "step_done", http.StatusConflict, "conflict"},
		{"failed, ended", "step_failed", "step_done", http.StatusConflict, "conflict"},
		{"retrying, ended", "step_retrying", "step_done", http.StatusConflict, "conflict"},
		{"no ID", "step_created", "", http.StatusBadRequest, "invalid_request"},
		{"path as ID", "step_created", "../x", http.StatusBadRequest, "invalid_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, c.post(t, runID, tt.eventType, reportOf(tt.eventType), stepMeta(tt.id)...), tt.status, tt.code)
		})
	}
	t.Run("no run", func(t *testing.T) {
		t.Parallel()
		got := c.post(t, newID("wrun_"), "step_created", nil, stepMeta("step_1")...)
		wantProblem(t, got, http.StatusNotFound, "run_not_found")
	})
	t.Run("no name", func(t *testing.T) {
		t.Parallel()
		got := c.post(t, runID, "step_created", nil, field{"correlationId", "step_1"})
		wantProblem(t, got, http.StatusBadRequest, "invalid_request")
	})
}

// TestStepErrorsOfEveryFormAreReturned covers the forms of errors that clients send, and how they are returned (§3.7).
func TestStepErrorsOfEveryFormAreReturned(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	for name, tt := range map[string]struct {
		fields []field
		body   string
		data   map[string]any
		want   any
	}{
		"stable line": {
			fields: []field{{"error", "boom"}, {"stack", "Error: boom\n at x"}},
			data:   map[string]any{"error": "boom", "stack": "Error: boom\n at x"},
			want:   map[string]any{"message": "boom", "stack": "Error: boom\n at x"},
		},
		"without stack": {
			fields: []field{{"error", "boom"}},
			data:   map[string]any{"error": "boom"}, want: map[string]any{"message": "boom"},
		},
		"an object": {
			fields: []field{{"error", []field{{"message", "boom"}}}, {"stack", "at x"}},
			data:   map[string]any{"error": map[string]any{"message": "boom"}, "stack": "at x"},
			want:   map[string]any{"message": "boom", "stack": "at x"},
		},
		"nothing": {data: map[string]any{}, want: map[string]any{"message": "Unknown error"}},
		"next line": {
			body: "devl[[\"Error\",1]]", data: map[string]any{}, want: []byte("devl[[\"Error\",1]]"),
		},
	} {
		for _, eventType := range []string{"step_failed", "step_retrying"} {
			t.Run(name+" "+eventType, func(t *testing.T) {
				t.Parallel()
				id := newID("step_")
				c.must(t, runID, "step_created", []byte("devl[1]"), stepMeta(id)...)
				fields := append([]field{{"correlationId", id}, {"remoteRefBehavior", "lazy"}}, tt.fields...)
				posted := c.must(t, runID, eventType, []byte(tt.body), fields...)
				check.Equal(t, "data of the answer's event", posted["event"].(map[string]any)["eventData"], any(tt.data))

				step := c.get(t, "/v2/runs/"+runID+"/steps/"+id).cbor(t)
				check.Equal(t, "error of the step", step["error"], tt.want)
				eventID := posted["event"].(map[string]any)["eventId"].(string)
				one := c.get(t, "/v4/runs/"+runID+"/events/"+eventID).frames(t)
				check.Equal(t, "data of the event", one[0].meta["eventData"], any(tt.data))
				check.Equal(t, "payload of the event", one[0].body, tt.body)
			})
		}
	}
}
