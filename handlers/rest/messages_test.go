package rest_test

import (
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var ids []string
	for range 3 {
		id, err := a.queue.Send(t.Context(), message.Message{
			Project: entities.DefaultProject, Topic: "topic", DeploymentID: "shop", RunID: "wrun_1", ContentType: "text/plain",
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := a.pool.Exec(t.Context(), `
		UPDATE messages SET parked_at = now(), delivery_count = 64, last_error = 'no' WHERE id = ANY($1)`, ids[1:]); err != nil {
		t.Fatal(err)
	}
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
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
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
	if status, answer := a.do(t, http.MethodPost, "/v1/messages/"+ids[1]+"/retry", ""); status != http.StatusOK ||
		answer["state"] != "waiting" || answer["deliveryCount"] != 0.0 {
		t.Errorf("retry: got %d %v", status, answer)
	}
	if status, answer := a.do(t, http.MethodDelete, "/v1/messages/"+ids[2], ""); status != http.StatusNoContent {
		t.Errorf("discard: got %d %v", status, answer)
	}
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
