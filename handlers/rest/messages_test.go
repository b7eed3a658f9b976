package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var ids []string
	for range 3 {
		id := check.Value(a.queue.Send(t.Context(), message.Message{
			Project: entities.DefaultProject, Topic: "topic", DeploymentID: "shop", RunID: "wrun_1", ContentType: "text/plain",
		}))(t)
		ids = append(ids, id)
	}
	a.exec(t, `
		UPDATE messages SET parked_at = now(), delivery_count = 64, last_error = 'no' WHERE id = ANY($1)`, ids[1:])
	status, answer := a.do(t, http.MethodGet, "/v1/messages?state=parked&limit=1", "")
	list, _ := answer["data"].([]any)
	if status != http.StatusOK || len(list) != 1 || answer["cursor"] != ids[1] {
		t.Fatalf("parked: got %d %v, want the first of two", status, answer)
	}
	got, _ := list[0].(map[string]any)
	for key, want := range map[string]any{
		"id": ids[1], "topic": "topic", "deploymentId": "shop", "runId": "wrun_1", "state": "parked",
		"deliveryCount": 64.0, "lastError": "no",
	} {
		check.Equal(t, key, got[key], want)
	}
	for _, key := range []string{"createdAt", "dueAt", "parkedAt"} {
		if text, _ := got[key].(string); text == "" {
			t.Errorf("%s is missing", key)
		}
	}
	status, answer = a.do(t, http.MethodGet, "/v1/messages?state=parked&cursor="+ids[1], "")
	if list, _ := answer["data"].([]any); status != http.StatusOK || len(list) != 1 || answer["cursor"] != nil {
		t.Errorf("second page: got %d %v, want the last one", status, answer)
	}
	for path, want := range map[string]int{"/v1/messages": 3, "/v1/messages?state=waiting": 1, "/v1/messages?state=leased": 0} {
		status, answer := a.do(t, http.MethodGet, path, "")
		if list, _ := answer["data"].([]any); status != http.StatusOK || list == nil || len(list) != want {
			t.Errorf("%s: got %d %v, want %d", path, status, answer, want)
		}
	}
	// Its run does not exist yet, and may be one whose client must know that this is not the first delivery.
	if status, answer := a.do(t, http.MethodPost, "/v1/messages/"+ids[1]+"/retry", ""); status != http.StatusOK ||
		answer["state"] != "waiting" || answer["deliveryCount"] != 1.0 {
		t.Errorf("retry: got %d %v", status, answer)
	}
	a.send(t, http.MethodDelete, "/v1/messages/"+ids[2], "", http.StatusNoContent)
	if status, answer := a.do(t, http.MethodGet, "/v1/messages/"+ids[1], ""); status != http.StatusOK || answer["id"] != ids[1] {
		t.Errorf("get: got %d %v", status, answer)
	}
	a.wantRejected(t, http.MethodGet, "/v1/messages/"+ids[2], "", http.StatusNotFound, "message_not_found")
	a.wantRejected(t, http.MethodDelete, "/v1/messages/"+ids[2], "", http.StatusNotFound, "message_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/messages/"+ids[2]+"/retry", "", http.StatusNotFound, "message_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/messages/"+ids[0]+"/retry", "", http.StatusConflict, "conflict")
	for _, path := range []string{"?state=lost", "?limit=0", "?limit=1001", "?limit=x", "?cursor=a%20b"} {
		a.wantRejected(t, http.MethodGet, "/v1/messages"+path, "", http.StatusBadRequest, "invalid_request")
	}
}

// TestMatchingMessages: a dry run finds what the request itself then changes.
func TestMatchingMessages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	ids := make([]any, 6)
	for i := range ids {
		id := check.Value(a.queue.Send(t.Context(), message.Message{
			Project: entities.DefaultProject, Topic: "topic", DeploymentID: "shop", ContentType: "text/plain",
		}))(t)
		ids[i] = id
	}
	a.exec(t, `UPDATE messages SET parked_at = now(), last_error = 'connection refused' WHERE id = ANY ($1)`,
		ids[1:])
	counts := a.get(t, "/v1/messages/count")
	same(t, "parked", `{"count":5,"more":false}`, counts["parked"])
	same(t, "due", `{"count":1,"more":false}`, counts["due"])
	change := func(path, body string) object {
		t.Helper()
		answer := a.send(t, http.MethodPost, "/v1/messages/"+path, body, http.StatusOK)
		return answer
	}
	all := []any{ids[1], ids[2], ids[3], ids[4], ids[5]}
	text := fmt.Sprintf
	for _, tt := range []struct {
		path, body       string
		matched, changed float64
		ids              []any
		more             bool
	}{
		{"retry", `{"errorContains":"refused","dryRun":true}`, 5, 0, all, false},
		{"retry", `{"errorContains":"reset"}`, 0, 0, []any{}, false},
		{"retry", `{"deployment":"shop","limit":2}`, 2, 2, all[:2], true},
		{"retry", `{"deployment":"blog"}`, 0, 0, []any{}, false},
		{"retry", `{"state":"retrying"}`, 0, 0, []any{}, false}, // they are due, so that a repeat would reach the next ones
		{"discard", `{"state":"parked","dryRun":true}`, 3, 0, all[2:], false},
		{"discard", text(`{"messageIds":[%q,%q,"none"]}`, ids[1], ids[3]), 3, 1, []any{ids[1], ids[3], "none"}, false},
		{"discard", `{"messageIds":[]}`, 0, 0, []any{}, false},
		{"discard", ``, 2, 2, all[3:], false},
		{"discard", `{"state":"retrying"}`, 2, 2, all[:2], false},
		{"discard", `{"state":"due"}`, 1, 1, ids[:1], false},
	} {
		want := object{"matched": tt.matched, "changed": tt.changed, "messageIds": tt.ids, "more": tt.more}
		check.Equal(t, fmt.Sprintf("%s %s", tt.path, tt.body), change(tt.path, tt.body), want)
	}
	for _, body := range []string{
		`{"state":"leased"}`, `{"limit":0}`, `{"limit":1001}`, `{"state":"lost"}`, `{"deployment":"a\u0000"}`,
		`{"runId":"a\u0000"}`, `{"work":"a\u0000"}`, `{"errorContains":"a\u0000"}`, `{"messageIds":["a\u0000"]}`,
		`{"messageIds":["a"],"dryRun":true}`, `{"messageIds":["a"],"limit":1}`, `{"messageIds":["a"],"deployment":"shop"}`,
		`{"messageIds":["a"],"errorContains":"10.1.2.3"}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/messages/retry", body, http.StatusBadRequest, "invalid_request")
		a.wantRejected(t, http.MethodPost, "/v1/messages/discard", body, http.StatusBadRequest, "invalid_request")
	}
}

// TestErrorsAreNotSearchedWithoutPayloads: a key that does not see errors cannot guess them either.
func TestErrorsAreNotSearchedWithoutPayloads(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key, _ := a.key(t, "", `{"name":"support","role":"metadata"}`)["key"].(string)
	for path, want := range map[string]int{
		"/v1/messages": http.StatusOK, "/v1/messages?errorContains=card": http.StatusForbidden,
		"/v1/hooks": http.StatusOK, "/v1/hooks?tokenPrefix=a": http.StatusForbidden,
	} {
		a.sendAs(t, key, http.MethodGet, path, "", want)
	}
}
