package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestFlows puts versions of a flow, reads them, and starts a run of the newest one.
func TestFlows(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	put := func(body string, want int) map[string]any {
		t.Helper()
		got := a.send(t, http.MethodPost, "/v1/flows", body, want)
		return got
	}
	const document = `{"document":"flow: greet\nsteps: {text: {set: 1}}"}`
	if got := put(document, http.StatusCreated); got["version"] != 1.0 || got["deployment"] != "greet@1" {
		t.Errorf("the first version is %v", got)
	}
	put(document, http.StatusOK)
	put(`{"document":"flow: greet\nsteps: {text: {set: 2}}","dryRun":true}`, http.StatusOK)
	if got := a.get(t, "/v1/flows/greet"); got["version"] != 1.0 {
		t.Errorf("after a dry run, the newest version is %v", got)
	}
	put(`{"document":"flow: greet\nsteps: {text: {set: 2}}"}`, http.StatusCreated)
	if got := a.get(t, "/v1/flows/greet?version=1"); got["document"] != "flow: greet\nsteps: {text: {set: 1}}" ||
		len(got["versions"].([]any)) != 2 {
		t.Errorf("version 1 is %v", got)
	}
	if list := fmt.Sprint(a.get(t, "/v1/flows")["data"]); !strings.Contains(list, "version:2") || strings.Contains(list, "version:1") {
		t.Errorf("the list is %s", list)
	}
	status, run := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"greet"}`)
	if status != http.StatusCreated || run["deployment"] != "greet@2" {
		t.Errorf("start: got %d %v", status, run)
	}

	a.wantRejected(t, http.MethodGet, "/v1/flows/nobody", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/flows/greet?version=9", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/flows", `{"document":"flow: a"}`, http.StatusUnprocessableEntity, "invalid_flow")
	a.wantRejected(t, http.MethodPut, "/v1/deployments/greet@1", `{"url":"http://app.test"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodDelete, "/v1/deployments/greet@1", "", http.StatusBadRequest, "invalid_request")
	_, got := a.do(t, http.MethodPost, "/v1/flows", `{"document":"flow: a\nsteps: {b: {sett: 1}, c: {needs: z, set: 2}}"}`)
	if faults := fmt.Sprint(got["error"]); strings.Count(faults, "line:2") != 2 || !strings.Contains(faults, "code:unknown") {
		t.Errorf("got %s, want two faults in line 2", faults)
	}
}

// TestDeploymentsForStepsOnly: a start of a workflow that nobody has is refused, and none goes to a deployment that
// executes the steps of flows only.
func TestDeploymentsForStepsOnly(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	status, got := a.do(t, http.MethodPut, "/v1/deployments/mail", `{"url":"http://app.test","stepsOnly":true}`)
	if status != http.StatusOK || got["stepsOnly"] != true {
		t.Errorf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"ordr"}`, http.StatusNotFound, "deployment_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"ordr","deployment":"mail"}`, http.StatusConflict, "deployment_steps_only")
	a.wantRejected(t, http.MethodPut, "/v1/deployments/mail", `{"url":"http://app.test","stepsOnly":true,"workflows":["a"]}`,
		http.StatusBadRequest, "invalid_request")
	if status, got = a.do(t, http.MethodPatch, "/v1/deployments/mail", `{"workflows":["ordr"]}`); status != http.StatusOK || got["stepsOnly"] != nil {
		t.Errorf("got %d %v", status, got)
	}
}

