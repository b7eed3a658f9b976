package rest_test

import (
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// continues ends a run that goes on as another one, and returns that. It has read its notes up to the position.
func (a api) continues(t *testing.T, id entities.RunID, read int64) entities.RunID {
	t.Helper()
	next := eventlog.NewRun(a.log.Now(), []byte(`2`), entities.EventData{DeploymentID: "orders", WorkflowName: "order"})
	a.event(t, id, entities.EventRunCompleted, func(r *eventlog.Request) {
		r.Continue = &eventlog.Continuation{Next: next, Read: map[entities.HookID]int64{"inbox:notes": read}}
	})
	return next.RunID
}

// TestRequestsFollowARunThatContinues: waiting, messages, cancelling and joining mean the last run.
func TestRequestsFollowARunThatContinues(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first := a.startedID(t, `{"workflow":"order","key":"k","inbox":["notes"]}`, http.StatusCreated)
	run := "/v1/runs/" + string(first)
	sends := func(message string, at entities.RunID, repeated bool) {
		t.Helper()
		got := a.post(t, run+"/inbox/notes", message, http.StatusOK)
		delete(got, "seq")
		want := object{"repeated": repeated}
		if at != first {
			want["runId"] = string(at)
		}
		check.Equal(t, message, got, want)
	}
	waits := func(query string, at entities.RunID, status string) object {
		t.Helper()
		got := a.get(t, run+"/wait?timeout=10ms"+query)
		if got["id"] != string(at) || got["status"] != status {
			t.Errorf("waiting%s: got %v, %v, want %s, %s", query, got["id"], got["status"], at, status)
		}
		return got
	}
	sends(`{"id":"m1","payload":1}`, first, false)
	second := a.continues(t, first, 0)
	third := a.continues(t, second, 0)
	sends(`{"id":"m2","payload":2}`, third, false)
	fourth := a.continues(t, third, 4)
	sends(`{"id":"m2","payload":2}`, third, true)
	sends(`{"id":"m1","payload":1}`, first, true)
	sends(`{"id":"m3","payload":3}`, fourth, false)
	check.Equal(t, "the run that is joined", a.startedID(t, `{"workflow":"order","key":"k","onConflict":"join"}`, http.StatusOK), fourth)
	waits("", fourth, "pending")
	if got := waits("&follow=false", first, "completed"); got["continuedAs"] != string(second) {
		t.Errorf("the first run continues as %v, want %s", got["continuedAs"], second)
	}
	a.post(t, run+"/cancel", `{}`, http.StatusOK)
	if got := waits("", fourth, "cancelled"); got["continuedFrom"] != string(third) {
		t.Errorf("the last run continues %v, want %s", got["continuedFrom"], third)
	}
	a.wantRejected(t, http.MethodPost, run+"/inbox/notes", `{"payload":3}`, http.StatusGone, "run_ended")
}
