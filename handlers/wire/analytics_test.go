package wire_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// newAnalyzedRun creates a run with an entity of each kind, whose events are one second apart.
func (c client) newAnalyzedRun(t *testing.T) string {
	t.Helper()
	id := newID("wrun_")
	attributes := []any{map[string]any{"key": "env", "value": "prod"}}
	for _, e := range []struct {
		event  string
		fields []field
	}{
		{"run_created", append(creation("workflow//./a//b"), field{"vercelId", "iad1::x"})}, // 1
		{"run_started", nil}, {"attr_set", []field{{"correlationId", "attr_1"}, {"changes", attributes}}}, // 2, 3
		{"step_created", stepMeta("step_1")}, {"step_started", stepMeta("step_1", field{"computeInstanceId", "i1"})}, // 4, 5
		{"step_retrying", stepMeta("step_1", field{"errorCode", "BUSY"}, field{"retryAfter", t0})},             // 6
		{"step_started", stepMeta("step_1", field{"computeInstanceId", "i2"})},                                 // 7
		{"step_failed", stepMeta("step_1", field{"errorCode", "FATAL"})}, {"step_created", stepMeta("step_2")}, // 8, 9
		{"hook_created", []field{{"correlationId", "hook_1"}, {"hookToken", "T"}, {"hookIsWebhook", true}, {"hookIsSystem", false}}},
		{"hook_received", []field{{"correlationId", "hook_1"}}}, {"hook_created", []field{{"correlationId", "hook_2"}, {"hookToken", "T"}}},
		{"wait_created", []field{{"correlationId", "wait_1"}, {"resumeAt", t0}}}, // 13
		{"wait_created", []field{{"correlationId", "wait_2"}, {"resumeAt", t0}}},
		{"wait_completed", []field{{"correlationId", "wait_1"}}},
	} {
		body := []byte("devl[1]")
		if e.event == "step_started" {
			body = nil // with an input it would create the step
		}
		c.must(t, id, e.event, body, e.fields...)
		c.advance(time.Second)
	}
	return id
}

// made holds the fields of each row about the code that started the run.
var made = map[string]any{"workflowCoreVersion": "4.8.9", "workflowEncryptionEnabled": false}

// row returns the expected row of an entity of the run.
func row(runID string, more map[string]any) map[string]any {
	return mergeMaps(made, map[string]any{"runId": runID}, more)
}

// at returns the time of an event of [client.newAnalyzedRun].
func at(seq int) time.Time { return shown(t0).Add(time.Duration(seq-1) * time.Second) }

func wantList(t *testing.T, got answer, rows ...any) {
	t.Helper()
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "page", got.cbor(t), map[string]any{"data": append([]any{}, rows...), "cursor": nil, "hasMore": false})
}

func TestAnalyticsReadsARunWithItsEntities(t *testing.T) { // §2.7
	t.Parallel()
	c := client{newServer(t), beta}
	id := c.newAnalyzedRun(t)
	base := "/v2/analytics/runs/" + id

	run := row(id, map[string]any{
		"status": "running", "deploymentId": "dpl_x", "workflowName": "workflow//./a//b", "specVersion": uint64(3),
		"attributes": map[string]any{"env": "prod"}, "createdAt": at(1), "updatedAt": at(15), "startedAt": at(2),
	})
	check.Equal(t, "run", c.get(t, base).cbor(t), run)
	wantList(t, c.get(t, "/v2/analytics/runs"), run)

	step1 := row(id, map[string]any{
		"stepId": "step_1", "stepName": "step//./a//charge", "status": "failed", "attempt": uint64(2), "errorCode": "FATAL",
		"createdAt": at(4), "updatedAt": at(8), "startedAt": at(5), "completedAt": at(8), "computeInstanceId": "i2",
	})
	step2 := row(id, map[string]any{
		"stepId": "step_2", "stepName": "step//./a//charge", "status": "pending", "attempt": uint64(0),
		"createdAt": at(9), "updatedAt": at(9),
	})
	check.Equal(t, "step", c.get(t, base+"/steps/step_1").cbor(t), step1)
	wantList(t, c.get(t, base+"/steps"), step2, step1)

	wait1 := row(id, map[string]any{
		"waitId": "wait_1", "status": "completed", "resumeAt": shown(t0), "createdAt": at(13), "updatedAt": at(15), "completedAt": at(15),
	})
	wait2 := row(id, map[string]any{
		"waitId": "wait_2", "status": "waiting", "resumeAt": shown(t0), "createdAt": at(14), "updatedAt": at(14),
	})
	check.Equal(t, "wait", c.get(t, base+"/waits/wait_1").cbor(t), wait1)
	wantList(t, c.get(t, base+"/waits"), wait1, wait2)
	wantList(t, c.get(t, base+"/waits?status=waiting"), wait2)

	hook1 := row(id, map[string]any{
		"hookId": "hook_1", "status": "received", "createdAt": at(10), "updatedAt": at(11), "receivedAt": at(11),
		"isWebhook": true, "isSystem": false,
	})
	hook2 := row(id, map[string]any{"hookId": "hook_2", "status": "conflict", "createdAt": at(12), "updatedAt": at(12)})
	check.Equal(t, "hook", c.get(t, "/v2/analytics/hooks/hook_1").cbor(t), hook1)
	wantList(t, c.get(t, "/v2/analytics/hooks?runId="+id), hook1, hook2)

	c.must(t, id, "run_failed", []byte("devl[2]"), field{"errorCode", "USER_ERROR"})
	run["status"], run["errorCode"], run["updatedAt"], run["completedAt"] = "failed", "USER_ERROR", at(16), at(16)
	hook1["status"], hook1["updatedAt"], hook1["disposedAt"] = "disposed", at(16), at(16)
	check.Equal(t, "run", c.get(t, base).cbor(t), run)
	wantList(t, c.get(t, "/v2/analytics/hooks?runId="+id), hook1, hook2)
	check.Equal(t, "hook", c.get(t, "/v2/analytics/hooks/hook_1?runId="+id).cbor(t), hook1)
	wantList(t, c.get(t, base+"/waits"), wait1, wait2)
}

