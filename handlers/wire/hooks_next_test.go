package wire_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestRetainedHookKeepsItsTokenAfterTheRun(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), next}
	id, other := c.newRunNext(t), c.newRunNext(t)
	until := shown(t0.Add(time.Hour))
	create := func(runID, hookID string) map[string]any {
		return c.must(t, runID, "hook_created", []byte("meta"), ofNext, field{"correlationId", hookID}, field{"hookToken", "tok"},
			field{"hookIsSystem", true}, field{"hookTokenRetentionUntil", until})
	}
	got := create(id, "hook_1")
	hook := map[string]any{
		"runId": id, "hookId": "hook_1", "token": "tok", "ownerId": "", "projectId": "default", "environment": "",
		"isWebhook": false, "isSystem": true, "specVersion": uint64(7), "createdAt": shown(t0), "tokenRetentionUntil": until,
	}
	check.Equal(t, "posted hook", got["hook"], any(hook))
	check.Equal(t, "data", got["event"].(map[string]any)["eventData"], any(map[string]any{
		"token": "tok", "isSystem": true, "tokenRetentionUntil": until,
	}))
	c.must(t, id, "run_completed", nil)
	whole := mergeMaps(hook, map[string]any{"metadata": []byte("meta")})
	byToken := "/v2/hooks/by-token?token=tok"
	wantThere := func(when string) {
		t.Helper()
		check.Equal(t, when, c.get(t, "/v2/hooks/hook_1").cbor(t), whole)
		check.Equal(t, when+", by token", c.get(t, byToken).cbor(t)["hookId"], any("hook_1"))
		check.Equal(t, when+", in the list", c.get(t, "/v2/hooks?runId="+id).cbor(t)["data"], any([]any{whole}))
	}
	wantThere("after the end")
	received := c.post(t, id, "hook_received", []byte("x"), field{"correlationId", "hook_1"})
	wantProblem(t, received, http.StatusNotFound, "hook_not_found")
	lost := create(other, "hook_2")
	check.Equal(t, "a claim", lost["event"].(map[string]any)["eventType"], any("hook_conflict"))
	check.Equal(t, "its data", lost["event"].(map[string]any)["eventData"], any(map[string]any{"token": "tok", "conflictingRunId": id}))

	c.advance(time.Hour - time.Millisecond)
	wantThere("a millisecond before the end of its time")
	c.advance(time.Millisecond)
	for _, path := range []string{"/v2/hooks/hook_1", byToken} {
		wantProblem(t, c.get(t, path), http.StatusNotFound, "hook_not_found")
	}
	check.Equal(t, "list", c.get(t, "/v2/hooks?runId="+id).cbor(t)["data"], any([]any{}))
	wantProblem(t, c.post(t, id, "hook_disposed", nil, field{"correlationId", "hook_1"}), http.StatusNotFound, "hook_not_found")
	won := create(other, "hook_3")
	check.Equal(t, "a claim afterwards", won["event"].(map[string]any)["eventType"], any("hook_created"))
}

