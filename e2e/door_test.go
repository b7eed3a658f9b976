package e2e

import (
	"net/http"
	"net/url"
	"testing"
)

// callDoor calls the server's public URL of a webhook.
func (s *server) callDoor(t *testing.T, token, body string) response {
	t.Helper()
	// The ID of the request is in what errors tell.
	return requestWith(t, http.MethodPost, s.url()+"/hooks/"+url.PathEscape(token), []byte(body), "X-Request-Id", "same")
}

// webhooksByTheServer: requests that come to the server reach the app's webhooks, in all ways to answer them.
func webhooksByTheServer(t *testing.T, s *server, a *app) {
	for _, tt := range []struct {
		workflow, answer, header, reads string
		status                          int
	}{
		{workflow: "webhookDefault", status: http.StatusAccepted, reads: "__builtin_response_text"},
		{"webhookStatic", "static answer", "static", "__builtin_response_text", http.StatusMultiStatus},
		{"webhookManual", "manual: hello", "manual", "answer", http.StatusCreated},
	} {
		id := a.run(t, tt.workflow)
		token := a.hook(t, id).Token
		r := s.callDoor(t, token, "hello").want(t, tt.status)
		if tt.answer != "" && (string(r.body) != tt.answer || r.header.Get("X-Answer") != tt.header) {
			t.Errorf("%s: %q, %q", tt.workflow, r.body, r.header.Get("X-Answer"))
		}
		a.want(t, id, map[string]any{"method": "POST", "body": "hello"})
		s.wantWebhook(t, id, tt.reads)
		used, unknown := s.callDoor(t, token, "too late"), s.callDoor(t, "nobody's", "too late")
		used.want(t, http.StatusNotFound)
		if string(used.body) != string(unknown.body) || unknown.status != used.status {
			t.Errorf("%s: a used token is answered %s, an unknown one %s", tt.workflow, used.body, unknown.body)
		}
	}
}

// resumedByAPI: JSON that comes to the native API is what the workflow reads.
func resumedByAPI(t *testing.T, s *server, a *app) {
	token := a.named("by-api")
	id := a.run(t, "hookHold", token)
	a.hook(t, id)
	path := s.url() + "/v1/hooks/" + url.PathEscape(token) + "/resume"
	body := `{"payload":{"list":[1,null,"é"],"deep":{"ok":true}},"resumeId":"once"}`
	request(t, http.MethodPost, path, []byte(body)).want(t, http.StatusOK)
	a.want(t, id, map[string]any{"payload": map[string]any{
		"list": []any{1, nil, "é"}, "deep": map[string]any{"ok": true},
	}})
	request(t, http.MethodPost, path, []byte(`{"payload":1}`)).want(t, http.StatusNotFound)
}
