package rest_test

import (
	"net/http"
	"testing"
)

// TestEmptyTextsAreNotMissing: a script whose variable is not set neither loses what makes its request safe to repeat,
// nor cancels or lists more than it meant.
func TestEmptyTextsAreNotMissing(t *testing.T) {
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
			t.Errorf("%s %s %s: got %d %v, want 400 about %s", tt.method, tt.path, tt.body, status, answer, tt.wrong)
		}
	}
	if got := a.get(t, "/v1/runs/"+string(id))["status"]; got != "pending" {
		t.Errorf("the run is %v, want pending", got)
	}
	if got := a.get(t, "/v1/runs?attribute.tier=")["data"].([]any); len(got) != 0 {
		t.Errorf("got %v, want those whose tier is empty", got)
	}
}
