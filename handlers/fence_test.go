package handlers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
)

// TestRoutesOfFenceAreAdmittedAsThoseBefore: overload treats the events of runs with a fence as it treats others.
func TestRoutesOfFenceAreAdmittedAsThoseBefore(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"/v4", "/v5"} {
		route := sdkPath + version + "/runs/:runId/events/:eventType"
		if got := policyOf(http.MethodPost, route); got != eventPolicy {
			t.Errorf("%s has the policy %v, want %v", version, got, eventPolicy)
		}
		c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), nil)
		c.SetPath(route)
		c.SetParamNames("runId", "eventType")
		c.SetParamValues("wrun_1", "run_created")
		if run, starts := startedRun(c); run != "wrun_1" || !starts {
			t.Errorf("%s: run_created starts %q: %t", version, run, starts)
		}
	}
}
