package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// politeFunction serves two workflows that wait for a hook. When "polite" is asked to cancel, it makes a refund and
// ends. "rude" does not answer any more.
func politeFunction(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	rude := make(chan struct{}, 100)
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c functionCall
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		switch {
		case c.Type == "step":
		case !c.has("cancel_requested", ""):
			_, _ = w.Write([]byte(`{"commands": [{"type": "runStep", "id": "charge"}, {"type": "openHook", "id": "h"}]}`))
		case c.Run.Workflow == "rude":
			rude <- struct{}{}
			<-r.Context().Done()
		case !c.has("step_completed", "refund"):
			_, _ = w.Write([]byte(`{"commands": [{"type": "runStep", "id": "refund"}]}`))
		default:
			_, _ = w.Write([]byte(`{"commands": [{"type": "cancelled"}]}`))
		}
	}))
	t.Cleanup(f.Close)
	return f.URL, rude
}

// TestCancellationSurvivesServerCrash kills the server once a run that ignores its cancellation has been asked. After
// the restart it is ended when its grace is over. Another run compensates, whichever server calls it.
func TestCancellationSurvivesServerCrash(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	url, asked := politeFunction(t)
	s.register(t, "functions", url)
	start := func(workflow string) (id string) {
		t.Helper()
		r := request(t, http.MethodPost, s.url()+"/v1/runs", []byte(`{"workflow": "`+workflow+`", "deployment": "functions"}`))
		return decode[struct{ ID string }](t, r.Want(t, http.StatusCreated)).ID
	}
	rude, polite := start("rude"), start("polite")
	for id, grace := range map[string]string{rude: "2s", polite: "1h"} {
		s.waitFor(t, id, "step_completed")
		request(t, http.MethodPost, s.url()+"/v1/runs/"+id+"/cancel", []byte(`{"reason": "twice", "grace": "`+grace+`"}`)).
			Want(t, http.StatusOK)
	}
	<-asked
	s.Kill()
	s.start(t)
	for _, id := range []string{rude, polite} {
		s.waitFor(t, id, "run_cancelled")
	}
	if refunds := len(s.log(t, polite).of("step_completed")); refunds != 2 {
		t.Errorf("the polite run has %d results of steps, want the charge and the refund", refunds)
	}
	for _, id := range []string{rude, polite} {
		run := decode[struct{ Status, CancelReason string }](t, request(t, http.MethodGet, s.url()+"/v1/runs/"+id, nil))
		if run.Status != "cancelled" || run.CancelReason != "twice" {
			t.Errorf("got %+v, want it cancelled", run)
		}
	}
	s.verify(t)
}