func TestTokenRetentionIsLimited(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	for name, tt := range map[string]struct {
		until  any
		status int
	}{
		"30 days":              {t0.Add(30 * 24 * time.Hour), http.StatusOK},
		"a millisecond longer": {t0.Add(30*24*time.Hour + time.Millisecond), http.StatusBadRequest},
		"long ago":             {t0.Add(-1e6 * time.Hour), http.StatusOK},
		"as text":              {codec.Raw("\xc0\x742026-11-21T02:00:00Z"), http.StatusOK},
		"undefined":            {undefined, http.StatusOK},
		"a number":             {1763000000, http.StatusBadRequest},
		"text":                 {"tomorrow", http.StatusBadRequest},
		"the year 10,000":      {codec.Raw{0xc1, 0x1b, 0, 0, 0, 0x3a, 0xff, 0xf4, 0x41, 0x80}, http.StatusBadRequest},
		"infinity":             {codec.Raw{0xc1, 0xf9, 0x7c, 0x00}, http.StatusBadRequest},
		"not a number":         {codec.Raw{0xc1, 0xf9, 0x7e, 0x00}, http.StatusBadRequest},
	} {
		hook := newID("hook_")
		got := c.post(t, id, "hook_created", nil, field{"correlationId", hook}, field{"hookToken", name},
			field{"hookTokenRetentionUntil", tt.until})
		if got.status != tt.status {
			t.Errorf("%s: got %d %s, want %d", name, got.status, got.body, tt.status)
		}
	}
	c.must(t, id, "run_completed", nil)
	disposed := c.get(t, "/v2/hooks?runId="+id).cbor(t)["data"].([]any)
	if len(disposed) != 2 {
		t.Fatalf("%d hooks are retained, want those with a future time", len(disposed))
	}
	for _, hook := range disposed {
		hookID := hook.(map[string]any)["hookId"].(string)
		c.must(t, id, "hook_disposed", nil, field{"correlationId", hookID})
		wantProblem(t, c.get(t, "/v2/hooks/"+hookID), http.StatusNotFound, "hook_not_found")
	}
}

func TestResumeIsIdempotent(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	for _, hook := range []string{"hook_1", "hook_2"} {
		c.must(t, id, "hook_created", nil, field{"correlationId", hook}, field{"hookToken", hook})
	}
	resume := func(hook, resumeID, digest string) answer {
		return c.post(t, id, "hook_received", []byte("devl[5]"), ofNext, field{"correlationId", hook}, field{"hookToken", hook},
			field{"resumeId", resumeID}, field{"resumePayloadDigest", digest})
	}
	stored := map[string]any{
		"eventId": eventID(5), "runId": id, "eventType": "hook_received", "correlationId": "hook_1", "specVersion": uint64(7),
		"createdAt": shown(t0), "resumeId": "res_1", "eventData": map[string]any{"token": "hook_1"},
	}
	first := resume("hook_1", "res_1", "d1")
	wantEventHeaders(t, first, id, 5, shown(t0))
	check.Equal(t, "event", first.cbor(t)["event"], any(stored))
	wantRepeat := func(when string) {
		t.Helper()
		c.advance(time.Second)
		again := resume("hook_1", "res_1", "d1")
		wantEventHeaders(t, again, id, 5, shown(t0))
		check.Equal(t, when, again.cbor(t)["event"], any(stored))
	}
	wantRepeat("again")
	wantProblem(t, resume("hook_1", "res_1", "d2"), http.StatusConflict, "conflict")
	wantProblem(t, resume("hook_2", "res_1", "d1"), http.StatusConflict, "conflict")
	wantFrames(t, "frame", c.log(t, id)[4:5], event{stored, "devl[5]"})
	framed := c.postFrames(t, id, "hook_received", []byte("devl[5]"), field{"correlationId", "hook_1"}, field{"hookToken", "hook_1"},
		field{"resumeId", "res_1"}, field{"resumePayloadDigest", "d1"})
	check.Equal(t, "who accepts frames is answered so, too", framed.cbor(t)["event"], any(stored))
	c.must(t, id, "hook_disposed", nil, field{"correlationId", "hook_1"})
	wantRepeat("after the hook")
	c.must(t, id, "run_completed", nil)
	wantRepeat("after the run")
	wantProblem(t, resume("hook_1", "res_2", "d1"), http.StatusNotFound, "hook_not_found")
	check.Equal(t, "length of the log", len(c.log(t, id)), 7)
	for name, fields := range map[string][]field{
		"NUL in the ID": {{"resumeId", "a\x00"}}, "a number": {{"resumeId", 7}}, "an odd digest": {{"resumeId", "r"}, {"resumePayloadDigest", true}},
		"line break": {{"resumeId", "a\nb"}}, "NUL in the digest": {{"resumeId", "r"}, {"resumePayloadDigest", "\x00"}},
	} {
		got := c.post(t, c.newRunNext(t), "hook_received", nil, append([]field{{"correlationId", "hook_1"}}, fields...)...)
		if got.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", name, got.status, got.body)
		}
	}
}