func TestAnalyticsListsEvents(t *testing.T) { // §2.7
	t.Parallel()
	c := client{newServer(t), beta}
	id := c.newAnalyzedRun(t)
	base := "/v2/analytics/runs/" + id + "/events"
	event := func(seq int, eventType string, more map[string]any) map[string]any {
		return row(id, mergeMaps(map[string]any{
			"eventId": eventID(seq), "eventType": eventType, "workflowName": "workflow//./a//b", "deploymentId": "dpl_x",
			"specVersion": uint64(3), "runCreatedAt": at(1), "createdAt": at(seq),
		}, more))
	}
	about := func(correlationID string, more map[string]any) map[string]any {
		return mergeMaps(map[string]any{"correlationId": correlationID, "entityId": correlationID}, more)
	}
	created := event(1, "run_created", map[string]any{"vercelId": "iad1::x"})
	attr := event(3, "attr_set", map[string]any{"correlationId": "attr_1"})
	retrying := event(6, "step_retrying", about("step_1", map[string]any{
		"stepName": "step//./a//charge", "errorCode": "BUSY", "retryAfter": shown(t0), "vercelId": "req_1",
	}))
	hook := event(10, "hook_created", about("hook_1", map[string]any{"isWebhook": true, "isSystem": false}))
	received := event(11, "hook_received", about("hook_1", nil))
	restarted := event(7, "step_started", about("step_1", map[string]any{"stepName": "step//./a//charge", "computeInstanceId": "i2", "vercelId": "req_1"}))
	waiting := event(13, "wait_created", about("wait_1", map[string]any{"resumeAt": shown(t0)}))
	waited := event(15, "wait_completed", about("wait_1", nil))

	ids, pages := c.listed(t, base+"?limit=4&sortOrder=desc", "eventId")
	if len(ids) != 15 || pages != 4 || ids[0] != eventID(15) {
		t.Errorf("got %d events on %d pages from %s on", len(ids), pages, ids[0])
	}
	check.Equal(t, "event", c.get(t, base+"/"+eventID(6)).cbor(t), retrying)
	wantList(t, c.get(t, base+"?eventType=attr_set"), attr)
	wantList(t, c.get(t, base+"?eventType=noop"))
	wantList(t, c.get(t, base+"?correlationId=hook_1"), hook, received)
	wantList(t, c.get(t, base+"?correlationId=hook_1&eventType=hook_received"), received)
	wantList(t, c.get(t, "/v2/analytics/events?correlationId=wait_1&sortOrder=desc"), waited, waiting)
	wantList(t, c.get(t, "/v2/analytics/events?correlationId=wait_x"))

	many := func(ids ...string) answer {
		return c.send(t, http.MethodPost, base+"/get-many", bytes.NewReader(encode(t, map[string]any{"eventIds": ids})),
			"Content-Type", "application/cbor")
	}
	got := many(eventID(7), eventID(1), eventID(99), eventID(7), newID("evnt_"))
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "events", decode(t, got.body), any([]any{created, restarted}))
	got = many(eventID(99))
	check.Equal(t, "no events", decode(t, got.body), any([]any{}))

	wantProblem(t, many(), http.StatusBadRequest, "invalid_request")
	var ids101 []string
	for i := range 101 {
		ids101 = append(ids101, eventID(i+1))
	}
	wantProblem(t, many(ids101...), http.StatusBadRequest, "invalid_request")
	wantStatus(t, many(ids101[:100]...), http.StatusOK)
	got = c.send(t, http.MethodPost, base+"/get-many", strings.NewReader("{"), "Content-Type", "application/cbor")
	wantProblem(t, got, http.StatusBadRequest, "malformed")
}

