package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// token sets a hook's token, and whether it is a webhook.
func token(token string, webhook bool) func(*eventlog.Request) {
	return data(func(d *entities.EventData) { d.Token, d.IsWebhook = token, &webhook })
}

// payloads returns the payloads that hooks of the run received.
func (a api) payloads(t *testing.T, id entities.RunID) []string {
	t.Helper()
	page := check.Value(a.log.Events(t.Context(), entities.DefaultProject, id, pg.Page{Limit: 100}, read.WithPayloads))(t)
	list := []string{}
	for _, e := range page.Events {
		if e.Type == entities.EventHookReceived {
			list = append(list, string(e.Payload))
		}
	}
	return list
}

// waiting counts the messages for a run.
func (a api) waiting(t *testing.T, id entities.RunID) int {
	t.Helper()
	return len(a.all(t, "/v1/messages?runId="+string(id), "100"))
}

func TestResumeHook(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	driven, sdk := a.driven(t, "w"), a.sdkRun(t, "w")
	a.event(t, driven, entities.EventHookCreated, on("h"), token("a/b é", false))
	a.event(t, sdk, entities.EventHookCreated, on("hook_1"), token("sdk", false))
	a.event(t, sdk, entities.EventHookCreated, on("hook_2"), token("web", true))

	got := a.post(t, "/v1/hooks/a%2Fb%20%C3%A9/resume", `{"payload": {"b":1, "a":[12345678901234567890]}}`, 200)
	same(t, "by token", `{"runId":"`+string(driven)+`","hookId":"h","seq":3,"repeated":false,
		"eventId":"evnt_00000000000000000000000003"}`, got)
	a.post(t, "/v1/runs/"+string(driven)+"/hooks/h/resume", `{"payload":null}`, 200)
	if got := a.payloads(t, driven); len(got) != 2 || got[0] != `{"b":1, "a":[12345678901234567890]}` || got[1] != "null" {
		t.Errorf("the server-driven run got %q", got)
	}
	check.Equal(t, "messages in its queue", a.waiting(t, driven), 1)

	// As clients of the SDK do: the payload in their encoding, and the message that continues the run.
	a.post(t, "/v1/hooks/sdk/resume", `{"payload":{"number":1,"text":"x"}}`, 200)
	if got := a.payloads(t, sdk); len(got) != 1 || got[0] != `devl[{"number":1,"text":2},1,"x"]` {
		t.Errorf("the client-driven run got %q", got)
	}
	check.Equal(t, "messages in its queue", a.waiting(t, sdk), 1)
	for _, path := range []string{"/v1/hooks/web/resume", "/v1/runs/" + string(sdk) + "/hooks/hook_2/resume"} {
		a.wantRejected(t, http.MethodPost, path, `{"payload":1}`, 400, "invalid_request")
	}
	check.Equal(t, "messages in its queue after refusals", a.waiting(t, sdk), 1)
}

// TestSignedHooksAcceptNothingElse: the API resumes a hook that requires signed requests only for an admin who says so.
func TestSignedHooksAcceptNothingElse(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	a.event(t, run, entities.EventHookCreated, on("h"), token("T", true), data(func(d *entities.EventData) {
		d.Webhook = &entities.WebhookSpec{Verify: "stripe", Secret: "s"}
	}))
	paths := []string{"/v1/hooks/T/resume", "/v1/runs/" + string(run) + "/hooks/h/resume"}
	for _, path := range paths {
		a.wantRejected(t, http.MethodPost, path, `{"payload":1}`, 403, "unverified")
		a.wantRejected(t, http.MethodPost, path, `{"payload":1,"unverified":false}`, 403, "unverified")
	}
	if got := a.payloads(t, run); len(got) != 0 {
		t.Errorf("the run received %q", got)
	}
	for _, path := range paths {
		a.post(t, path, `{"payload":1,"unverified":true}`, 200)
	}
	page := check.Value(a.log.Events(t.Context(), entities.DefaultProject, run, pg.Page{Limit: 100}, read.WithPayloads))(t)
	last := page.Events[len(page.Events)-1]
	if last.Type != entities.EventHookReceived || last.Data.Via != webhook.ViaAPI || last.Data.Verified != "" {
		t.Errorf("recorded %s %+v", last.Type, last.Data)
	}
}