// TestWorkflowsThatNobodyServesAreTold when a flow that starts them is put.
func TestWorkflowsThatNobodyServesAreTold(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.do(t, http.MethodPut, "/v1/deployments/mail", `{"url":"http://app.test","stepsOnly":true}`)
	a.post(t, "/v1/flows", `{"document":"flow: known\nsteps: {a: {set: 1}}"}`, 201)
	const document = `flow: starts\nsteps:\n  a: {flow: known}\n  b: {start: unknown}\n  c: {start: known, deployment: mail}\n` +
		`  d: {flow: starts}\n  e: {map: '[1]', do: {flow: missing}}\n  f: {call: x, deployment: mail, undo: {flow: lost}}`
	for _, more := range []string{`,"dryRun":true`, ``} {
		status, got := a.do(t, http.MethodPost, "/v1/flows", `{"document":"`+document+`"`+more+`}`)
		var lines []any
		warnings, _ := got["warnings"].([]any)
		for _, w := range warnings {
			lines = append(lines, w.(map[string]any)["line"])
		}
		if text := fmt.Sprint(warnings); fmt.Sprint(lines) != "[4 5 7 8]" || !strings.Contains(text, `no app with workflow "unknown"`) {
			t.Errorf("got %d and the warnings %s", status, text)
		}
	}
}

// TestFlowGraphs reads the graphs of two versions, and that of a run, which keeps the version that it began with.
func TestFlowGraphs(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.post(t, "/v1/flows", `{"document":"flow: greet\nsteps: {a: {set: 1}, b: {needs: a, set: 2}}"}`, 201)
	run := a.post(t, "/v1/runs", `{"workflow":"greet"}`, 201)["id"]
	a.post(t, "/v1/flows", `{"document":"flow: greet\nsteps: {c: {set: 1}}"}`, 201)
	graph := func(path string) string {
		got := a.get(t, path)
		return fmt.Sprint(got["deployment"], " ", got["steps"], " ", got["edges"])
	}
	check.Equal(t, "the newest version", graph("/v1/flows/greet/graph"), "greet@2 [map[id:c kind:set layer:0]] []")
	const first = "greet@1 [map[id:a kind:set layer:0] map[id:b kind:set layer:1]] [map[from:a to:b]]"
	check.Equal(t, "version 1", graph("/v1/flows/greet/graph?version=1"), first)
	const ofRun = "greet@1 [map[id:a kind:set layer:0 stage:pending] map[id:b kind:set layer:1 stage:pending]] [map[from:a to:b]]"
	check.Equal(t, "the run", graph(fmt.Sprintf("/v1/runs/%v/graph", run)), ofRun)
	a.wantRejected(t, http.MethodGet, "/v1/flows/greet/graph?version=9", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/flows/nobody/graph", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/runs/"+string(a.driven(t, "w"))+"/graph", "", http.StatusNotFound, "flow_not_found")
}

// TestFlowInputIsCheckedAtTheStart: nothing is written if the input does not fit, and all faults are told at once.
func TestFlowInputIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.post(t, "/v1/flows", `{"document":"flow: paid\ninput: {type: object, required: [id, sum], properties: {sum: {type: number}, n: {type: integer}}}\nsteps: {a: {set: 1}}"}`, 201)
	status, got := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"paid","input":{"sum":"1","n":1.5}}`)
	text := fmt.Sprint(got["error"])
	if status != http.StatusUnprocessableEntity || strings.Count(text, "path:") != 3 || !strings.Contains(text, "path:/sum") ||
		!strings.Contains(text, "schema_violated") {
		t.Errorf("got %d %s, want three violations", status, text)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"paid"}`, http.StatusUnprocessableEntity, "schema_violated")
	if list := a.all(t, "/v1/runs", "10"); len(list) != 0 {
		t.Errorf("%d runs were written", len(list))
	}
	a.post(t, "/v1/runs", `{"workflow":"paid","input":{"id":1,"sum":1e2}}`, 201)
}

