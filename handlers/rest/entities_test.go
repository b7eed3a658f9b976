package rest_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	a.event(t, id, entities.EventRunStarted)
	create := func(step string, spec *entities.StepSpec) {
		a.event(t, id, entities.EventStepCreated, on(step), with(`[1]`),
			data(func(d *entities.EventData) { d.StepName, d.Step = "name of "+step, spec }))
	}
	create("charge:é", &entities.StepSpec{DeploymentID: "payments"})
	create("ship", nil)
	create("later", nil)
	for _, step := range []string{"charge:é", "ship", "later"} {
		a.event(t, id, entities.EventStepStarted, on(step))
	}
	a.event(t, id, entities.EventStepCompleted, on("charge:é"), with(`{"ok":true}`))
	a.event(t, id, entities.EventStepFailed, on("ship"), with(`{"message":"no"}`),
		data(func(d *entities.EventData) { d.ErrorCode = "E" }))
	a.event(t, id, entities.EventStepRetrying, on("later"), with(`{"message":"not yet"}`),
		data(func(d *entities.EventData) { d.RetryAfter = &later }))

	path := "/v1/runs/" + string(id) + "/steps"
	head := func(step, status string) string {
		return `{"id":"` + step + `","runId":"` + string(id) + `","name":"name of ` + step + `","status":"` + status +
			`","attempt":1,"createdAt":"` + at0 + `","startedAt":"` + at0 + `"`
	}
	done := `,"completedAt":"` + at0 + `"`
	retry := `,"retryAfter":"2026-11-21T02:41:43.197Z"`
	charge, ship, wait := head("charge:é", "completed")+done, head("ship", "failed")+done, head("later", "pending")+retry
	var all []any
	for _, step := range a.all(t, path, "2") {
		all = append(all, step)
	}
	same(t, "list", "["+charge+"},"+ship+"},"+wait+"}]", all)
	same(t, "backwards", "["+wait+"}]", a.get(t, path+"?limit=1&order=desc")["data"])
	input := `,"input":[1],"inputEncoding":"json"`
	same(t, "charge", charge+input+`,"deployment":"payments","output":{"ok":true},"outputEncoding":"json"}`,
		a.get(t, path+"/"+url.PathEscape("charge:é")))
	same(t, "ship", ship+input+`,"error":{"code":"E","message":"no"}}`, a.get(t, path+"/ship"))
	same(t, "later", wait+input+`,"error":{"message":"not yet"}}`, a.get(t, path+"/later"))
	a.wantRejected(t, http.MethodGet, path+"/other", "", http.StatusNotFound, "step_not_found")
	a.wantRejected(t, http.MethodGet, path+"?cursor=x", "", http.StatusBadRequest, "invalid_request")
}

