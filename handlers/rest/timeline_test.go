package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestTimeline has a step, a hook and a wait of one ID, a step that is repeated, and one that its run abandons.
func TestTimeline(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	path := "/v1/runs/" + string(id) + "/timeline"
	name := data(func(d *entities.EventData) { d.StepName, d.Undo = "charge", "refund" })
	a.event(t, id, entities.EventStepCreated, on("x"), name)
	a.event(t, id, entities.EventStepStarted, on("x"))
	a.event(t, id, entities.EventStepStarted, on("x"))
	a.event(t, id, entities.EventStepRetrying, on("x"), data(func(d *entities.EventData) { d.ErrorCode = "busy" }))
	a.event(t, id, entities.EventHookCreated, on("x"), data(func(d *entities.EventData) { d.Token = "T" }))
	a.event(t, id, entities.EventHookReceived, on("x"), with(`1`))
	a.event(t, id, entities.EventWaitCreated, on("x"), data(func(d *entities.EventData) { d.ResumeAt, d.At = &later, "order.go:41" }))
	a.event(t, id, entities.EventWaitCompleted, on("x"))
	a.event(t, id, entities.EventStepStarted, on("x"))
	want := `[
		{"kind":"step","id":"x","name":"charge","undo":"refund","status":"%[2]s","seq":2,"createdAt":"%[1]s"%[3]s,"attempts":[
			{"seq":3,"startedAt":"%[1]s","endedAt":"%[1]s","endSeq":4,"outcome":"lost"},
			{"seq":4,"startedAt":"%[1]s","endedAt":"%[1]s","endSeq":5,"outcome":"retrying","code":"busy"},
			{"seq":10,"startedAt":"%[1]s"%[4]s}]},
		{"kind":"hook","id":"x","status":"%[5]s","seq":6,"createdAt":"%[1]s"%[6]s,"received":[{"seq":7,"at":"%[1]s"}]},
		{"kind":"wait","id":"x","at":"order.go:41","status":"completed","seq":8,"createdAt":"%[1]s","endedAt":"%[1]s","resumeAt":"2026-11-21T02:41:43.197Z"}]`
	check := func(status, ended, outcome, hook, hookEnded string) {
		t.Helper()
		for _, limit := range []string{"1", "100"} {
			var got []any
			for _, part := range a.all(t, path, limit) {
				got = append(got, any(part))
			}
			same(t, "timeline", fmt.Sprintf(want, at0, status, ended, outcome, hook, hookEnded), got)
		}
	}
	ended := `,"endedAt":"` + at0 + `"`
	check("running", "", "", "active", "")
	a.event(t, id, entities.EventStepCompleted, on("x"))
	check("completed", ended, ended+`,"endSeq":11,"outcome":"completed"`, "active", "")
	a.event(t, id, entities.EventRunCancelled)
	check("completed", ended, ended+`,"endSeq":11,"outcome":"completed"`, "abandoned", ended)
	a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_none/timeline", "", http.StatusNotFound, "run_not_found")
}

// TestNamesOfSDKHooks: a hook whose ID the Workflow SDK made is called by its token, in the timeline and in the reasons, but
// not to keys that see no tokens, and not if it is a webhook, whose token is part of its address.
func TestNamesOfSDKHooks(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	id := a.sdkRun(t, "workflow//./workflows/order//placeOrder")
	a.event(t, id, entities.EventRunStarted)
	hook := func(correlation, token string, webhook bool) {
		a.event(t, id, entities.EventHookCreated, on(correlation), data(func(d *entities.EventData) {
			d.Token, d.IsWebhook = token, &webhook
		}))
	}
	hook("hook_01JD5A8R8D0000000000000001", "approval:jwog17", false)
	hook("hook_01JD5A8R8D0000000000000002", "classified", true)
	hook("agree", "chosen by the server", false)
	names := func(key string) (names []any) {
		_, page := a.as(t, key, http.MethodGet, "/v1/runs/"+string(id)+"/timeline", "")
		for _, part := range page["data"].([]any) {
			names = append(names, part.(object)["name"])
		}
		return names
	}
	same(t, "names", `["approval:jwog17","webhook",null]`, names(""))
	same(t, "names without tokens", `[null,"webhook",null]`, names(reader))
	sentence := func(key string) any {
		_, e := a.as(t, key, http.MethodGet, "/v1/runs/"+string(id)+"/why", "")
		if strings.Contains(mustJSON(t, e), "classified") || key != "" && strings.Contains(mustJSON(t, e), "jwog17") {
			t.Errorf("a token is in %v", e)
		}
		return e["reasons"].([]any)[0].(object)["sentence"]
	}
	same(t, "sentence", `"Nobody has resumed hook approval:jwog17."`, sentence(""))
	summary := func(key string) any {
		_, page := a.as(t, key, http.MethodGet, "/v1/runs?include=reason", "")
		if key != "" && strings.Contains(mustJSON(t, page), "jwog17") {
			t.Errorf("a token is in %v", page)
		}
		return page["data"].([]any)[0].(object)["reason"].(object)["summary"]
	}
	same(t, "summary", `"waits for hook approval:jwog17"`, summary(""))
	same(t, "summary without tokens", `"waits for hook hook_01JD5A8R8D0000000000000001"`, summary(reader))
	same(t, "sentence without tokens", `"Nobody has resumed hook hook_01JD5A8R8D0000000000000001."`, sentence(reader))
}

