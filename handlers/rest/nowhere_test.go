package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRequestsThatNoOperationIsFor are told which methods a path takes, or that there is no such path.
func TestRequestsThatNoOperationIsFor(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, tt := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{http.MethodPut, "/v1/runs", 405, "method_not_allowed", "GET, POST"},
		{http.MethodPut, "/v1/runs?limit=1", 405, "method_not_allowed", "GET, POST"},
		{http.MethodDelete, "/v1/runs/wrun_x", 405, "method_not_allowed", "GET"},
		{http.MethodPost, "/v1/deployments/a%2Fb", 405, "method_not_allowed", "DELETE, GET, PUT"},
		{http.MethodGet, "/v1/runs/wrun_x/cancel", 405, "method_not_allowed", "POST"},
		{http.MethodPost, "/v1/openapi.json", 405, "method_not_allowed", "GET"},
		{http.MethodGet, "/v1/runs/", 404, "not_found", ""},
		{http.MethodGet, "/v1/nothing?x=1", 404, "not_found", ""},
		{http.MethodGet, "/v1/", 404, "not_found", ""},
	} {
		a.wantRefused(t, tt.method, tt.path, "", tt.status, tt.code)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if got := w.Header().Get("Allow"); got != tt.allow {
			t.Errorf("%s %s: got Allow %q, want %q", tt.method, tt.path, got, tt.allow)
		}
	}
}
