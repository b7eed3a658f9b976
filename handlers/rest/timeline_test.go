package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// TestTimeline has a step, a hook and a wait of one ID, a step that is repeated, and one that its run abandons.
func TestTimeline(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	path := "/v1/runs/" + string(id) + "/timeline"
	name := data(func(d *entities.EventData) { d.StepName = "charge" })
	a.event(t, id, entities.EventStepCreated, on("x"), name)
	a.event(t, id, entities.EventStepStarted, on("x"))
	a.event(t, id, entities.EventStepStarted, on("x"))
	a.event(t, id, entities.EventStepRetrying, on("x"), data(func(d *entities.EventData) { d.ErrorCode = "busy" }))
	a.event(t, id, entities.EventHookCreated, on("x"), data(func(d *entities.EventData) { d.Token = "T" }))
	a.event(t, id, entities.EventHookReceived, on("x"), with(`1`))
	a.event(t, id, entities.EventWaitCreated, on("x"), data(func(d *entities.EventData) { d.ResumeAt = &later }))
	a.event(t, id, entities.EventWaitCompleted, on("x"))
	a.event(t, id, entities.EventStepStarted, on("x"))
	want := `[
		{"kind":"step","id":"x","name":"charge","status":"%[2]s","seq":2,"createdAt":"%[1]s"%[3]s,"attempts":[
			{"seq":3,"startedAt":"%[1]s","endedAt":"%[1]s","outcome":"lost"},
			{"seq":4,"startedAt":"%[1]s","endedAt":"%[1]s","outcome":"retrying","code":"busy"},
			{"seq":10,"startedAt":"%[1]s"%[4]s}]},
		{"kind":"hook","id":"x","status":"%[5]s","seq":6,"createdAt":"%[1]s"%[6]s,"received":[{"seq":7,"at":"%[1]s"}]},
		{"kind":"wait","id":"x","status":"completed","seq":8,"createdAt":"%[1]s","endedAt":"%[1]s","resumeAt":"2026-11-21T02:41:43.197Z"}]`
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
	check("completed", ended, ended+`,"outcome":"completed"`, "active", "")
	a.event(t, id, entities.EventRunCancelled)
	check("completed", ended, ended+`,"outcome":"completed"`, "abandoned", ended)
	a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_none/timeline", "", http.StatusNotFound, "run_not_found")
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
