package rest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func (a api) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	testdb.Exec(t, a.pool, sql, args...)
}

// key creates a key with another one, which may be empty on an open server.
func (a api) key(t *testing.T, by, body string) object {
	t.Helper()
	status, made := a.as(t, by, http.MethodPost, "/v1/keys", body)
	if status != http.StatusCreated || !strings.HasPrefix(made["key"].(string), made["prefix"].(string)) {
		t.Fatalf("got %d %v", status, made)
	}
	return made
}

func TestKeys(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.key(t, "", `{"name":"door","role":"invoke","expiresAt":"2026-11-21T01:42:00Z"}`)
	text, path := made["key"].(string), "/v1/keys/"+made["id"].(string)
	delete(made, "key")
	same(t, "the key", `{"id":"`+made["id"].(string)+`","project":"default","name":"door","role":"invoke","prefix":"`+
		text[:9]+`","createdAt":"`+at0+`","expiresAt":"2026-11-21T01:42:00.000Z"}`, made)
	if got := a.get(t, path); got["key"] != nil || got["id"] != made["id"] {
		t.Errorf("got %v", got)
	}
	other := a.key(t, "", `{"name":"reader","role":"read"}`)
	want := []any{made["id"], other["id"]} // of the same millisecond
	got := a.all(t, "/v1/keys", "1")
	if len(got) != 2 || !slices.Contains(want, got[0]["id"]) || !slices.Contains(want, got[1]["id"]) ||
		got[0]["id"] == got[1]["id"] || got[1]["key"] != nil {
		t.Errorf("list: got %v", got)
	}
	a.sendAs(t, text, http.MethodGet, "/v1/runs", "", http.StatusForbidden)
	for range 2 {
		a.send(t, http.MethodDelete, path, "", http.StatusNoContent)
	}
	if got := a.get(t, path); got["revokedAt"] != at0 {
		t.Errorf("got %v, want it revoked", got)
	}
	a.wantRejected(t, http.MethodGet, "/v1/keys/key_none", "", http.StatusNotFound, "key_not_found")
	a.wantRejected(t, http.MethodDelete, "/v1/keys/key_none", "", http.StatusNotFound, "key_not_found")
	for body, code := range map[string]string{
		`{"role":"read"}`: "invalid_request", `{"name":"k"}`: "invalid_request", `{"name":"k","role":"owner"}`: "invalid_request",
		`{"name":"k","role":"read","key":"sw_mine"}`:                              "invalid_request",
		`{"name":"k","role":"read","expiresAt":"2026-11-21T01:41:43.197Z"}`:       "invalid_request",
		`{"name":"k","role":"read","project":"a b"}`:                              "invalid_request",
		`{"name":"k","role":"read","project":"none"}`:                             "project_not_found",
		`{"name":"k","role":"read","expiresAt":"2026-11-21"}`:                     "invalid_request",
		`{"name":"` + strings.Repeat("x", 1025) + `","role":"read"}`:              "invalid_request",
		`{"name":"k","role":"read","expiresAt":null}`:                             "invalid_request",
		`{"name":"k","role":"read","project":"` + strings.Repeat("x", 257) + `"}`: "invalid_request",
	} {
		status := http.StatusBadRequest
		if code == "project_not_found" {
			status = http.StatusNotFound
		}
		a.wantRejected(t, http.MethodPost, "/v1/keys", body, status, code)
	}
}

func TestWhoami(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	expires := "2027-01-01T00:00:00.000Z"
	made := a.key(t, "", `{"name":"support","role":"metadata","expiresAt":"`+expires+`"}`)
	_, got := a.as(t, made["key"].(string), http.MethodGet, "/v1/whoami", "")
	same(t, "key", `{"project":"default","role":"metadata","operator":false,"keyName":"support","expiresAt":"`+expires+`",
		"actor":"`+made["id"].(string)+`"}`, any(got))
	same(t, "no key", `{"project":"default","role":"admin","operator":true,"actor":"open"}`, any(a.get(t, "/v1/whoami")))
}

