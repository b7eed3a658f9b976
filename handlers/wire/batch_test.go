package wire_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// batch posts consecutive frames.
func (c client) batch(t *testing.T, runID string, frames []byte) answer {
	t.Helper()
	return c.send(t, http.MethodPost, "/v4/runs/"+runID+"/events/batch", bytes.NewReader(frames),
		"Content-Type", "application/octet-stream")
}

// framed returns an event of a batch as a frame.
func framed(t *testing.T, eventType string, body string, fields ...field) []byte {
	t.Helper()
	fields = append([]field{{"eventType", eventType}, ofNext}, fields...)
	return frame(t, meta(t, fields...), []byte(body))
}

// claimed returns the two frames that create and start a step.
func claimed(t *testing.T, stepID string) []byte {
	t.Helper()
	return append(framed(t, "step_created", "devl[3]", stepMeta(stepID)...),
		framed(t, "step_started", "", append(stepMeta(stepID), field{"ownerMessageId", "msg_1"})...)...)
}

func TestBatchAppendsEventsIndependently(t *testing.T) { // §3.13
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "step_created", []byte("devl[3]"), stepMeta("step_old")...)
	at := shown(t0)
	wait := framed(t, "wait_created", "", field{"correlationId", "wait_1"}, field{"resumeAt", t0})
	body := bytes.Join([][]byte{claimed(t, "step_1"), claimed(t, "step_old"), wait}, nil)
	got := c.batch(t, id, body)
	wantStatus(t, got, http.StatusOK)
	data := map[string]any{"stepName": "step//./a//charge", "workflowName": "workflow//./a//b", "vercelId": "req_1"}
	event := func(seq int, eventType, correlationID string, data map[string]any) map[string]any {
		return map[string]any{
			"eventId": eventID(seq), "runId": id, "eventType": eventType, "correlationId": correlationID,
			"specVersion": uint64(7), "createdAt": at, "eventData": data,
		}
	}
	occurred := map[string]any{"occurredAt": at}
	step := map[string]any{
		"runId": id, "stepId": "step_1", "stepName": "step//./a//charge", "status": "pending", "attempt": uint64(0),
		"specVersion": uint64(7), "createdAt": at, "updatedAt": at,
	}
	results := got.cbor(t)["results"].([]any)
	if len(results) != 5 {
		t.Fatalf("got %d results, want one for each frame", len(results))
	}
	check.Equal(t, "created", results[0], any(map[string]any{
		"status": uint64(200), "event": mergeMaps(event(4, "step_created", "step_1", data), occurred), "step": step,
	}))
	check.Equal(t, "started", results[1], any(map[string]any{
		"status": uint64(200),
		"event":  mergeMaps(event(5, "step_started", "step_1", mergeMaps(data, map[string]any{"ownerMessageId": "msg_1"})), occurred),
		"step":   mergeMaps(step, map[string]any{"status": "running", "attempt": uint64(1), "startedAt": at}),
	}))
	for i, result := range results[2:4] {
		refused := result.(map[string]any)
		if refused["status"] != uint64(409) || refused["error"] != "conflict" || refused["message"] == "" || len(refused) != 3 {
			t.Errorf("event %d of the rejected claim: got %v, want 409 with error and message", i, refused)
		}
	}
	check.Equal(t, "wait", results[4], any(map[string]any{
		"status": uint64(200), "event": event(6, "wait_created", "wait_1", map[string]any{"resumeAt": at}),
		"wait": map[string]any{
			"waitId": id + "-wait_1", "runId": id, "status": "waiting", "specVersion": uint64(7), "resumeAt": at,
			"createdAt": at, "updatedAt": at,
		},
	}))
	check.Equal(t, "events", len(c.log(t, id)), 6)
	check.Equal(t, "input", c.log(t, id)[3].body, "devl[3]")

	// A retry changes nothing.
	for i, result := range c.batch(t, id, body).cbor(t)["results"].([]any) {
		check.Equal(t, "status", result.(map[string]any)["status"], any(uint64(409)))
		if i == 4 && len(c.log(t, id)) != 6 {
			t.Error("a batch of conflicts wrote something")
		}
	}
}