// TestAnalyticsFiltersRuns by each filter, and by all of them.
func TestAnalyticsFiltersRuns(t *testing.T) { // §2.7
	t.Parallel()
	c := client{newServer(t), beta}
	var ids []string
	var times []string
	for i, attributes := range []map[string]any{nil, {"env": "prod", "a=b,c": `"`}, {"env": "prod"}, {"env": "dev", "$root": "x"}} {
		id := newID("wrun_")
		c.must(t, id, "run_created", []byte("devl[1]"), creation("workflow//"+[]string{"a", "b"}[i%2])...)
		for key, value := range attributes {
			c.must(t, id, "attr_set", nil, field{"correlationId", newID("attr_")}, field{"allowReservedAttributes", true},
				field{"changes", []any{map[string]any{"key": key, "value": value}}})
		}
		ids, times = append(ids, id), append(times, c.clock().Format("2006-01-02T15:04:05.000Z07:00"))
		c.advance(time.Second)
	}
	c.must(t, ids[2], "run_completed", []byte("devl[2]"))
	for _, tt := range []struct {
		query url.Values
		want  []string
	}{
		{url.Values{}, []string{ids[3], ids[2], ids[1], ids[0]}},
		{url.Values{"limit": {"100"}, "sortOrder": {"asc"}}, ids},
		{url.Values{"status": {"pending"}}, []string{ids[3], ids[1], ids[0]}},
		{url.Values{"status": {"cancelled"}}, nil},
		{url.Values{"workflowName": {"workflow//b"}}, []string{ids[3], ids[1]}},
		{url.Values{"startTime": {times[1]}, "endTime": {times[2]}}, []string{ids[2], ids[1]}},
		{url.Values{"startTime": {"2026-11-21"}, "endTime": {"2026-11-21 01:41:43.500"}}, []string{ids[0]}},
		{url.Values{"attributes": {`{"env":"prod"}`}}, []string{ids[2], ids[1]}},
		{url.Values{"attributes": {`{"env":"prod"}`}, "limit": {"1"}}, []string{ids[2], ids[1]}},
		{url.Values{"attributes": {`{"env":"prod","a=b,c":"\""}`}}, []string{ids[1]}},
		{url.Values{"attributes": {`{"$root":"x"}`}}, []string{ids[3]}},
		{url.Values{"attributes": {`{}`}, "workflowName": {""}, "status": {""}}, []string{ids[3], ids[2], ids[1], ids[0]}},
		{url.Values{"attributes": {`{"env":"prod"}`}, "status": {"completed"}, "workflowName": {"workflow//a"}}, []string{ids[2]}},
		{url.Values{"attributes": {`{"env":"prod"}`}, "startTime": {times[0]}, "endTime": {times[1]}}, []string{ids[1]}},
	} {
		t.Run(tt.query.Encode(), func(t *testing.T) {
			t.Parallel()
			got, _ := c.listed(t, "/v2/analytics/runs?"+tt.query.Encode(), "runId")
			check.Equal(t, "runs", got, tt.want)
		})
	}
}

func TestAnalyticsListsAttributeKeys(t *testing.T) { // §2.7
	t.Parallel()
	c := client{newServer(t), beta}
	set := func(id, key string, value any) {
		c.must(t, id, "attr_set", nil, field{"correlationId", newID("attr_")},
			field{"changes", []any{map[string]any{"key": key, "value": value}}})
	}
	var ids []string
	for range 3 {
		ids = append(ids, c.newRun(t))
		c.advance(time.Second)
	}
	set(ids[0], "env", "prod")
	set(ids[2], "env", "dev")
	set(ids[1], "b", "")
	set(ids[1], "gone", "x")
	set(ids[1], "gone", nil)
	b := map[string]any{"key": "b", "runCount": uint64(1), "firstSeenAt": at(2), "lastSeenAt": at(2)}
	env := map[string]any{"key": "env", "runCount": uint64(2), "firstSeenAt": at(1), "lastSeenAt": at(3)}
	path := "/v2/analytics/attributes?"
	wantList(t, c.get(t, path), b, env)
	wantList(t, c.get(t, path+"sortOrder=desc&workflowName="+url.QueryEscape("workflow//./a//b")), env, b)
	wantList(t, c.get(t, path+"workflowName=none"))
	window := url.Values{"startTime": {at(3).Format(time.RFC3339Nano)}, "endTime": {at(9).Format(time.RFC3339Nano)}}
	env["runCount"], env["firstSeenAt"] = uint64(1), at(3)
	wantList(t, c.get(t, path+window.Encode()), env)
	keys, pages := c.listed(t, path+"limit=1", "key")
	check.Equal(t, "keys in pages", keys, []string{"b", "env"})
	check.Equal(t, "number of pages", pages, 2)
}