// TestWorkerKeysRegisterOnlyTheirDeployments also checks what a pattern may be.
func TestWorkerKeysRegisterOnlyTheirDeployments(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, bad := range []string{
		`"role":"worker"`, `"role":"worker","deployments":""`, `"role":"worker","deployments":"a b"`,
		`"role":"worker","deployments":"a*b"`, `"role":"worker","deployments":"**"`, `"role":"read","deployments":"a"`,
		`"role":"admin","deployments":"*"`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/keys", `{"name":"k",`+bad+`}`, http.StatusBadRequest, "invalid_request")
	}
	for pattern, cases := range map[string]struct{ yes, no []string }{
		"orders@*": {[]string{"orders@1", "orders@", "orders@1*"}, []string{"orders", "orders2@1", "xorders@1", "Orders@1"}},
		"orders":   {[]string{"orders"}, []string{"orders@1", "order", "orders*"}},
		"*":        {[]string{"orders", "x"}, nil},
	} {
		made := a.key(t, "", `{"name":"k","role":"worker","deployments":"`+pattern+`"}`)
		if got := a.get(t, "/v1/keys/"+made["id"].(string)); got["deployments"] != pattern {
			t.Errorf("the key is %v", got)
		}
		for _, id := range cases.yes {
			for _, method := range []string{http.MethodPut, http.MethodGet} {
				a.sendAs(t, made["key"].(string), method, "/v1/deployments/"+id, deploymentBody(method), http.StatusOK)
			}
		}
		for _, id := range cases.no {
			for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
				a.sendAs(t, made["key"].(string), method, "/v1/deployments/"+id, deploymentBody(method), http.StatusForbidden)
			}
		}
	}
	if got := a.get(t, "/v1/deployments")["data"].([]any); len(got) != 5 {
		t.Errorf("%d deployments are registered: %v", len(got), got)
	}
}

func deploymentBody(method string) string {
	if method == http.MethodPut {
		return `{"url":"http://x"}`
	}
	return ""
}