// TestFlowsRefuseWhatTheyCannotRead: an input, a payload or a result of more than 16 MiB is refused for the run of a
// flow, and nothing is written. Runs of functions take it.
func TestFlowsRefuseWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.post(t, "/v1/flows", `{"document":"flow: f\ndeployment: d\nsteps: {h: {hook: {}}, a: {call: c, async: true, timeout: 1m}}"}`, 201)
	large := `"` + strings.Repeat("x", 16<<20-1) + `"` // a byte too many
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"f","input":`+large+`}`, 413, "payload_too_large")
	if list := a.all(t, "/v1/runs", "10"); len(list) != 0 {
		t.Errorf("%d runs were written", len(list))
	}
	a.post(t, "/v1/runs", `{"workflow":"f","input":`+large[:len(large)-2]+`"}`, 201)
	ofFlow := func(r *eventlog.Request) { r.Data.DeploymentID = "f@1" }
	for _, run := range []entities.RunID{a.driven(t, "f", ofFlow), a.driven(t, "w")} {
		isFlow := a.get(t, "/v1/runs/"+string(run))["workflow"] == "f"
		a.event(t, run, entities.EventHookCreated, on("h"), token("token of "+string(run), false))
		a.event(t, run, entities.EventStepCreated, on("a"), data(func(d *entities.EventData) {
			d.StepName, d.Step = "a", &entities.StepSpec{DeploymentID: "d", Async: true}
		}))
		before := len(a.logOf(t, run))
		for path, body := range map[string]string{
			"/hooks/h/resume": `{"payload":` + large + `}`,
			"/steps/a/result": `{"output":` + large + `}`,
		} {
			if isFlow {
				a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(run)+path, body, 413, "payload_too_large")
			} else if status, got := a.do(t, http.MethodPost, "/v1/runs/"+string(run)+path, body); status >= 300 {
				t.Errorf("%s of a function: got %d %v", path, status, got)
			}
		}
		if n := len(a.logOf(t, run)); isFlow && n != before {
			t.Errorf("%d events were written", n-before)
		}
	}
}

// TestVotes: an approval takes votes of those who may, with a form that fits, once for each name, and notes the key.
func TestVotes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	onlyVotes := data(func(d *entities.EventData) { d.Webhook = &entities.WebhookSpec{Verify: webhook.Vote} })
	a.event(t, run, entities.EventHookCreated, on("agree"), token("approval_1", false), onlyVotes, with(
		`{"approval":{"title":"t","by":["anna","role:finance"],"form":{"type":"object","required":["limit","why"]}}}`))
	path := "/v1/runs/" + string(run) + "/hooks/agree/resume"
	for payload, want := range map[string]string{
		`{"decision":"approve","as":"anna","form":{}}`: "schema_violated",
		`{"decision":"approve","as":"bob"}`:            "not_an_approver",
		`{"decision":"perhaps","as":"anna"}`:           "invalid_request",
		`{"approve":true}`:                             "invalid_request",
		`true`:                                         "invalid_request",
	} {
		status := map[string]int{"schema_violated": 422, "not_an_approver": 403, "invalid_request": 400}[want]
		a.wantRejected(t, http.MethodPost, path, `{"payload":`+payload+`}`, status, want)
	}
	good := `{"payload":{"decision":"approve","as":"anna","form":{"limit":1,"why":"x"}}}`
	a.post(t, path, good, 200)
	if got := a.post(t, "/v1/hooks/approval_1/resume", good, 200); got["repeated"] != true {
		t.Errorf("the same vote again: %v", got)
	}
	a.wantRejected(t, http.MethodPost, path, `{"payload":{"decision":"reject","as":"anna"}}`, 409, "has_voted")
	a.wantRejected(t, http.MethodPost, path, `{"payload":{"decision":"reject","as":"Anna","roles":["finance"]}}`, 409, "has_voted")
	a.post(t, path, `{"payload":{"decision":"reject","roles":["finance"]}}`, 200)
	got := a.payloads(t, run)
	if len(got) != 2 || !strings.HasPrefix(got[0], `{"decision":"approve","by":"anna","key":"`) ||
		strings.Contains(got[0], `"key":""`) {
		t.Errorf("the log has %q", got)
	}
	a.event(t, run, entities.EventHookDisposed, on("agree"))
	a.wantRejected(t, http.MethodPost, path, `{"payload":{"decision":"reject","as":"zoe","roles":["finance"]}}`, 409, "approval_over")
	a.event(t, run, entities.EventRunCompleted)
	a.wantRejected(t, http.MethodPost, path, `{"payload":{"decision":"reject","as":"zoe","roles":["finance"]}}`, 410, "run_ended")
}

