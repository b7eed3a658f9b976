package rest_test

import (
	"net/http"
	"testing"
)

// TestErrorsSayWhere: programs need not read sentences to find what is wrong.
func TestErrorsSayWhere(t *testing.T) {
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
			t.Errorf("%s %s %s: got %d %v, want 400 about the %s %s",
				tt.method, tt.path, tt.body, status, answer, tt.where, tt.name)
		}
	}
}
