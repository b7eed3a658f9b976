package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestErrorsNameTheInvalidPart, so that programs need not parse messages. An empty value is refused: a script with an unset
// variable neither loses its idempotency key, nor cancels or lists more than intended.
func TestErrorsNameTheInvalidPart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := string(a.driven(t, "order"))
	const post, get, put, deployment = http.MethodPost, http.MethodGet, http.MethodPut, "/v1/deployments/a"
	for _, tt := range []struct{ method, path, body, part string }{
		{get, "/v1/messages?colour=red", "", "parameter colour"},
		{get, "/v1/messages?limit=1&limit=2", "", "parameter limit"},
		{get, "/v1/messages?limit=0", "", "parameter limit"},
		{get, "/v1/messages?order=up", "", "parameter order"},
		{get, "/v1/messages?runId=%00", "", "parameter runId"},
		{get, "/v1/messages?runId=%C3", "", "parameter runId"},
		{get, "/v1/messages?state=x", "", "parameter state"},
		{get, "/v1/messages?%zz", "", ""},
		{http.MethodDelete, deployment + "?force=true", "", "parameter force"},
		{put, deployment, `{"url":"http://x","URL":"http://y"}`, "field URL"},
		{put, deployment, `{"url":7}`, "field url"},
		{put, deployment, `{"url":"http://x","workflows":["a",null]}`, "field workflows[1]"},
		{put, deployment, `[]`, "field body"},
		{put, deployment, `{"url":"http://x"} {}`, ""},
		{put, deployment, "{\"url\":\"http://\xff\"}", ""},
		{post, "/v1/runs", `{}`, "field workflow"},
		{post, "/v1/runs", `{"workflow":"order","deployment":"a b"}`, "field deployment"},
		{post, "/v1/runs", `{"workflow":"order","attributes":{"$a":"b"}}`, "field attributes"},
		{post, "/v1/runs", `{"workflow":"order","key":"\u0000"}`, "field key"},
		{post, "/v1/runs", `{"workflow":"order","parent":"a b"}`, "field parent"},
		{post, "/v1/runs/cancel", `{"status":"x"}`, "field status"},
		{put, "/v1/secrets/s", `{"values":[]}`, "field values"},
		{get, "/v1/runs?status=x", "", "parameter status"},
		{get, "/v1/runs?attribute.=x", "", "parameter attribute"},
		{get, "/v1/runs?cursor=x", "", "parameter cursor"},
		{get, "/v1/events?cursor=x", "", "parameter cursor"},
		{get, "/v1/events/stream?after=x", "", "parameter after"},
		{get, "/v1/runs/a%20b", "", "parameter id"},
		{get, "/v1/runs/wrun_x/events/0", "", "parameter seq"},

		{post, "/v1/runs", `{"workflow":"order","idempotencyKey":""}`, "field idempotencyKey"},
		{post, "/v1/runs", `{"workflow":"order","key":""}`, "field key"},
		{post, "/v1/runs", `{"workflow":"order","timeout":""}`, "field timeout"},
		{post, "/v1/runs/cancel", `{"createdBefore":"2030-01-01T00:00:00Z","parentId":""}`, "field parentId"},
		{post, "/v1/runs/cancel", `{"workflow":"order","status":""}`, "field status"},
		{post, "/v1/runs/" + id + "/hooks/h/resume", `{"payload":1,"resumeId":""}`, "field resumeId"},
		{post, "/v1/signals/paid", `{"id":""}`, "field id"},
		{get, "/v1/runs?key=", "", "parameter key"},
		{get, "/v1/messages?runId=", "", "parameter runId"},
	} {
		var want object
		if kind, name, ok := strings.Cut(tt.part, " "); ok {
			want = object{kind: name}
		}
		problem, _ := a.send(t, tt.method, tt.path, tt.body, http.StatusBadRequest)["error"].(object)
		details, _ := problem["details"].(object)
		what := fmt.Sprint(tt.method, tt.path, tt.body)
		check.Equal(t, what+": code", problem["code"], "invalid_request")
		check.Equal(t, what+": details", details, want)
	}
	check.Equal(t, "the run", a.get(t, "/v1/runs/"+id)["status"], "pending")
	if got := a.get(t, "/v1/runs?attribute.tier=")["data"].([]any); len(got) != 0 {
		t.Errorf("got %v, want the runs whose tier is empty", got)
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
		w := a.serve(http.MethodPut, "/v1/deployments/a", `{"url":"http://x"}`, "Content-Type", kind)
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", kind, w.Code, w.Body, want)
		}
	}
}
