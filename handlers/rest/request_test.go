package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatIsNotDescribedIsRefused, with its name.
func TestWhatIsNotDescribedIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, tt := range []struct {
		method, path, body string
		details            map[string]any
	}{
		{"GET", "/v1/messages?colour=red", "", map[string]any{"parameter": "colour"}},
		{"GET", "/v1/messages?limit=1&limit=2", "", map[string]any{"parameter": "limit"}},
		{"GET", "/v1/messages?limit=0", "", map[string]any{"parameter": "limit"}},
		{"GET", "/v1/messages?order=up", "", map[string]any{"parameter": "order"}},
		{"GET", "/v1/messages?runId=%00", "", map[string]any{"parameter": "runId"}},
		{"GET", "/v1/messages?runId=%C3", "", map[string]any{"parameter": "runId"}},
		{"GET", "/v1/messages?%zz", "", nil},
		{"DELETE", "/v1/deployments/a?force=true", "", map[string]any{"parameter": "force"}},
		{"PUT", "/v1/deployments/a", `{"url":"http://x","URL":"http://y"}`, map[string]any{"field": "URL"}},
		{"PUT", "/v1/deployments/a", `{"url":7}`, map[string]any{"field": "url"}},
		{"PUT", "/v1/deployments/a", `{"url":"http://x","workflows":["a",null]}`, map[string]any{"field": "workflows[1]"}},
		{"PUT", "/v1/deployments/a", `[]`, map[string]any{"field": "body"}},
		{"PUT", "/v1/deployments/a", `{"url":"http://x"} {}`, nil},
		{"PUT", "/v1/deployments/a", "{\"url\":\"http://\xff\"}", nil},
	} {
		status, answer := a.do(t, tt.method, tt.path, tt.body)
		problem, _ := answer["error"].(map[string]any)
		details, _ := problem["details"].(map[string]any)
		if status != http.StatusBadRequest || problem["code"] != "invalid_request" || cmp.Diff(tt.details, details) != "" {
			t.Errorf("%s %s %s: got %d %v, want details %v", tt.method, tt.path, tt.body, status, answer, tt.details)
		}
	}
}

// TestBodiesAreJSON, or are said to be by nobody.
func TestBodiesAreJSON(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for kind, want := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "application/": 415,
	} {
		r := httptest.NewRequest(http.MethodPut, "/v1/deployments/a", strings.NewReader(`{"url":"http://x"}`))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", kind, w.Code, w.Body, want)
		}
	}
}
