package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestFlows puts versions of a flow, reads them, and starts a run of the newest one.
func TestFlows(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	put := func(body string, want int) map[string]any {
		t.Helper()
		status, got := a.do(t, http.MethodPost, "/v1/flows", body)
		if status != want {
			t.Fatalf("%s: got %d %v, want %d", body, status, got, want)
		}
		return got
	}
	const document = `{"document":"flow: greet\nsteps: {text: {set: 1}}"}`
	if got := put(document, http.StatusCreated); got["version"] != 1.0 || got["deployment"] != "greet@1" {
		t.Errorf("the first version is %v", got)
	}
	put(document, http.StatusOK)
	put(`{"document":"flow: greet\nsteps: {text: {set: 2}}","dryRun":true}`, http.StatusOK)
	if got := a.get(t, "/v1/flows/greet"); got["version"] != 1.0 {
		t.Errorf("after a dry run, the newest version is %v", got)
	}
	put(`{"document":"flow: greet\nsteps: {text: {set: 2}}"}`, http.StatusCreated)
	if got := a.get(t, "/v1/flows/greet?version=1"); got["document"] != "flow: greet\nsteps: {text: {set: 1}}" ||
		len(got["versions"].([]any)) != 2 {
		t.Errorf("version 1 is %v", got)
	}
	if list := fmt.Sprint(a.get(t, "/v1/flows")["data"]); !strings.Contains(list, "version:2") || strings.Contains(list, "version:1") {
		t.Errorf("the list is %s", list)
	}
	status, run := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"greet"}`)
	if status != http.StatusCreated || run["deployment"] != "greet@2" {
		t.Errorf("start: got %d %v", status, run)
	}

	a.wantRejected(t, http.MethodGet, "/v1/flows/nobody", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/flows/greet?version=9", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/flows", `{"document":"flow: a"}`, http.StatusUnprocessableEntity, "invalid_flow")
	a.wantRejected(t, http.MethodPut, "/v1/deployments/greet@1", `{"url":"http://app.test"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodDelete, "/v1/deployments/greet@1", "", http.StatusBadRequest, "invalid_request")
	_, got := a.do(t, http.MethodPost, "/v1/flows", `{"document":"flow: a\nsteps: {b: {sett: 1}, c: {needs: z, set: 2}}"}`)
	if faults := fmt.Sprint(got["error"]); strings.Count(faults, "line:2") != 3 {
		t.Errorf("got %s, want three faults in line 2", faults)
	}
}
