package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/why"
)

// TestReasonsAreDocumented: openapi.yaml has the kinds in their order, all verdicts, and all remedies, each of which is
// an operation.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	c := openAPI()
	enum := func(schema string) (values []string) {
		found, ok := c.at(c.root(), "components", "schemas", schema, "enum")
		if !ok {
			t.Fatalf("no schema %s", schema)
		}
		for _, v := range found.value.([]any) {
			values = append(values, v.(string))
		}
		return values
	}
	var kinds, remedies []string
	for _, k := range why.Kinds() {
		kinds = append(kinds, string(k))
	}
	for _, r := range why.Remedies() {
		remedies = append(remedies, string(r))
	}
	verdicts := []string{"scheduled", "working", "retrying", "waiting", "blocked", "stranded", "ended"}
	for schema, want := range map[string][]string{"ReasonKind": kinds, "Remedy": remedies, "Verdict": verdicts} {
		if diff := cmp.Diff(want, enum(schema)); diff != "" {
			t.Errorf("%s (-code +openapi.yaml):\n%s", schema, diff)
		}
	}
	operations := map[string]bool{}
	for path, item := range c.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if op, ok := c.find(method, path); ok {
				operations[op.text("operationId")] = true
			}
		}
	}
	for _, r := range remedies {
		if !operations[r] {
			t.Errorf("no operation %s", r)
		}
	}
}

// TestExplainRun explains a run from its start to its end, also to a key that sees no payloads and to one of another
// project.
func TestExplainRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	id := a.driven(t, "order", data(func(d *entities.EventData) { d.Deadline = &later }))
	path := "/v1/runs/" + string(id) + "/why"
	explain := func() (object, object) {
		t.Helper()
		e := a.get(t, path)
		return e, e["reasons"].([]any)[0].(object)
	}
	e, first := explain()
	if e["verdict"] != "blocked" || first["kind"] != "deployment_missing" || first["deployment"] != "shop" ||
		e["deadline"] == nil || e["runId"] != string(id) || e["lastSeq"] != 1.0 {
		t.Errorf("got %v", e)
	}
	same(t, "remedies", `["putDeployment"]`, first["remedies"])
	a.send(t, http.MethodPut, "/v1/deployments/shop", `{"url":"http://shop.test"}`, http.StatusOK)
	if e, first = explain(); e["verdict"] != "working" || first["kind"] != "queued" {
		t.Errorf("got %v", e)
	}
	a.exec(t, `
		UPDATE messages SET blocked = '{"code":"panic","message":"classified"}', last_error = 'classified', delivery_count = 3,
			due_at = now() + interval '1 minute' WHERE run_id = $1 AND work = 'run'`, id)
	a.event(t, id, entities.EventRunStarted)
	a.event(t, id, entities.EventHookCreated, on("paid"), data(func(d *entities.EventData) {
		d.Token, d.Signal, d.Condition = "T", "paid", "classified"
	}))
	e, first = explain()
	same(t, "error", `{"code":"panic","message":"classified"}`, first["error"])
	hook := e["reasons"].([]any)[1].(object)
	if e["verdict"] != "blocked" || e["next"].(object)["kind"] != "function_refuses" || hook["condition"] != "classified" ||
		strings.Contains(mustJSON(t, e), `"T"`) {
		t.Errorf("got %v", e)
	}
	same(t, "open", `{"hooks":1,"steps":0,"waits":0}`, e["open"])
	status, redacted := a.as(t, reader, http.MethodGet, path, "")
	if text := mustJSON(t, redacted); status != http.StatusOK || strings.Contains(text, "classified") ||
		!strings.Contains(text, "panic") || !strings.Contains(text, `"name":"paid"`) {
		t.Errorf("got %d %s", status, text)
	}
	a.event(t, id, entities.EventRunFailed, with(`{"message":"no stock"}`),
		data(func(d *entities.EventData) { d.ErrorCode = "no_stock" }))
	e = a.get(t, path)
	end := e["end"].(object)
	same(t, "error", `{"code":"no_stock","message":"no stock"}`, end["error"])
	if e["verdict"] != "ended" || end["status"] != "failed" || end["seq"] != 4.0 || len(e["reasons"].([]any)) > 0 {
		t.Errorf("got %v", e)
	}
	if _, redacted = a.as(t, reader, http.MethodGet, path, ""); strings.Contains(mustJSON(t, redacted), "no stock") {
		t.Errorf("got %v", redacted)
	}
	a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_none/why", "", http.StatusNotFound, "run_not_found")
}

// TestListsSayWhy: a list has the first reason of each run that has not ended if the request asks for it.
func TestListsSayWhy(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	ended, open := a.driven(t, "order"), a.driven(t, "order")
	a.event(t, ended, entities.EventRunCompleted, with(`null`))
	_, list := a.as(t, reader, http.MethodGet, "/v1/runs?include=reason", "")
	for _, item := range list["data"].([]any) {
		run := item.(object)
		reason, has := run["reason"].(object)
		if has != (run["id"] == string(open)) {
			t.Errorf("got %v", run)
		}
		if has {
			e := a.get(t, "/v1/runs/"+string(open)+"/why")
			first := e["reasons"].([]any)[0].(object)
			if reason["verdict"] != e["verdict"] || reason["kind"] != first["kind"] || reason["at"] != first["at"] ||
				reason["summary"] != "deployment shop is not registered" {
				t.Errorf("got %v, and the explanation %v", reason, e)
			}
		}
	}
	if strings.Contains(mustJSON(t, a.get(t, "/v1/runs")), `"reason"`) {
		t.Error("a list has reasons for which nobody has asked")
	}
	a.wantRejected(t, http.MethodGet, "/v1/runs?include=payloads", "", http.StatusBadRequest, "invalid_request")
}

// TestExplainEnds of runs that completed or were cancelled.
func TestExplainEnds(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	done, cancelled := a.driven(t, "order"), a.sdkRun(t, "order")
	a.event(t, done, entities.EventRunCompleted, with(`"classified"`))
	a.event(t, cancelled, entities.EventRunCancelled, data(func(d *entities.EventData) { d.Reason = "ordered twice" }))
	same(t, "completed", `{"status":"completed","at":"`+at0+`","seq":2}`, a.get(t, "/v1/runs/"+string(done)+"/why")["end"])
	same(t, "cancelled", `{"status":"cancelled","at":"`+at0+`","seq":2,"cancelReason":"ordered twice"}`,
		a.get(t, "/v1/runs/"+string(cancelled)+"/why")["end"])
}