func TestAnalyticsRejectsInvalidParameters(t *testing.T) { // §2.7
	t.Parallel()
	c := client{newServer(t), beta}
	id := c.startedRun(t)
	nine := url.QueryEscape(`{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":"","9":""}`)
	of := "/v2/analytics/runs/" + id
	for _, path := range []string{
		"/v2/analytics/runs?limit=101", "/v2/analytics/runs?limit=0", "/v2/analytics/runs?cursor=eid:1",
		"/v2/analytics/runs?workflowName=%00",
		"/v2/analytics/runs?startTime=2026-01-01", "/v2/analytics/runs?endTime=2026-01-01",
		"/v2/analytics/runs?startTime=2026-01-02&endTime=2026-01-01", "/v2/analytics/runs?startTime=x&endTime=2026-01-01",
		"/v2/analytics/runs?startTime=2026-01-01&endTime=0", "/v2/analytics/runs?attributes=env",
		"/v2/analytics/runs?attributes=[]", `/v2/analytics/runs?attributes={"a":1}`, `/v2/analytics/runs?attributes={"a":null}`,
		`/v2/analytics/runs?attributes={"":"x"}`, "/v2/analytics/runs?attributes=" + nine,
		`/v2/analytics/runs?attributes={"a":"\u0000"}`,
		"/v2/analytics/attributes?limit=101", "/v2/analytics/attributes?cursor=b", "/v2/analytics/attributes?startTime=2026-01-01",
		"/v2/analytics/hooks", "/v2/analytics/hooks?runId=%00", "/v2/analytics/hooks?limit=101&runId=" + id,
		"/v2/analytics/events", "/v2/analytics/events?limit=1001&correlationId=step_1",
		of + "/steps?limit=1001", of + "/events?limit=1001", of + "/waits?limit=1001",
		of + "/steps?cursor=x", of + "/events?cursor=x", of + "/waits?cursor=x", of + "/events?eventType=%01",
	} {
		path = strings.NewReplacer(`"`, "%22", "{", "%7B", "}", "%7D", "[", "%5B", "]", "%5D", `\`, "%5C").Replace(path)
		wantProblem(t, c.get(t, path), http.StatusBadRequest, "invalid_request")
	}
	for path, code := range map[string]string{
		"/steps/step_x": "step_not_found", "/events/" + eventID(99): "event_not_found", "/events/evnt_x": "event_not_found",
		"/waits/wait_x": "wait_not_found",
	} {
		wantProblem(t, c.get(t, of+path), http.StatusNotFound, code)
	}
	wantProblem(t, c.get(t, "/v2/analytics/hooks/hook_x"), http.StatusNotFound, "hook_not_found")
	for _, path := range []string{"limit=1000", "limit=1"} {
		for _, list := range []string{"/steps?", "/events?", "/waits?"} {
			wantStatus(t, c.get(t, of+list+path), http.StatusOK)
		}
	}
}

// TestI9AnalyticsHidesOtherProjects moves a run to another project. It must look as if it did not exist.
func TestI9AnalyticsHidesOtherProjects(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), beta}
	id := c.newAnalyzedRun(t)
	testdb.Exec(t, c.pool, `
		WITH moved AS (UPDATE runs SET project = 'other' WHERE id = $1 RETURNING id)
		UPDATE run_attributes SET project = 'other' WHERE run_id = $1`, id)
	for _, path := range []string{
		"runs", "runs?status=running", "runs?workflowName=workflow%2F%2F.%2Fa%2F%2Fb",
		"runs?attributes=" + url.QueryEscape(`{"env":"prod"}`), "attributes", "events?correlationId=step_1",
	} {
		wantList(t, c.get(t, "/v2/analytics/"+path))
	}
	for _, path := range []string{
		"runs/" + id, "runs/" + id + "/steps", "runs/" + id + "/steps/step_1", "runs/" + id + "/events",
		"runs/" + id + "/events/" + eventID(1), "runs/" + id + "/waits", "runs/" + id + "/waits/wait_1", "hooks?runId=" + id,
	} {
		wantProblem(t, c.get(t, "/v2/analytics/"+path), http.StatusNotFound, "run_not_found")
	}
	for _, path := range []string{"hooks/hook_1", "hooks/hook_1?runId=" + id} {
		wantProblem(t, c.get(t, "/v2/analytics/"+path), http.StatusNotFound, "hook_not_found")
	}
	body := encode(t, map[string]any{"eventIds": []string{eventID(1)}})
	got := c.send(t, http.MethodPost, fmt.Sprintf("/v2/analytics/runs/%s/events/get-many", id), bytes.NewReader(body))
	wantProblem(t, got, http.StatusNotFound, "run_not_found")
}