// TestOnlyOperatorsManageProjects checks that operators create projects and their first keys, and that an admin of one
// project cannot access others.
func TestOnlyOperatorsManageProjects(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for range 2 {
		p := a.send(t, http.MethodPut, "/v1/projects/shop", "", http.StatusOK)
		same(t, "the project", `{"name":"shop","createdAt":"`+at0+`"}`, p)
	}
	a.wantRejected(t, http.MethodPut, "/v1/projects/a%20b", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPut, "/v1/projects/b", `{"x":1}`, http.StatusBadRequest, "invalid_request")
	if got := a.get(t, "/v1/projects")["data"].([]any); len(got) != 2 || got[1].(object)["name"] != "shop" {
		t.Errorf("got %v", got)
	}
	admin := a.key(t, "", `{"project":"shop","name":"a","role":"admin"}`)
	text := admin["key"].(string)
	theirs := a.key(t, text, `{"name":"b","role":"write"}`)
	if theirs["project"] != "shop" {
		t.Errorf("got %v", theirs)
	}
	own := a.key(t, "", `{"name":"c","role":"read"}`)["id"].(string)
	for _, tt := range []struct {
		key, method, path, body string
		status                  int
		code                    string
	}{
		{text, "GET", "/v1/projects", "", 403, "forbidden"},
		{text, "PUT", "/v1/projects/shop", "", 403, "forbidden"},
		{text, "POST", "/v1/keys", `{"name":"k","role":"admin","project":"default"}`, 403, "forbidden"},
		{text, "POST", "/v1/keys", `{"name":"k","role":"admin","project":"none"}`, 403, "forbidden"},
		{text, "POST", "/v1/keys", `{"name":"k","role":"admin","project":"shop"}`, 201, ""},
		{text, "GET", "/v1/keys?project=default", "", 403, "forbidden"},
		{text, "GET", "/v1/keys?project=shop", "", 200, ""},
		{text, "GET", "/v1/audit?project=default", "", 403, "forbidden"},
		{text, "GET", "/v1/keys/" + own, "", 404, "key_not_found"},
		{text, "DELETE", "/v1/keys/" + own + "?project=default", "", 403, "forbidden"},
		{text, "DELETE", "/v1/keys/" + own, "", 404, "key_not_found"},
		{"", "GET", "/v1/keys/" + theirs["id"].(string), "", 404, "key_not_found"},
		{"", "GET", "/v1/keys/" + theirs["id"].(string) + "?project=shop", "", 200, ""},
		{"", "DELETE", "/v1/keys/" + theirs["id"].(string) + "?project=shop", "", 204, ""},
		{"", "GET", "/v1/keys?project=none", "", 200, ""},
		{"", "GET", "/v1/keys?project=a%20b", "", 400, "invalid_request"},
		{theirs["key"].(string), "GET", "/v1/keys", "", 401, "unauthorized"},
	} {
		status, answer := a.as(t, tt.key, tt.method, tt.path, tt.body)
		problem, _ := answer["error"].(object)
		if code, _ := problem["code"].(string); status != tt.status || code != tt.code {
			t.Errorf("%s %s %s: got %d %v, want %d %s", tt.method, tt.path, tt.body, status, answer, tt.status, tt.code)
		}
	}
	_, own0 := a.as(t, text, http.MethodGet, "/v1/audit?order=asc", "")
	var words []string
	for _, item := range own0["data"].([]any) {
		words = append(words, item.(object)["actor"].(string)+" "+item.(object)["action"].(string))
	}
	id := admin["id"].(string)
	want := "open project.create, open key.create, " + id + " key.create, " + id + " key.create, open key.revoke"
	check.Equal(t, "audit", strings.Join(words, ", "), want)
	if got := a.all(t, "/v1/audit?project=shop", "2"); len(got) != 5 || got[0]["action"] != "key.revoke" {
		t.Errorf("audit by the operator: got %v", got)
	}
}