// TestVotesCountPerApproval: a name that has voted on one approval of a run votes on another one too.
func TestVotesCountPerApproval(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	ballot := `{"payload":{"decision":"approve","as":"anna"}}`
	for _, hook := range []string{"first", "second"} {
		a.event(t, run, entities.EventHookCreated, on(hook), token("approval_"+hook, false), with(`{"approval":{"title":"t"}}`))
		path := "/v1/runs/" + string(run) + "/hooks/" + hook + "/resume"
		if got := a.post(t, path, ballot, 200); got["repeated"] != false || got["hookId"] != hook {
			t.Errorf("the vote on %s: %v", hook, got)
		}
		if got := a.post(t, path, ballot, 200); got["repeated"] != true {
			t.Errorf("the same vote on %s again: %v", hook, got)
		}
	}
	if got := a.payloads(t, run); len(got) != 2 {
		t.Errorf("the log has %q, want two votes", got)
	}
}

// TestKeysVoteOnce: where keys must be distinct, no key votes again under another name, also if many votes come at once.
func TestKeysVoteOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	a.event(t, run, entities.EventHookCreated, on("agree"), token("approval_1", false), with(
		`{"approval":{"title":"t","quorum":2,"distinctKeys":true}}`))
	path := "/v1/runs/" + string(run) + "/hooks/agree/resume"
	first := a.key(t, "", `{"name":"first","role":"invoke"}`)["key"].(string)
	second := a.key(t, "", `{"name":"second","role":"invoke"}`)["key"].(string)
	vote := func(key, name string) string {
		status, answer := a.as(t, key, http.MethodPost, path, `{"payload":{"decision":"approve","as":"`+name+`"}}`)
		if status == http.StatusOK {
			return "counts"
		}
		problem, _ := answer["error"].(object)
		return fmt.Sprint(problem["code"])
	}
	var mu sync.Mutex
	var racers sync.WaitGroup
	got := map[string]int{}
	for i := range 8 {
		racers.Go(func() {
			answer := vote(first, fmt.Sprint("name-", i))
			mu.Lock()
			defer mu.Unlock()
			got[answer]++
		})
	}
	if racers.Wait(); got["counts"] != 1 || got["key_has_voted"] != 7 {
		t.Errorf("eight names of one key: got %v, want one vote", got)
	}
	check.Equal(t, "another key", vote(second, "bob"), "counts")
	if got := a.payloads(t, run); len(got) != 2 {
		t.Errorf("the log has %q, want two votes", got)
	}
}

// TestStepResults: the result of an async step is sent with the token of its callback or a key, once.
func TestStepResults(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	a.event(t, run, entities.EventStepCreated, on("a"), data(func(d *entities.EventData) {
		d.StepName, d.Step = "a", &entities.StepSpec{DeploymentID: "d", Async: true}
	}))
	a.event(t, run, entities.EventStepCreated, on("b"), data(func(d *entities.EventData) {
		d.StepName, d.Step = "b", &entities.StepSpec{DeploymentID: "d"}
	}))
	path := "/v1/runs/" + string(run) + "/steps/"
	for _, body := range []string{`{}`, `{"output":1,"error":{"message":"x"}}`, `{"error":{}}`, `{"result":1}`} {
		a.wantRejected(t, http.MethodPost, path+"a/result", body, 400, "invalid_request")
	}
	a.wantRejected(t, http.MethodPost, path+"b/result", `{"output":1}`, 400, "invalid_request")
	a.wantRejected(t, http.MethodPost, path+"c/result", `{"output":1}`, 404, "step_not_found")
	a.send(t, http.MethodPost, path+"a/result", `{"error":{"message":"lost","code":"lost"}}`, 204)
	a.wantRejected(t, http.MethodPost, path+"a/result", `{"output":1}`, 409, "conflict")
	if step := a.get(t, path+"a"); step["status"] != "failed" {
		t.Errorf("the step is %v", step)
	}
}

