package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestUnknownFieldsAndParametersAreRejected checks that the error names them.
func TestUnknownFieldsAndParametersAreRejected(t *testing.T) {
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

// TestContentTypeMustBeJSON checks that a missing Content-Type is accepted too.
func TestContentTypeMustBeJSON(t *testing.T) {
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

// TestErrorDetailsNameTheInvalidPart checks that programs need not parse messages.
func TestErrorDetailsNameTheInvalidPart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const post, get, put = http.MethodPost, http.MethodGet, http.MethodPut
	for _, tt := range []struct{ method, path, body, where, name string }{
		{post, "/v1/runs", `{}`, "field", "workflow"},
		{post, "/v1/runs", `{"workflow":"order","deployment":"a b"}`, "field", "deployment"},
		{post, "/v1/runs", `{"workflow":"order","attributes":{"$a":"b"}}`, "field", "attributes"},
		{post, "/v1/runs", `{"workflow":"order","key":"\u0000"}`, "field", "key"},
		{post, "/v1/runs", `{"workflow":"order","parent":"a b"}`, "field", "parent"},
		{post, "/v1/runs/cancel", `{"status":"x"}`, "field", "status"},
		{put, "/v1/secrets/s", `{"values":[]}`, "field", "values"},
		{get, "/v1/runs?status=x", "", "parameter", "status"},
		{get, "/v1/runs?attribute.=x", "", "parameter", "attribute"},
		{get, "/v1/runs?cursor=x", "", "parameter", "cursor"},
		{get, "/v1/events?cursor=x", "", "parameter", "cursor"},
		{get, "/v1/events/stream?after=x", "", "parameter", "after"},
		{get, "/v1/messages?state=x", "", "parameter", "state"},
		{get, "/v1/runs/a%20b", "", "parameter", "id"},
		{get, "/v1/runs/wrun_x/events/0", "", "parameter", "seq"},
	} {
		status, answer := a.do(t, tt.method, tt.path, tt.body)
		problem, _ := answer["error"].(object)
		details, _ := problem["details"].(object)
		if status != http.StatusBadRequest || details[tt.where] != tt.name || len(details) != 1 {
			t.Errorf("%s %s %s: got %d %v, want 400 for the %s %s",
				tt.method, tt.path, tt.body, status, answer, tt.where, tt.name)
		}
	}
}

// TestEmptyValuesAreRejected checks that a script with an unset variable neither loses its idempotency key, nor cancels or
// lists more than intended.
func TestEmptyValuesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	for _, tt := range []struct{ method, path, body, wrong string }{
		{http.MethodPost, "/v1/runs", `{"workflow":"order","idempotencyKey":""}`, "idempotencyKey"},
		{http.MethodPost, "/v1/runs", `{"workflow":"order","key":""}`, "key"},
		{http.MethodPost, "/v1/runs", `{"workflow":"order","timeout":""}`, "timeout"},
		{http.MethodPost, "/v1/runs/cancel", `{"createdBefore":"2030-01-01T00:00:00Z","parentId":""}`, "parentId"},
		{http.MethodPost, "/v1/runs/cancel", `{"workflow":"order","status":""}`, "status"},
		{http.MethodPost, "/v1/runs/" + string(id) + "/hooks/h/resume", `{"payload":1,"resumeId":""}`, "resumeId"},
		{http.MethodPost, "/v1/signals/paid", `{"id":""}`, "id"},
		{http.MethodGet, "/v1/runs?key=", "", "key"},
		{http.MethodGet, "/v1/messages?runId=", "", "runId"},
	} {
		status, answer := a.do(t, tt.method, tt.path, tt.body)
		problem, _ := answer["error"].(object)
		details, _ := problem["details"].(object)
		if status != http.StatusBadRequest || details["field"] != tt.wrong && details["parameter"] != tt.wrong {
			t.Errorf("%s %s %s: got %d %v, want 400 for %s", tt.method, tt.path, tt.body, status, answer, tt.wrong)
		}
	}
	check.Equal(t, "the run", a.get(t, "/v1/runs/"+string(id))["status"], "pending")
	if got := a.get(t, "/v1/runs?attribute.tier=")["data"].([]any); len(got) != 0 {
		t.Errorf("got %v, want the runs whose tier is empty", got)
	}
}
