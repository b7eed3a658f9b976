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

// TestAliases starts runs by an alias, moves it, and retires the version that it pointed to.
func TestAliases(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, document := range []string{"flow: greet\\nsteps: {text: {set: 1}}", "flow: greet\\nsteps: {text: {set: 2}}"} {
		if status, got := a.do(t, http.MethodPost, "/v1/flows", `{"document":"`+document+`"}`); status != http.StatusCreated {
			t.Fatalf("got %d %v", status, got)
		}
	}
	start := func(deployment string) (id, of any) {
		t.Helper()
		status, run := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"`+deployment+`"}`)
		if status != http.StatusCreated {
			t.Fatalf("got %d %v", status, run)
		}
		return run["id"], run["deployment"]
	}
	put := func(version string) {
		t.Helper()
		status, got := a.do(t, http.MethodPut, "/v1/flows/greet/aliases/prod", `{"version":`+version+`}`)
		if status != http.StatusOK || got["deployment"] != "greet@prod" {
			t.Fatalf("got %d %v", status, got)
		}
	}
	put("1")
	run, of := start("greet@prod")
	if of != "greet@1" {
		t.Errorf("the run has %v, want greet@1", of)
	}
	put("2")
	if _, of := start("greet@prod"); of != "greet@2" {
		t.Errorf("after the move, a run has %v, want greet@2", of)
	}
	a.wantRejected(t, http.MethodPut, "/v1/deployments/greet@prod", `{"url":"http://app.test"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPut, "/v1/deployments/mine", `{"url":"flow:greet@1"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/2/retire", "", http.StatusConflict, "flow_in_use")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/9/retire", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/1/retire", "", http.StatusConflict, "flow_in_use") // its run is open
	if status, got := a.do(t, http.MethodPost, fmt.Sprintf("/v1/runs/%v/cancel", run), "{}"); status != http.StatusOK {
		t.Fatalf("cancel: got %d %v", status, got)
	}
	if status, got := a.do(t, http.MethodPost, "/v1/flows/greet/versions/1/retire", ""); status != http.StatusOK || got["retiredAt"] == nil {
		t.Fatalf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"greet@1"}`, http.StatusConflict, "flow_retired")
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"greet@none"}`, http.StatusNotFound, "deployment_not_found")
	if status, got := a.do(t, http.MethodDelete, "/v1/flows/greet/aliases/prod", ""); status != http.StatusNoContent {
		t.Errorf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodDelete, "/v1/flows/greet/aliases/prod", "", http.StatusNotFound, "alias_not_found")
}