// TestBatchWithRunEndAffectsLaterEvents: events after the end of the run in the same batch are rejected as usual.
func TestBatchWithRunEndAffectsLaterEvents(t *testing.T) { // §3.13
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	for _, step := range []string{"step_a", "step_b", "step_c"} {
		c.must(t, id, "step_started", []byte("devl[3]"), stepMeta(step)...)
	}
	c.must(t, id, "step_created", nil, stepMeta("step_d")...)
	retry := framed(t, "step_retrying", "why", append(stepMeta("step_b"), field{"retryAfter", t0.Add(1e12)})...)
	c.must(t, id, "wait_created", nil, field{"correlationId", "wait_1"}, field{"resumeAt", t0})
	got := c.batch(t, id, bytes.Join([][]byte{
		framed(t, "step_completed", "devl[7]", stepMeta("step_a")...), retry,
		framed(t, "step_failed", "why", stepMeta("step_c")...),
		framed(t, "wait_completed", "", field{"correlationId", "wait_1"}),
		framed(t, "run_completed", "devl[8]"),
		framed(t, "step_completed", "", stepMeta("step_none")...),
		framed(t, "step_started", "", stepMeta("step_d")...),
		framed(t, "wait_created", "", field{"correlationId", "wait_2"}, field{"resumeAt", t0}),
	}, nil))
	var statuses []any
	for _, result := range got.cbor(t)["results"].([]any) {
		statuses = append(statuses, result.(map[string]any)["status"])
	}
	check.Equal(t, "statuses", statuses, []any{
		uint64(200), uint64(200), uint64(200), uint64(200), uint64(200), uint64(410), uint64(410), uint64(409),
	})
	run := c.get(t, "/v2/runs/"+id).cbor(t)
	check.Equal(t, "run", run["status"], any("completed"))
	check.Equal(t, "output", run["output"], any([]byte("devl[8]")))
	early := c.newRunNext(t)
	c.must(t, early, "step_created", nil, stepMeta("step_b")...)
	wantStatus(t, c.batch(t, early, retry), http.StatusOK)
	got = c.batch(t, early, framed(t, "step_started", "", stepMeta("step_b")...))
	result := got.cbor(t)["results"].([]any)[0].(map[string]any)
	if result["status"] != uint64(425) || result["error"] != "too_early" {
		t.Errorf("a step that is not due: got %v, want 425", result)
	}
}

func TestBatchRejectsInvalidFrames(t *testing.T) { // §3.13
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	good := framed(t, "step_created", "devl[3]", stepMeta("step_good")...)
	hook := field{"correlationId", "hook_1"}
	many := bytes.Repeat(framed(t, "step_created", "", field{"correlationId", "s"}, field{"stepName", "s"}), 1001)
	for name, tt := range map[string]struct {
		frames []byte
		code   string
	}{
		"nothing":                {nil, "invalid_request"},
		"hook_received":          {framed(t, "hook_received", "", hook), "invalid_request"},
		"hook_created":           {framed(t, "hook_created", "", field{"correlationId", "h"}, field{"hookToken", "x"}), "invalid_request"},
		"hook_disposed":          {framed(t, "hook_disposed", "", hook), "invalid_request"},
		"run_created":            {framed(t, "run_created", "devl[1]", creation("w")...), "invalid_request"},
		"run_started":            {framed(t, "run_started", ""), "invalid_request"},
		"run_cancelled":          {framed(t, "run_cancelled", ""), "invalid_request"},
		"attr_set":               {framed(t, "attr_set", "", field{"changes", []any{map[string]any{"key": "k", "value": "v"}}}), "invalid_request"},
		"noop":                   {framed(t, "noop", ""), "invalid_request"},
		"no type":                {frame(t, meta(t, ofNext), nil), "invalid_request"},
		"a start with a body":    {framed(t, "step_started", "devl[3]", stepMeta("step_x")...), "invalid_request"},
		"one without a name":     {framed(t, "step_started", "devl[3]", field{"correlationId", "step_x"}), "invalid_request"},
		"two of one step":        {append(claimed(t, "step_x"), claimed(t, "step_x")...), "invalid_request"},
		"too many":               {many, "invalid_request"},
		"an unsupported version": {framed(t, "step_created", "", append(stepMeta("step_x"), field{"specVersion", 9})...), "spec_version"},
		"cut short":              {good[:len(good)-1], "malformed"},
		"no frames":              {[]byte("{}"), "malformed"},
		"huge":                   {[]byte("\xff\xff\xff\xff"), "too_large"},
	} {
		for what, frames := range map[string][]byte{name: tt.frames, name + " after a good one": append(bytes.Clone(good), tt.frames...)} {
			if tt.frames == nil && len(frames) > 0 {
				continue
			}
			got := c.batch(t, id, frames)
			status := http.StatusBadRequest
			if tt.code == "too_large" {
				status = http.StatusRequestEntityTooLarge
			}
			if got.status != status {
				t.Errorf("%s: got %d %s, want %d", what, got.status, got.body, status)
				continue
			}
			wantProblem(t, got, status, tt.code)
		}
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 3)
	wantProblem(t, c.batch(t, newID("wrun_"), good), http.StatusNotFound, "run_not_found")
	wantProblem(t, c.batch(t, "a%00b", good), http.StatusBadRequest, "invalid_request")
}