// TestRedactedResponsesKeepTheContract checks responses for the role metadata.
func TestRedactedResponsesKeepTheContract(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	id := a.driven(t, "order")
	a.event(t, id, entities.EventRunStarted)
	a.event(t, id, entities.EventHookCreated, on("hook_1"), data(func(d *entities.EventData) { d.Token = "T" }))
	a.event(t, id, entities.EventHookReceived, on("hook_1"), with(`true`), data(func(d *entities.EventData) {
		d.ResumeID, d.ResumeDigest = "once", "digest"
	}))
	a.event(t, id, entities.EventStepCreated, on("step_1"), with(`1`), data(func(d *entities.EventData) { d.StepName = "s" }))
	a.event(t, id, entities.EventStepStarted, on("step_1"))
	a.event(t, id, entities.EventStepFailed, on("step_1"), with(`{"message":"no"}`),
		data(func(d *entities.EventData) { d.ErrorCode = "broken" }))
	a.event(t, id, entities.EventRunFailed, with(`{"message":"no"}`),
		data(func(d *entities.EventData) { d.ErrorCode = "broken" }))
	run := "/v1/runs/" + string(id)
	for path, want := range map[string]string{
		run: `{"code":"broken"}`, run + "/steps/step_1": `{"code":"broken"}`, run + "/wait?timeout=0s": `{"code":"broken"}`,
	} {
		status, got := a.as(t, key, http.MethodGet, path, "")
		if status != http.StatusOK || got["input"] != nil || got["inputEncoding"] != nil {
			t.Errorf("%s: got %d %v", path, status, got)
		}
		same(t, path, want, got["error"])
	}
	if _, got := a.as(t, key, http.MethodGet, run+"/hooks/hook_1", ""); got["id"] != "hook_1" || got["token"] != nil {
		t.Errorf("got %v", got)
	}
	for _, path := range []string{"/events?payloads=true", "/events", "/events/3", "/events/4", "/hooks", "/steps"} {
		status, got := a.as(t, key, http.MethodGet, run+path, "")
		if text := mustJSON(t, got); status != http.StatusOK || strings.Contains(text, `"T"`) || strings.Contains(strings.ToLower(text), "payload") {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text := check.Value(json.Marshal(v))(t)
	return string(text)
}

// TestAuditSelectsByOneField checks each filter, and that two of them are refused.
func TestAuditSelectsByOneField(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	made := a.key(t, "", `{"name":"a","role":"admin"}`)
	id, text := made["id"].(string), made["key"].(string)
	a.do(t, http.MethodPut, "/v1/secrets/stripe", `{"values":["whsec_1"]}`)
	a.as(t, text, http.MethodPut, "/v1/secrets/stripe", `{"values":["whsec_2"]}`)
	a.as(t, text, http.MethodPut, "/v1/secrets/github", `{"values":["whsec_3"]}`)
	for query, want := range map[string]string{
		"":            "secret.put github, secret.put stripe, secret.put stripe, key.create " + id,
		"actor=" + id: "secret.put github, secret.put stripe", "actor=open": "secret.put stripe, key.create " + id,
		"action=key.create": "key.create " + id, "action=none": "", "subject=stripe": "secret.put stripe, secret.put stripe",
		"subject=stripe&order=asc&project=none": "",
	} {
		var got []string
		for _, item := range a.all(t, "/v1/audit?"+query, "1") {
			got = append(got, item["action"].(string)+" "+item["subject"].(string))
		}
		check.Equal(t, query, strings.Join(got, ", "), want)
	}
	for _, query := range []string{"actor=open&action=key.create", "action=a&subject=b", "actor=a&subject=b", "actor="} {
		a.wantRejected(t, http.MethodGet, "/v1/audit?"+query, "", http.StatusBadRequest, "invalid_request")
	}
}

// TestServersAreListed inserts servers, deliveries and a stranded run, as if others had.
func TestServersAreListed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	empty := a.get(t, "/v1/servers")
	if at, _ := empty["at"].(string); at == "" {
		t.Errorf("got %v", empty)
	}
	delete(empty, "at")
	same(t, "none", `{"servers":[],"extended":0,"capped":false,"stranded":[],"moreStranded":false}`, empty)
	run := a.driven(t, "order")
	a.exec(t, `INSERT INTO processes (id, host, session_key, version, commit, role, started_at, beat_at) VALUES
		('proc_1', 'app-1', 1, 'v1', '3f20b23 (modified)', 'all', '2026-11-21T01:00:00Z', '2026-11-21T01:00:01Z'),
		('proc_2', 'app-2', 2, '', '', '', '2026-11-21T02:00:00Z', '2026-11-21T02:00:01Z')`)
	for i, holder := range []string{"proc_1", "proc_1", "", "proc_gone"} {
		a.exec(t, `
			INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, lease, holder)
			VALUES ($1, 'default', 't', 'app', 'text/plain', '', now() + '1 hour', now() + '1 hour', $1, $2)`,
			"m"+strconv.Itoa(i), holder)
	}
	a.exec(t, `INSERT INTO run_wakes (run_id, stranded_at, reason, repairs) VALUES ($1, '2026-11-21T01:00:00Z', 'nothing wakes it', 2)`, run)
	got := a.get(t, "/v1/servers")
	delete(got, "at")
	same(t, "servers", `{"servers":[
		{"id":"proc_1","host":"app-1","version":"v1","commit":"3f20b23 (modified)","role":"all","startedAt":"2026-11-21T01:00:00.000Z","beatAt":"2026-11-21T01:00:01.000Z","deliveries":2},
		{"id":"proc_2","host":"app-2","startedAt":"2026-11-21T02:00:00.000Z","beatAt":"2026-11-21T02:00:01.000Z","deliveries":0}],
		"extended":1,"capped":false,"moreStranded":false,"stranded":[{"runId":"`+string(run)+`","project":"default",
		"workflow":"order","reason":"nothing wakes it","since":"2026-11-21T01:00:00.000Z","wakes":2}]}`, got)
	a.wantRejected(t, http.MethodGet, "/v1/servers?x=1", "", http.StatusBadRequest, "invalid_request")
}

// TestSessionsAreListedAndEnded opens sessions as browsers do.
func TestSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	sessions := access.NewSessions(a.pool, "environment", a.log.Now)
	made := a.key(t, "", `{"name":"support","role":"read"}`)
	enter := func(cookie, key string, project entities.Project) string {
		t.Helper()
		opened := access.Opened{Project: project}
		if key != "" {
			opened.Key = &admin.Key{ID: admin.KeyID(key), Project: project}
		}
		cookie = check.Value(sessions.Enter(t.Context(), cookie, opened))(t)
		return cookie
	}
	first := enter(enter("", made["id"].(string), "default"), "", "default") // the second key takes the place of the first
	second := enter("", made["id"].(string), "default")
	firstID, secondID := sessions.ID(first).String(), sessions.ID(second).String()
	const path = "/v1/ui/sessions"
	byID := func() map[string]object {
		found := map[string]object{}
		for _, item := range a.all(t, path, "1") {
			found[item["id"].(string)] = item
		}
		return found
	}
	got := byID()
	same(t, "the environment's", `{"id":"`+firstID+`","role":"admin","createdAt":"`+at0+`","usedAt":"`+at0+`"}`, any(got[firstID]))
	same(t, "the key's", `{"id":"`+secondID+`","role":"read","keyId":"`+made["id"].(string)+`","keyName":"support",
		"createdAt":"`+at0+`","usedAt":"`+at0+`"}`, any(got[secondID]))
	if len(got) != 2 {
		t.Errorf("got %v", got)
	}
	a.send(t, http.MethodDelete, path+"/"+firstID, "", http.StatusNoContent)
	for _, gone := range []string{firstID, strings.Repeat("0", 64), "x"} {
		a.wantRejected(t, http.MethodDelete, path+"/"+gone, "", http.StatusNotFound, "session_not_found")
	}
	if got := byID(); len(got) != 1 || got[secondID] == nil {
		t.Errorf("after the end: got %v", got)
	}
	a.do(t, http.MethodDelete, "/v1/keys/"+made["id"].(string), "")
	same(t, "after its key was revoked", `{"data":[]}`, a.get(t, path))
	a.wantRejected(t, http.MethodGet, path+"?cursor=x", "", http.StatusBadRequest, "invalid_request")
	ended := a.all(t, "/v1/audit?action=session.end", "2")
	if len(ended) != 1 || ended[0]["subject"] != firstID {
		t.Errorf("audit: got %v", ended)
	}
}

// TestCodesSayWhenTheyEnd checks the answer; package handlers tests what a code opens.
func TestCodesSayWhenTheyEnd(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	text := a.key(t, "", `{"name":"k","role":"invoke"}`)["key"].(string)
	status, made := a.as(t, text, http.MethodPost, "/v1/ui/codes", "")
	expires := a.log.Now().Add(time.Minute).UTC().Format("2006-01-02T15:04:05.000Z")
	if code, _ := made["code"].(string); status != http.StatusCreated || len(code) != 43 || made["expiresAt"] != expires {
		t.Errorf("got %d %v", status, made)
	}
	if status, made := a.do(t, http.MethodPost, "/v1/ui/codes", ""); status != http.StatusCreated || len(made) != 0 {
		t.Errorf("without a key: got %d %v, want no code", status, made)
	}
}
