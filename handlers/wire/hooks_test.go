package wire_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestHookLifecycle(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	hook := map[string]any{
		"runId": runID, "hookId": "hook_1", "token": "tok/a b", "ownerId": "", "projectId": "default",
		"environment": "", "isWebhook": true, "specVersion": uint64(3), "createdAt": shown(t0),
	}
	event := func(seq int, eventType string, data any) map[string]any {
		e := map[string]any{
			"eventId": eventID(seq), "runId": runID, "eventType": eventType, "correlationId": "hook_1",
			"specVersion": uint64(3), "createdAt": shown(t0),
		}
		if data != nil {
			e["eventData"] = data
		}
		return e
	}
	id := field{"correlationId", "hook_1"}
	got := c.post(t, runID, "hook_created", []byte("devl[3]"), id, field{"hookToken", "tok/a b"}, field{"hookIsWebhook", true})
	wantEventHeaders(t, got, runID, 3, shown(t0))
	check.Equal(t, "hook_created", got.cbor(t), map[string]any{
		"hook":  hook,
		"event": event(3, "hook_created", map[string]any{"token": "tok/a b", "isWebhook": true}),
	})
	whole := mergeMaps(hook, map[string]any{"metadata": []byte("devl[3]")})
	check.Equal(t, "hook", c.get(t, "/v2/hooks/hook_1").cbor(t), whole)
	resumable := mergeMaps(whole, map[string]any{
		"resumeContext": map[string]any{
			"deploymentId": "dpl_x", "workflowName": "workflow//./a//b", "runSpecVersion": uint64(3),
			"workflowCoreVersion": "4.8.9", "traceCarrier": map[string]any{},
		},
		"resumeCapabilities": map[string]any{"hookResumeDedupVersion": uint64(1)},
	})
	byToken := "/v2/hooks/by-token?token=" + url.QueryEscape("tok/a b")
	check.Equal(t, "hook by token", c.get(t, byToken).cbor(t), resumable)
	// encodeURIComponent encodes a space as %20, forms as +.
	check.Equal(t, "hook by token", c.get(t, "/v2/hooks/by-token?token=tok%2Fa%20b").cbor(t), resumable)
	withRun := mergeMaps(resumable, map[string]any{"run": c.get(t, "/v2/runs/"+runID).cbor(t)})
	check.Equal(t, "hook by token, with its run", c.get(t, byToken+"&withRun=true").cbor(t), withRun)

	for seq := 4; seq <= 5; seq++ {
		got = c.post(t, runID, "hook_received", []byte("devl[4]"), id, field{"hookToken", "tok/a b"})
		wantEventHeaders(t, got, runID, seq, shown(t0))
		check.Equal(t, "hook_received", got.cbor(t), map[string]any{
			"hook": hook, "event": event(seq, "hook_received", map[string]any{"token": "tok/a b"}),
		})
	}
	got = c.post(t, runID, "hook_disposed", nil, id)
	wantEventHeaders(t, got, runID, 6, shown(t0))
	check.Equal(t, "hook_disposed", got.cbor(t), map[string]any{"event": event(6, "hook_disposed", nil)})

	wantProblem(t, c.get(t, "/v2/hooks/hook_1"), http.StatusNotFound, "hook_not_found")
	wantProblem(t, c.get(t, byToken), http.StatusNotFound, "hook_not_found")
	for _, eventType := range []string{"hook_received", "hook_disposed"} {
		wantProblem(t, c.post(t, runID, eventType, nil, id), http.StatusNotFound, "hook_not_found")
		missing := c.post(t, runID, eventType, nil, field{"correlationId", "hook_x"})
		wantProblem(t, missing, http.StatusNotFound, "hook_not_found")
	}
	again := c.post(t, runID, "hook_created", nil, id, field{"hookToken", "another"})
	wantProblem(t, again, http.StatusConflict, "conflict")
}

func TestIsWebhookIsPresentWhenFalse(t *testing.T) { // §2.5
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	for name, tt := range map[string]struct {
		fields []field
		hook   bool
		data   map[string]any
	}{
		"false":     {[]field{{"hookIsWebhook", false}}, false, map[string]any{"token": "false", "isWebhook": false}},
		"undefined": {[]field{{"hookIsWebhook", undefined}}, false, map[string]any{"token": "undefined"}},
		"missing":   {nil, false, map[string]any{"token": "missing"}},
		"true":      {[]field{{"hookIsWebhook", true}}, true, map[string]any{"token": "true", "isWebhook": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := newID("hook_")
			fields := append([]field{{"correlationId", id}, {"hookToken", name}}, tt.fields...)
			got := c.must(t, runID, "hook_created", nil, fields...)
			check.Equal(t, "data", got["event"].(map[string]any)["eventData"], any(tt.data))
			check.Equal(t, "posted hook", got["hook"].(map[string]any)["isWebhook"], any(tt.hook))
			check.Equal(t, "hook", c.get(t, "/v2/hooks/"+id).cbor(t)["isWebhook"], any(tt.hook))
		})
	}
}

