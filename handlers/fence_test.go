package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestRoutesOfFenceAreAdmittedAsThoseBefore: overload treats the events of runs with a fence as it treats others.
func TestRoutesOfFenceAreAdmittedAsThoseBefore(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"/v4", "/v5"} {
		route := sdkPath + version + "/runs/:runId/events/:eventType"
		check.Equal(t, fmt.Sprintf("%s has the policy", version), policyOf(http.MethodPost, route), eventPolicy)
		c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), nil)
		c.SetPath(route)
		c.SetParamNames("runId", "eventType")
		c.SetParamValues("wrun_1", "run_created")
		if run, starts := startedRun(c); run != "wrun_1" || !starts {
			t.Errorf("%s: run_created starts %q: %t", version, run, starts)
		}
	}
}