func TestConcurrentResumesAreOneEvent(t *testing.T) { // §3.8
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	var senders sync.WaitGroup
	answers := make([]answer, 16)
	for i := range answers {
		senders.Go(func() {
			answers[i] = c.post(t, id, "hook_received", []byte("x"), field{"correlationId", "hook_1"}, field{"resumeId", "res_1"})
		})
	}
	senders.Wait()
	for i, got := range answers {
		if got.status != http.StatusOK || got.header.Get("X-Wf-Event-Id") != eventID(4) {
			t.Errorf("sender %d: got %d and event %s, want 200 and the first event", i, got.status, got.header.Get("X-Wf-Event-Id"))
		}
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 4)
}

// TestHookByTokenIncludesRunContext: values of unexpected types are omitted (§7).
func TestHookByTokenIncludesRunContext(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	for i, tt := range []struct {
		execution, key any
		want           map[string]any
	}{
		{undefined, undefined, map[string]any{}},
		{"text", "QUJD", map[string]any{"encryptionPublicKey": "QUJD"}},
		{codec.Raw{0xf6}, codec.Raw{0xf6}, map[string]any{}},
		{
			[]field{
				{"workflowCoreVersion", "5.0.0-beta.55"}, {"traceCarrier", map[string]string{"traceparent": "00-1"}},
				{"hookResumeInputVersion", 1}, {"features", []field{}},
			}, "QUJD",
			map[string]any{
				"workflowCoreVersion": "5.0.0-beta.55", "traceCarrier": map[string]any{"traceparent": "00-1"},
				"hookResumeInputVersion": uint64(1), "encryptionPublicKey": "QUJD",
			},
		},
		{
			[]field{{"workflowCoreVersion", 5}, {"traceCarrier", "x"}, {"hookResumeInputVersion", "1"}}, undefined,
			map[string]any{},
		},
	} {
		id, token := newID("wrun_"), fmt.Sprint("tok", i)
		fields := append(creation("w"), ofNext,
			field{"executionContext", tt.execution}, field{"encryptionPublicKey", tt.key})
		c.must(t, id, "run_created", []byte("devl[1]"), fields...)
		c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", token})
		got := c.get(t, "/v2/hooks/by-token?token="+token).cbor(t)
		want := mergeMaps(map[string]any{"deploymentId": "dpl_x", "workflowName": "w", "runSpecVersion": uint64(7)}, tt.want)
		check.Equal(t, fmt.Sprint("context ", i), got["resumeContext"], any(want))
		check.Equal(t, "capabilities", got["resumeCapabilities"], any(map[string]any{"hookResumeDedupVersion": uint64(1)}))
		data := c.log(t, id)[0].meta["eventData"].(map[string]any)
		if key, ok := data["encryptionPublicKey"]; ok && key != any("QUJD") {
			t.Errorf("context %d: the log has the key %v", i, key)
		}
	}
	for name, key := range map[string]any{"a number": 7, "bytes": []byte("k"), "a map": map[string]any{}, "no UTF-8": codec.Raw("\x61\xff")} {
		got := c.post(t, newID("wrun_"), "run_created", []byte("devl[1]"), append(creation("w"), field{"encryptionPublicKey", key})...)
		if name == "no UTF-8" && got.status == http.StatusOK {
			continue // repaired, as all texts are
		}
		if got.status != http.StatusBadRequest {
			t.Errorf("a key that is %s: got %d %s, want 400", name, got.status, got.body)
		}
	}
}