func TestTakenTokenIsAHookConflict(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), stable}
	first, second := c.startedRun(t), c.startedRun(t)
	token := field{"hookToken", "tok"}
	c.must(t, first, "hook_created", nil, field{"correlationId", "hook_1"}, token)
	got := c.post(t, second, "hook_created", []byte("devl[3]"), field{"correlationId", "hook_2"}, token)
	wantEventHeaders(t, got, second, 3, shown(t0))
	check.Equal(t, "answer", got.cbor(t), map[string]any{"event": map[string]any{
		"eventId": eventID(3), "runId": second, "eventType": "hook_conflict", "correlationId": "hook_2",
		"specVersion": uint64(3), "createdAt": shown(t0),
		"eventData": map[string]any{"token": "tok", "conflictingRunId": first},
	}})
	again := c.post(t, second, "hook_created", nil, field{"correlationId", "hook_2"}, token)
	wantProblem(t, again, http.StatusConflict, "conflict")

	// The end of its run releases a token immediately.
	c.must(t, first, "run_completed", nil)
	freed := c.must(t, second, "hook_created", nil, field{"correlationId", "hook_3"}, token)
	check.Equal(t, "token", freed["hook"].(map[string]any)["token"], any("tok"))
}

func TestWaitLifecycle(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), stable}
	runID := c.startedRun(t)
	resumeAt := shown(t0.Add(90 * time.Minute))
	wait := map[string]any{
		"waitId": runID + "-wait_1", "runId": runID, "status": "waiting", "specVersion": uint64(3),
		"resumeAt": resumeAt, "createdAt": shown(t0), "updatedAt": shown(t0),
	}
	event := map[string]any{
		"eventId": eventID(3), "runId": runID, "eventType": "wait_created", "correlationId": "wait_1",
		"specVersion": uint64(3), "createdAt": shown(t0), "occurredAt": shown(t0),
		"eventData": map[string]any{"resumeAt": resumeAt, "vercelId": "req1"},
	}
	fields := []field{
		{"correlationId", "wait_1"}, {"occurredAt", t0}, {"remoteRefBehavior", "lazy"}, {"vercelId", "req1"},
		{"resumeAt", resumeAt}, {"stateUpdatedAt", 1763000000000.0},
	}
	got := c.post(t, runID, "wait_created", nil, fields...)
	wantEventHeaders(t, got, runID, 3, shown(t0))
	check.Equal(t, "wait_created", got.cbor(t), map[string]any{"wait": wait, "event": event})
	wantProblem(t, c.post(t, runID, "wait_created", nil, fields...), http.StatusConflict, "conflict")

	at := c.advance(90 * time.Minute)
	got = c.post(t, runID, "wait_completed", nil, field{"correlationId", "wait_1"})
	wantEventHeaders(t, got, runID, 4, at)
	check.Equal(t, "wait_completed", got.cbor(t), map[string]any{
		"wait": mergeMaps(wait, map[string]any{"status": "completed", "updatedAt": at, "completedAt": at}),
		"event": map[string]any{
			"eventId": eventID(4), "runId": runID, "eventType": "wait_completed", "correlationId": "wait_1",
			"specVersion": uint64(3), "createdAt": at,
		},
	})
	for _, id := range []string{"wait_1", "wait_x"} {
		again := c.post(t, runID, "wait_completed", nil, field{"correlationId", id})
		wantProblem(t, again, http.StatusConflict, "conflict")
	}
	for _, unknown := range []string{"wait_cancelled", "cancel_requested"} { // only runs of the server have them
		got := c.post(t, runID, unknown, nil, field{"correlationId", "wait_1"})
		wantProblem(t, got, http.StatusBadRequest, "invalid_request")
	}
	never := c.post(t, runID, "wait_created", nil, field{"correlationId", "wait_2"})
	wantProblem(t, never, http.StatusBadRequest, "invalid_request")
}

func TestAttrSetChangesAttributes(t *testing.T) { // §3.9
	t.Parallel()
	c := client{newServer(t), beta}
	runID := c.startedRun(t)
	change := func(key string, value any) any { return map[string]any{"key": key, "value": value} }
	post := func(id string, changes ...any) answer {
		return c.post(t, runID, "attr_set", nil, field{"correlationId", id}, field{"changes", changes},
			field{"writer", []field{{"type", "workflow"}}})
	}
	c.must(t, runID, "attr_set", nil, field{"correlationId", "attr_0"}, field{"changes", []any{change("b", "x")}})
	got := post("attr_1", change("a", "1"), change("b", nil))
	wantEventHeaders(t, got, runID, 4, shown(t0))
	body := got.cbor(t)
	check.Equal(t, "attributes", body["run"].(map[string]any)["attributes"], any(map[string]any{"a": "1"}))
	check.Equal(t, "data", body["event"].(map[string]any)["eventData"], any(map[string]any{
		"changes": []any{
			map[string]any{"key": "a", "value": "1"}, map[string]any{"key": "b", "value": nil},
		},
		"writer": map[string]any{"type": "workflow"},
	}))
	check.Equal(t, "run", c.get(t, "/v2/runs/"+runID).cbor(t)["attributes"], any(map[string]any{"a": "1"}))

	wantProblem(t, post("attr_1", change("a", "2")), http.StatusConflict, "conflict")
	wantProblem(t, post("attr_2", change("$a", "2")), http.StatusBadRequest, "invalid_request")
	wantProblem(t, post("attr_2"), http.StatusBadRequest, "invalid_request")
	reserved := c.post(t, runID, "attr_set", nil, field{"correlationId", "attr_3"},
		field{"changes", []any{change("$a", "2")}}, field{"allowReservedAttributes", true})
	wantEventHeaders(t, reserved, runID, 5, shown(t0))
}