func TestHooks(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	hook := func(id entities.RunID, hookID, token string, change ...func(*entities.EventData)) {
		t.Helper()
		a.event(t, id, entities.EventHookCreated, on(hookID), with(`{"for":"`+hookID+`"}`), data(func(d *entities.EventData) {
			d.Token = token
			for _, c := range change {
				c(d)
			}
		}))
	}
	one, two := a.driven(t, "order"), a.driven(t, "order")
	hook(one, "active", "t1", func(d *entities.EventData) { d.IsWebhook, d.Signal, d.Condition = pointer(true), "paid", "true" })
	hook(one, "gone", "t2")
	a.event(t, one, entities.EventHookReceived, on("gone"), with(`1`))
	a.event(t, one, entities.EventHookDisposed, on("gone"))
	hook(two, "loser", "t1")
	hook(two, "kept", "t3", func(d *entities.EventData) { d.TokenRetentionUntil = &later })
	a.event(t, two, entities.EventRunCompleted)

	form := func(hookID string, run entities.RunID, token, rest string) string {
		return `{"id":"` + hookID + `","runId":"` + string(run) + `","token":"` + token + `","createdAt":"` + at0 + `",` + rest
	}
	const ofOrder = `,"workflow":"order"`
	active := form("active", one, "t1", `"status":"active","webhook":true,"signal":"paid","condition":"true"`)
	gone := form("gone", one, "t2", `"status":"disposed","webhook":false,"receivedAt":"`+at0+`","disposedAt":"`+at0+`"`)
	kept := form("kept", two, "t3", `"status":"retained","webhook":false,"retainedUntil":"2026-11-21T02:41:43.197Z"`)
	loser := form("loser", two, "t1", `"status":"conflict","webhook":false,"conflictingRunId":"`+string(one)+`"`)
	same(t, "there now", "["+active+ofOrder+"},"+kept+ofOrder+"}]", a.get(t, "/v1/hooks")["data"])
	for query, want := range map[string]string{
		"?workflow=order&order=desc": kept + ofOrder + "}," + active + ofOrder + "}", "?workflow=refund": "",
		"?tokenPrefix=t": active + ofOrder + "}," + kept + ofOrder + "}", "?tokenPrefix=t3": kept + ofOrder + "}",
		"?tokenPrefix=t&cursor=t1": kept + ofOrder + "}", "?olderThan=1h": "",
	} {
		same(t, query, "["+want+"]", a.get(t, "/v1/hooks"+query)["data"])
	}
	if got := a.all(t, "/v1/hooks?tokenPrefix=t", "1"); len(got) != 2 {
		t.Errorf("got %d hooks by token, one to a page", len(got))
	}
	a.wantRejected(t, http.MethodGet, "/v1/hooks?tokenPrefix=x&cursor=t1", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/hooks?olderThan=long", "", http.StatusBadRequest, "invalid_request")
	ofOne, ofTwo := "/v1/runs/"+string(one)+"/hooks", "/v1/runs/"+string(two)+"/hooks"
	same(t, "of one", "["+active+"},"+gone+"}]", a.get(t, ofOne)["data"])
	same(t, "of two, backwards", "["+kept+"},"+loser+"}]", a.get(t, ofTwo+"?order=desc")["data"])
	if got := a.all(t, ofTwo, "1"); len(got) != 2 {
		t.Errorf("got %d hooks of two, one to a page", len(got))
	}
	same(t, "one", gone+`,"metadata":{"for":"gone"},"metadataEncoding":"json"}`, a.get(t, ofOne+"/gone"))
	a.wantRejected(t, http.MethodGet, ofOne+"/kept", "", http.StatusNotFound, "hook_not_found")
	for _, path := range []string{ofOne, "/v1/hooks"} {
		a.wantRejected(t, http.MethodGet, path+"?cursor=x", "", http.StatusBadRequest, "invalid_request")
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	for _, wait := range []string{"one", "two"} {
		a.event(t, id, entities.EventWaitCreated, on(wait), data(func(d *entities.EventData) { d.ResumeAt = &later }))
	}
	a.event(t, id, entities.EventWaitCompleted, on("one"))
	path := "/v1/runs/" + string(id) + "/waits"
	form := func(wait, rest string) string {
		return `{"id":"` + wait + `","runId":"` + string(id) + `","resumeAt":"2026-11-21T02:41:43.197Z","createdAt":"` + at0 +
			`",` + rest + `}`
	}
	one := form("one", `"status":"completed","completedAt":"`+at0+`"`)
	first := a.driven(t, "refund")
	a.event(t, first, entities.EventWaitCreated, on("soon"), data(func(d *entities.EventData) { d.ResumeAt = pointer(later.Add(-time.Minute)) }))
	two := form("two", `"workflow":"order","status":"waiting"`)
	soon := `{"id":"soon","runId":"` + string(first) + `","workflow":"refund","resumeAt":"2026-11-21T02:40:43.197Z","createdAt":"` +
		at0 + `","status":"waiting"}`
	same(t, "of all runs", "["+soon+","+two+"]", a.get(t, "/v1/waits")["data"])
	same(t, "of all runs, backwards", "["+two+","+soon+"]", a.get(t, "/v1/waits?order=desc")["data"])
	same(t, "of a workflow", "["+two+"]", a.get(t, "/v1/waits?workflow=order")["data"])
	if got := a.all(t, "/v1/waits", "1"); len(got) != 2 || got[1]["id"] != "two" {
		t.Errorf("got %v, one wait to a page", got)
	}
	a.wantRejected(t, http.MethodGet, "/v1/waits?cursor=x", "", http.StatusBadRequest, "invalid_request")
	same(t, "while it runs", "["+one+","+form("two", `"status":"waiting"`)+"]", a.get(t, path)["data"])
	a.event(t, id, entities.EventRunCancelled)
	same(t, "after its end", "["+form("two", `"status":"abandoned"`)+","+one+"]", a.get(t, path+"?order=desc")["data"])
	if got := a.all(t, path, "1"); len(got) != 2 {
		t.Errorf("got %d waits, one to a page", len(got))
	}
}

func TestGetAttributes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	none := a.driven(t, "order")
	same(t, "none", `{"attributes":{}}`, a.get(t, "/v1/runs/"+string(none)+"/attributes"))
	some := a.driven(t, "order", func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"a": "b"} })
	same(t, "some", `{"attributes":{"a":"b"}}`, a.get(t, "/v1/runs/"+string(some)+"/attributes"))
}
