package e2e

import (
	"net/http"
	"net/url"
	"testing"
)

// callHookURL sends a request to the server's public URL of a webhook.
func (s *server) callHookURL(t *testing.T, token, body string) response {
	t.Helper()
	// Error responses contain the request ID. A fixed one makes them comparable.
	return requestWith(t, http.MethodPost, s.url()+"/hooks/"+url.PathEscape(token), []byte(body), "X-Request-Id", "same")
}

// webhooksByServerURL checks that webhook requests to the server reach the app, for every kind of response.
func webhooksByServerURL(t *testing.T, s *server, a *app) {
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
		r := s.callHookURL(t, token, "hello").Want(t, tt.status)
		if tt.answer != "" && (string(r.Body) != tt.answer || r.Header.Get("X-Answer") != tt.header) {
			t.Errorf("%s: %q, %q", tt.workflow, r.Body, r.Header.Get("X-Answer"))
		}
		a.want(t, id, map[string]any{"method": "POST", "body": "hello"})
		s.wantWebhook(t, id, tt.reads)
		used, unknown := s.callHookURL(t, token, "too late"), s.callHookURL(t, "nobody's", "too late")
		used.Want(t, http.StatusNotFound)
		if string(used.Body) != string(unknown.Body) || unknown.Status != used.Status {
			t.Errorf("%s: a used token was answered with %s, an unknown one with %s", tt.workflow, used.Body, unknown.Body)
		}
	}
}

// resumedByAPI checks that a workflow receives JSON payloads sent to the native API.
func resumedByAPI(t *testing.T, s *server, a *app) {
	token := a.named("by-api")
	id := a.run(t, "hookHold", token)
	a.hook(t, id)
	path := s.url() + "/v1/hooks/" + url.PathEscape(token) + "/resume"
	body := `{"payload":{"list":[1,null,"é"],"deep":{"ok":true}},"resumeId":"once"}`
	request(t, http.MethodPost, path, []byte(body)).Want(t, http.StatusOK)
	a.want(t, id, map[string]any{"payload": map[string]any{
		"list": []any{1, nil, "é"}, "deep": map[string]any{"ok": true},
	}})
	request(t, http.MethodPost, path, []byte(`{"payload":1}`)).Want(t, http.StatusNotFound)
}