// TestEventDataIsPresentWhereClientsRequireIt: the next line rejects a whole list if one event has no data (§2.5).
func TestEventDataIsPresentWhereClientsRequireIt(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id, failed := c.newRunNext(t), c.newRunNext(t)
	step := func(id string) []field { return []field{{"correlationId", id}, ofNext, {"stepName", "s"}} }
	bare := func(id string) []field { return []field{{"correlationId", id}, ofNext} }
	for _, e := range []struct {
		eventType string
		fields    []field
	}{
		{"step_created", step("step_1")}, {"step_started", bare("step_1")}, {"step_retrying", bare("step_1")},
		{"step_completed", bare("step_1")}, {"step_created", step("step_2")}, {"step_failed", bare("step_2")},
		{"hook_created", append(bare("hook_1"), field{"hookToken", "tok"})}, {"hook_received", bare("hook_1")},
		{"hook_disposed", bare("hook_1")}, {"wait_created", append(bare("wait_1"), field{"resumeAt", t0})},
		{"wait_completed", bare("wait_1")}, {"run_completed", nil},
	} {
		posted := c.must(t, id, e.eventType, nil, e.fields...)["event"].(map[string]any)
		optional := e.eventType == "step_started" || e.eventType == "hook_disposed" || e.eventType == "wait_completed"
		if _, ok := posted["eventData"].(map[string]any); ok == optional {
			t.Errorf("%s: answer has eventData %v", e.eventType, posted["eventData"])
		}
	}
	c.must(t, failed, "run_failed", nil)
	wantAll := func(what string, events []event) {
		t.Helper()
		for _, e := range events {
			data, ok := e.meta["eventData"]
			switch e.meta["eventType"] {
			case "run_started", "run_cancelled", "step_started", "hook_disposed", "wait_completed":
				if ok {
					t.Errorf("%s: %s has eventData %v", what, e.meta["eventType"], data)
				}
			default:
				if _, isMap := data.(map[string]any); !isMap {
					t.Errorf("%s: %s has eventData %v, want a map", what, e.meta["eventType"], data)
				}
			}
			if e.body != "" && !ok {
				t.Errorf("%s: %s has a payload and no eventData", what, e.meta["eventType"])
			}
			for key, value := range e.meta {
				if value == nil {
					t.Errorf("%s: %s has a null %s", what, e.meta["eventType"], key)
				}
			}
		}
	}
	wantAll("resolved", c.log(t, id))
	wantAll("failed", c.log(t, failed))
	lazy, _ := c.get(t, "/v4/runs/"+id+"/events?remoteRefBehavior=lazy").list(t)
	wantAll("lazy", lazy)
	check.Equal(t, "events", len(lazy), 14)
}

func TestAttrSetAlwaysHasAWriter(t *testing.T) { // §2.5: otherwise the next line cannot read the log
	t.Parallel()
	c := client{newServer(t), beta}
	runID := c.startedRun(t)
	set := func(writer any, version uint16) answer {
		return c.post(t, runID, "attr_set", nil, field{"specVersion", version}, field{"writer", writer},
			field{"changes", []any{map[string]any{"key": "k", "value": "v"}}})
	}
	step := map[string]any{"type": "step", "stepId": "step_1", "attempt": uint16(1)}
	for _, version := range []uint16{3, 5, 7} {
		for name, writer := range map[string]any{
			"null": nil, "a text": "workflow", "nobody": map[string]any{}, "another": map[string]any{"type": "cli"},
			"a step without an ID":      map[string]any{"type": "step", "attempt": uint16(1)},
			"a step without an attempt": map[string]any{"type": "step", "stepId": "step_1"},
		} {
			got := set(writer, version)
			if p := wantProblem(t, got, http.StatusBadRequest, "invalid_request"); t.Failed() {
				t.Fatalf("%s in version %d: %s", name, version, p.Message)
			}
		}
		for _, writer := range []any{map[string]any{"type": "workflow"}, step} {
			wantStatus(t, set(writer, version), http.StatusOK)
		}
		// A missing writer becomes an outsider, in a form that clients can read.
		data := set(undefined, version).cbor(t)["event"].(map[string]any)["eventData"].(map[string]any)
		outsider := map[string]any{"type": "step", "stepId": "outside", "attempt": uint64(0)}
		check.Equal(t, "writer", data["writer"], any(outsider))
	}
}