// TestAliases starts runs by an alias, moves it, and retires the version that it pointed to.
func TestAliases(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, document := range []string{"flow: greet\\nsteps: {text: {set: 1}}", "flow: greet\\nsteps: {text: {set: 2}}"} {
		a.send(t, http.MethodPost, "/v1/flows", `{"document":"`+document+`"}`, http.StatusCreated)
	}
	start := func(deployment string) (id, of any) {
		t.Helper()
		run := a.send(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"`+deployment+`"}`, http.StatusCreated)
		return run["id"], run["deployment"]
	}
	put := func(version string) {
		t.Helper()
		status, got := a.do(t, http.MethodPut, "/v1/flows/greet/aliases/prod", `{"version":`+version+`}`)
		if status != http.StatusOK || got["deployment"] != "greet@prod" {
			t.Fatalf("got %d %v", status, got)
		}
	}
	put("1")
	run, of := start("greet@prod")
	check.Equal(t, "the run", of, "greet@1")
	put("2")
	if _, of := start("greet@prod"); of != "greet@2" {
		t.Errorf("after the move, a run has %v, want greet@2", of)
	}
	a.wantRejected(t, http.MethodPut, "/v1/deployments/greet@prod", `{"url":"http://app.test"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPut, "/v1/deployments/mine", `{"url":"flow:greet@1"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/2/retire", "", http.StatusConflict, "flow_in_use")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/9/retire", "", http.StatusNotFound, "flow_not_found")
	a.wantRejected(t, http.MethodPost, "/v1/flows/greet/versions/1/retire", "", http.StatusConflict, "flow_in_use") // its run is open
	a.send(t, http.MethodPost, fmt.Sprintf("/v1/runs/%v/cancel", run), "{}", http.StatusOK)
	if status, got := a.do(t, http.MethodPost, "/v1/flows/greet/versions/1/retire", ""); status != http.StatusOK || got["retiredAt"] == nil {
		t.Fatalf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"greet@1"}`, http.StatusConflict, "flow_retired")
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"greet","deployment":"greet@none"}`, http.StatusNotFound, "deployment_not_found")
	a.send(t, http.MethodDelete, "/v1/flows/greet/aliases/prod", "", http.StatusNoContent)
	a.wantRejected(t, http.MethodDelete, "/v1/flows/greet/aliases/prod", "", http.StatusNotFound, "alias_not_found")
}

// TestRetiredVersionRefusesAnyInput: also a version that the server remembers of the start before.
func TestRetiredVersionRefusesAnyInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, steps := range []string{"{a: {set: 1}}", "{a: {set: 2}}"} {
		a.send(t, http.MethodPost, "/v1/flows", `{"document":"flow: paid\ninput: {type: object}\nsteps: `+steps+`"}`, http.StatusCreated)
	}
	run := a.send(t, http.MethodPost, "/v1/runs", `{"workflow":"paid","deployment":"paid@1","input":{}}`, http.StatusCreated)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"paid","deployment":"paid@1","input":1}`, http.StatusUnprocessableEntity, "schema_violated")
	a.send(t, http.MethodPost, fmt.Sprintf("/v1/runs/%v/cancel", run["id"]), "{}", http.StatusOK)
	a.send(t, http.MethodPost, "/v1/flows/paid/versions/1/retire", "", http.StatusOK)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"paid","deployment":"paid@1","input":1}`, http.StatusConflict, "flow_retired")
}

// TestCatalogs puts versions of a catalog, previews plans, and starts runs that are planned.
func TestCatalogs(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	put := func(body string, want int) map[string]any {
		t.Helper()
		got := a.send(t, http.MethodPost, "/v1/catalogs", body, want)
		return got
	}
	const document = `{"document":"catalog: c\nattributes: {a: {type: string}}\nsteps: {f: {set: {b: \"${a}\"}, takes: {a: {}}, gives: {b: {}}}}"%s}`
	put(fmt.Sprintf(document, `,"dryRun":true`), http.StatusOK)
	if list := a.get(t, "/v1/catalogs")["data"].([]any); len(list) != 0 {
		t.Errorf("after a dry run there are %v", list)
	}
	if got := put(fmt.Sprintf(document, ""), http.StatusCreated); got["version"] != 1.0 {
		t.Errorf("the first version is %v", got)
	}
	put(fmt.Sprintf(document, ""), http.StatusOK)
	put(strings.ReplaceAll(fmt.Sprintf(document, ""), "f:", "g:"), http.StatusCreated)
	if got := a.get(t, "/v1/catalogs/c?version=1"); !strings.HasPrefix(got["document"].(string), "catalog: c") ||
		len(got["versions"].([]any)) != 2 {
		t.Errorf("version 1 is %v", got)
	}
	status, got := a.do(t, http.MethodPost, "/v1/catalogs/c/preview", `{"want":["b"],"have":["a"],"version":1}`)
	if waves := fmt.Sprint(got["waves"]); status != http.StatusOK || waves != "[[f]]" || got["version"] != 1.0 {
		t.Errorf("the preview is %d %v", status, got)
	}

	const start = `{"catalog":"c","want":["b"],"have":{"a":"x"},"idempotencyKey":"k"}`
	status, run := a.do(t, http.MethodPost, "/v1/runs", start)
	if status != http.StatusCreated || run["deployment"] != "c@1" || run["workflow"] != "c" {
		t.Errorf("start: got %d %v", status, run)
	}
	put(strings.ReplaceAll(fmt.Sprintf(document, ""), "f:", "h:"), http.StatusCreated)
	if status, again := a.do(t, http.MethodPost, "/v1/runs", start); status != http.StatusOK || again["id"] != run["id"] {
		t.Errorf("the same start again, after a new version: got %d %v", status, again)
	}
	if versions := a.get(t, "/v1/flows/c")["versions"].([]any); len(versions) != 1 {
		t.Errorf("there are the plans %v, want one", versions)
	}

	for _, test := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/v1/runs", `{"catalog":"c","want":["b"]}`, http.StatusUnprocessableEntity, "goals_unreached"},
		{"/v1/runs", `{"catalog":"c","want":["z"]}`, http.StatusBadRequest, "invalid_request"},
		{"/v1/runs", `{"catalog":"z","want":["z"]}`, http.StatusNotFound, "catalog_not_found"},
		{"/v1/runs", `{"catalog":"c","want":["b"],"have":{"a":1}}`, http.StatusUnprocessableEntity, "schema_violated"},
		{"/v1/runs", `{"catalog":"c","workflow":"c","want":["b"]}`, http.StatusBadRequest, "invalid_request"},
		{"/v1/runs", `{"workflow":"c","want":["b"]}`, http.StatusBadRequest, "invalid_request"},
		{"/v1/runs", `{"workflow":"c"}`, http.StatusConflict, "workflow_is_catalog"},
		{"/v1/flows", `{"document":"flow: c\nsteps: {a: {set: 1}}"}`, http.StatusConflict, "flow_name_taken"},
		{"/v1/catalogs", `{"document":"catalog: c\nsteps: {a: {sett: 1}}"}`, http.StatusUnprocessableEntity, "invalid_flow"},
		{"/v1/catalogs/z/preview", `{"want":["b"]}`, http.StatusNotFound, "catalog_not_found"},
	} {
		a.wantRejected(t, http.MethodPost, test.path, test.body, test.status, test.code)
	}
	a.wantRejected(t, http.MethodGet, "/v1/catalogs/z", "", http.StatusNotFound, "catalog_not_found")
}
