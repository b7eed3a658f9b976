package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// oddRequests are requests that have a value from others in their bodies, by what they are for.
func oddRequests(t *testing.T, a api) map[string]func(value string) (path, body string) {
	t.Helper()
	a.post(t, "/v1/flows", `{"document":"flow: odd\ninput: {properties: {amount: {minimum: 0}}, items: {type: integer}}\nsteps: {a: {wait: 1h}}"}`, 201)
	run := a.driven(t, "w")
	a.event(t, run, entities.EventHookCreated, on("agree"), token("approval_1", false),
		data(func(d *entities.EventData) { d.Webhook = &entities.WebhookSpec{Verify: webhook.Vote} }),
		with(`{"approval":{"title":"t","form":{"properties":{"amount":{"minimum":0}}}}}`))
	of := func(path, body string) func(string) (string, string) {
		return func(value string) (string, string) { return path, fmt.Sprintf(body, value) }
	}
	return map[string]func(string) (string, string){
		"start": of("/v1/runs", `{"workflow":"odd","input":%s}`),
		"vote":  of("/v1/hooks/approval_1/resume", `{"payload":{"decision":"approve","as":"anna","form":%s}}`),
		"schema": func(value string) (string, string) {
			document := check.Value(json.Marshal("flow: s\ninput: " + value + "\nsteps: {a: {set: 1}}"))(t)
			return "/v1/flows", `{"document":` + string(document) + `}`
		},
	}
}

// TestOddValuesAreRefused: what no reader can decode gets a 400 that says what to change, wherever it comes in.
func TestOddValuesAreRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, request := range oddRequests(t, a) {
		for value, want := range map[string]string{
			`{"amount":1e99999999}`: "the number 1e99999999 is out of range: a number is a double with at most 400 characters",
			`[1e-999999]`:           "the number 1e-999999 is out of range",
			`{"\ud800":1}`:          `the name "\ud800" has half of a surrogate pair`,
			strings.Repeat("[", 1100) + strings.Repeat("]", 1100): "nested deeper than 1000 levels",
		} {
			path, body := request(value)
			status, answer := a.do(t, http.MethodPost, path, body)
			text := fmt.Sprint(answer["error"])
			if name == "schema" { // a document has other bounds
				if status < 400 || status >= 500 {
					t.Errorf("%s of %.40s: got %d %.200s", name, value, status, text)
				}
				continue
			}
			if status != http.StatusBadRequest || !strings.Contains(text, want) || !strings.Contains(text, "code:invalid_request") {
				t.Errorf("%s of %.40s: got %d %.300s, want 400 %s", name, value, status, text, want)
			}
		}
	}
}

// TestChecksBySchemaAreBounded: a start whose check takes too many steps gets a code of its own.
func TestChecksBySchemaAreBounded(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.post(t, "/v1/flows", `{"document":"flow: slow\ninput: {items: {pattern: '(a?){40}b'}}\nsteps: {a: {set: 1}}"}`, 201)
	long := `["` + strings.Repeat("a", 1_000_000) + `"]`
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"slow","input":`+long+`}`, http.StatusUnprocessableEntity, "schema_cost")
	for _, schema := range []string{
		`{"multipleOf":1e99999999}`, `{"pattern":"(a{1000}){100}"}`, `{"$ref":"#"}`, `{"minimum":1e999999}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}}`,
	} {
		document := check.Value(json.Marshal("flow: bad\ninput: " + schema + "\nsteps: {a: {set: 1}}"))(t)
		a.wantRejected(t, http.MethodPost, "/v1/flows", `{"document":`+string(document)+`}`, http.StatusUnprocessableEntity, "invalid_flow")
	}
}

// TestNULInTexts: no text of a request may have U+0000, and half of a surrogate pair makes no key.
func TestNULInTexts(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	for _, nul := range []struct{ path, body string }{
		{"/v1/runs", `{"catalog":"\u0000","want":["x"]}`},
		{"/v1/runs", `{"workflow":"w","deployment":"d\u0000"}`},
		{"/v1/runs", `{"workflow":"w","idempotencyKey":"\ud800"}`},
		{"/v1/runs", `{"workflow":"w","key":"\udc00x"}`},
		{"/v1/runs/" + string(run) + "/rerun", `{"idempotencyKey":"\u0000"}`},
		{"/v1/flows", `{"document":"\u0000"}`},
		{"/v1/catalogs", `{"document":"\u0000"}`},
	} {
		status, answer := a.do(t, http.MethodPost, nul.path, nul.body)
		if status != http.StatusBadRequest || !strings.Contains(fmt.Sprint(answer["error"]), "code:invalid_request") {
			t.Errorf("%s %s: got %d %v", nul.path, nul.body, status, answer)
		}
	}
}

// FuzzRequests: no JSON in a request makes the server fail, and all that is refused is the sender's fault.
func FuzzRequests(f *testing.F) {
	for _, value := range []string{
		`{"amount":1e99999999}`, `[1e999999,1]`, `{"\ud800":1}`, `{"amount":"\u0000"}`, `[[[[1]]]]`, `{"pattern":"(a?){99}"}`,
		`{"$ref":"#"}`, `{"a":1,"a":2}`, `"\ud800"`,
	} {
		f.Add(value)
	}
	a := newAPI(f)
	var requests map[string]func(string) (string, string)
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) {
			return
		}
		if requests == nil {
			requests = oddRequests(t, a)
		}
		for name, request := range requests {
			path, body := request(value)
			w := a.serve(http.MethodPost, path, body)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("%s of %.200s: got %d %.300s", name, value, w.Code, w.Body)
			}
		}
	})
}