// TestTimelineIsCut: of a step that is tried very often, the last attempts are shown.
func TestTimelineIsCut(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	a.event(t, id, entities.EventStepCreated, on("x"), data(func(d *entities.EventData) { d.StepName = "x" }))
	for n := range read.MaxLater + 1 {
		part := a.get(t, "/v1/runs/"+string(id)+"/timeline")["data"].([]any)[0].(object)
		attempts, _ := part["attempts"].([]any)
		if len(attempts) != n || part["cut"] != nil {
			t.Fatalf("after %d attempts: got %v", n, part)
		}
		a.event(t, id, entities.EventStepStarted, on("x"))
	}
	part := a.get(t, "/v1/runs/"+string(id)+"/timeline")["data"].([]any)[0].(object)
	if attempts := part["attempts"].([]any); len(attempts) != read.MaxLater || part["cut"] != true ||
		attempts[0].(object)["seq"] != 4.0 {
		t.Errorf("got %v", part)
	}
}

// TestTimelineOfNames has five steps of two names: some are done, one failed after a retry, one is open.
func TestTimelineOfNames(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	path := "/v1/runs/" + string(id) + "/timeline"
	step := func(id string) func(*eventlog.Request) {
		return data(func(d *entities.EventData) { d.StepName = strings.TrimRight(id, "0123456789") })
	}
	for _, x := range []string{"item1", "item2", "item3", "charge1", "charge2"} {
		a.event(t, id, entities.EventStepCreated, on(x), step(x))
	}
	for _, x := range []string{"item1", "item2", "charge1"} {
		a.event(t, id, entities.EventStepStarted, on(x))
	}
	a.event(t, id, entities.EventStepRetrying, on("item2"))
	a.event(t, id, entities.EventStepStarted, on("item2"))
	a.event(t, id, entities.EventStepFailed, on("item2"))
	a.event(t, id, entities.EventStepCompleted, on("item1"))
	a.event(t, id, entities.EventStepCompleted, on("charge1"))
	ones := "[" + strings.Repeat("0,", read.Buckets-1) + "0]"
	density := func(n int) string { return strings.Replace(ones, "0", fmt.Sprint(n), 1) } // the test's clock stands
	same(t, "names", fmt.Sprintf(`{"steps":5,"names":2,"data":[
		{"name":"item","count":3,"pending":1,"running":0,"completed":1,"failed":1,"retried":1,"p50Ms":0,"maxMs":0,"slowest":"item1",
			"firstAt":"%[1]s","lastAt":"%[1]s","density":%[2]s},
		{"name":"charge","count":2,"pending":1,"running":0,"completed":1,"failed":0,"retried":0,"p50Ms":0,"maxMs":0,"slowest":"charge1",
			"firstAt":"%[1]s","lastAt":"%[1]s","density":%[3]s}]}`, at0, density(3), density(2)),
		any(a.get(t, path+"/names")))
	for query, want := range map[string]string{
		"?name=item": "item1 item2 item3", "?name=item&status=failed": "item2", "?status=completed&status=failed": "item1 item2 charge1",
		"?name=none": "", "?status=pending&order=desc": "charge2 item3",
	} {
		var got []string
		for _, part := range a.all(t, path+query, "2") {
			got = append(got, part["id"].(string))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	a.wantRejected(t, http.MethodGet, path+"?status=done", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodGet, path+"?cursor=x", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodGet, path+"/names?cursor=x", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_none/timeline/names", "", http.StatusNotFound, "run_not_found")
}

// TestTimelineHasRecordedTimes: of a step that the function made itself, the times of the execution are shown, unless they
// are later than the server's.
func TestTimelineHasRecordedTimes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	for x, end := range map[string]time.Time{"right": t0.Add(-time.Second), "ahead": t0.Add(time.Second)} {
		a.event(t, id, entities.EventStepCreated, on(x), data(func(d *entities.EventData) { d.StepName = x }))
		a.event(t, id, entities.EventStepCompleted, on(x), data(func(d *entities.EventData) {
			d.StartedAt, d.EndedAt = pointer(end.Add(-time.Second)), &end
		}))
	}
	for x, want := range map[string]string{"right": "2026-11-21T01:41:41.197Z 2026-11-21T01:41:42.197Z", "ahead": at0 + " " + at0} {
		list := a.get(t, "/v1/runs/"+string(id)+"/timeline?name="+x)["data"].([]any)
		attempt := list[0].(object)["attempts"].([]any)[0].(object)
		check.Equal(t, x, attempt["startedAt"].(string)+" "+attempt["endedAt"].(string), want)
	}
}

// TestRecordedStepsHaveAnAttempt: a step that the function made itself and that succeeded at once was started once, and
// one that was cancelled before it began, never.
func TestRecordedStepsHaveAnAttempt(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	for x, started := range map[string]*time.Time{"made": pointer(t0), "cancelled": nil} {
		a.event(t, id, entities.EventStepCreated, on(x), data(func(d *entities.EventData) { d.StepName = x }))
		a.event(t, id, entities.EventStepFailed, on(x), data(func(d *entities.EventData) {
			d.StartedAt, d.EndedAt = started, pointer(t0)
		}))
	}
	for _, step := range a.get(t, "/v1/runs/"+string(id)+"/steps")["data"].([]any) {
		step := step.(object)
		want := map[string]float64{"made": 1, "cancelled": 0}[step["id"].(string)]
		check.Equal(t, fmt.Sprintf("the attempt of step %v", step["id"]), any(step["attempt"]), any(want))
	}
}