// TestResumeIDIsRecordedOnce checks concurrent requests with the same ID: one event and one message.
func TestResumeIDIsRecordedOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, id := range map[string]entities.RunID{"server": a.driven(t, "w"), "client": a.sdkRun(t, "w")} {
		a.event(t, id, entities.EventHookCreated, on("hook_1"), token(name, false))
		path := "/v1/hooks/" + name + "/resume"
		statuses, answers := a.race(t, path, `{"payload":7,"resumeId":"r"}`)
		first := 0
		for _, answer := range answers {
			if answer["repeated"] == false {
				first++
			}
			if answer["seq"] != 3.0 {
				t.Errorf("%s: got %v", name, answer)
			}
		}
		if statuses[200] != racers || first != 1 || len(a.payloads(t, id)) != 1 || a.waiting(t, id) != 1 {
			t.Errorf("%s: %v, %d first, %q, %d messages", name, statuses, first, a.payloads(t, id), a.waiting(t, id))
		}
		a.wantRejected(t, http.MethodPost, path, `{"payload":8,"resumeId":"r"}`, 409, "conflict")
		a.post(t, path, `{"payload":8,"resumeId":"other"}`, 200)
	}
}

func TestInvalidResumesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id, over := a.driven(t, "w"), a.driven(t, "w")
	a.event(t, id, entities.EventHookCreated, on("h"), token("T", false))
	a.event(t, id, entities.EventHookCreated, on("gone"), token("G", false))
	a.event(t, id, entities.EventHookDisposed, on("gone"))
	a.event(t, over, entities.EventHookCreated, on("h"), token("O", false))
	a.event(t, over, entities.EventHookCreated, on("kept"), token("K", false),
		data(func(d *entities.EventData) { d.TokenRetentionUntil = &later }))
	a.event(t, over, entities.EventRunCompleted)
	runs := "/v1/runs/"
	for _, tt := range []struct {
		path   string
		status int
		code   string
	}{
		{"/v1/hooks/none/resume", 404, "hook_not_found"},
		{"/v1/hooks/G/resume", 404, "hook_not_found"},
		{"/v1/hooks/O/resume", 404, "hook_not_found"},
		{"/v1/hooks/K/resume", 410, "run_ended"},
		{runs + string(id) + "/hooks/none/resume", 404, "hook_not_found"},
		{runs + string(id) + "/hooks/gone/resume", 404, "hook_not_found"},
		{runs + string(over) + "/hooks/h/resume", 410, "run_ended"},
		{runs + "wrun_x/hooks/h/resume", 404, "run_not_found"},
		{"/v1/hooks/a%00b/resume", 400, "invalid_request"},
	} {
		a.wantRejected(t, http.MethodPost, tt.path, `{"payload":1}`, tt.status, tt.code)
	}
	for _, body := range []string{
		``, `{}`, `[]`, `{"payload":1,"more":1}`, `{"payload":1,"resumeId":"a\u0000"}`, `{"payload":}`,
		`{"payload":1,"payload":2}`, `{"payload":1,"resumeId":"vote:x"}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/hooks/T/resume", body, 400, "invalid_request")
	}
	if got := a.payloads(t, id); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	put := func(path, body string) object {
		t.Helper()
		answer := a.send(t, http.MethodPut, path, body, http.StatusOK)
		return answer
	}
	want := `{"name":"stripe","createdAt":"` + at0 + `","updatedAt":"` + at0 + `"}`
	same(t, "put", want, put("/v1/secrets/stripe", `{"values":["whsec_1"]}`))
	same(t, "put again", want, put("/v1/secrets/stripe", `{"values":["whsec_2","whsec_1"]}`))
	same(t, "list", `{"data":[`+want+`]}`, a.get(t, "/v1/secrets"))
	sent := strings.Replace(want, "}", `,"origins":["https://mail.example.com"]}`, 1)
	same(t, "origins", sent, put("/v1/secrets/stripe", `{"values":["a"],"origins":["https://mail.example.com"]}`))
	same(t, "origins are kept", sent, put("/v1/secrets/stripe", `{"values":["b"]}`))
	same(t, "origins are cleared", want, put("/v1/secrets/stripe", `{"values":["b"],"origins":[]}`))
	for _, body := range []string{
		``, `{}`, `{"values":["a"],"origins":null}`, `{"values":[]}`, `{"values":[""]}`, `{"values":["a\u0000"]}`, `{"values":"a"}`,
	} {
		a.wantRejected(t, http.MethodPut, "/v1/secrets/stripe", body, 400, "invalid_request")
	}
	a.send(t, http.MethodDelete, "/v1/secrets/stripe", "", http.StatusNoContent)
	a.wantRejected(t, http.MethodDelete, "/v1/secrets/stripe", "", 404, "secret_not_found")
	same(t, "list at last", `{"data":[]}`, a.get(t, "/v1/secrets"))
}
