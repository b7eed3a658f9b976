package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

func TestDagNats(t *testing.T) {
	t.Parallel()
	got, warnings, err := From("dagnats", []byte(`{
		"name": "orders", "version": "1", "timeout": "30m",
		"default_retry": {"max_attempts": 2, "strategy": "exponential", "initial_delay": "1s", "max_delay": 60000000000},
		"steps": [
			{"id": "validate", "task": "validate-order", "timeout": "30s", "retries": 3},
			{"id": "pay", "type": "sub_workflow", "config": {"workflow": "payment"}, "depends_on": ["validate"],
				"skip_if": {"step_id": "validate", "field": "total", "op": "==", "value": 0}},
			{"id": "reserve", "task": "reserve", "depends_on": ["validate"], "compensate": "release", "on_failure": "alert"},
			{"id": "release", "task": "release-stock", "timeout": "10s"},
			{"id": "alert", "task": "alert"},
			{"id": "pause", "type": "sleep", "config": {"duration": 60000000000}, "depends_on": ["validate"]},
			{"id": "paid", "type": "wait_for_event", "config": {"event": "order.paid", "timeout": "2h"}},
			{"id": "until", "type": "sleep", "config": {"until_input_path": "ship.at"}},
			{"id": "tell", "type": "sub_workflow", "config": {"workflow": "tell", "detach": true}},
			{"id": "ship", "task": "ship", "depends_on": ["validate", "reserve"]}
		]}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	const want = `flow: "orders"
deployment: "shop"
timeout: "30m0s"
defaults: {"retry":{"backoff":"1s","factor":2,"maxAttempts":3,"maxBackoff":"1m0s"}}
steps:
  validate:
    call: "validate-order"
    attemptTimeout: "30s"
  pay:
    needs: ["validate"]
    when: "!(type(steps[\"validate\"].output) == map && \"total\" in steps[\"validate\"].output && type(steps[\"validate\"].output[\"total\"]) in [int, uint, double] && steps[\"validate\"].output[\"total\"] == 0)"
    flow: "payment"
    input: "${steps[\"validate\"].output}"
  reserve:
    needs: ["validate"]
    call: "reserve"
    input: "${steps[\"validate\"].output}"
    catch: [{"to":"alert"}]
    undo: {"attemptTimeout":"10s","call":"release-stock","input":{"original_output":"${undo.output}","original_step":"reserve"}}
  alert:
    call: "alert"
    input: {"error":"${error.message}","failed_step":"reserve"}
  pause:
    needs: ["validate"]
    wait: "1m0s"
  paid:
    # A signal that does not come in time is a failure with the code wait_timeout: catch it to go on.
    signal: {"name":"order.paid","within":"2h0m0s"}
  until:
    let: {"until":"${input[\"ship\"][\"at\"]}"}
    # until is a time in RFC 3339, or a number of milliseconds from now on.
    wait: {"until":"${type(until) == string ? timestamp(until) : now + duration(string(int(until)) + 'ms')}"}
  tell:
    start: "tell"
  ship:
    needs: ["validate","reserve"]
    when: "!steps[\"reserve\"].failed"
    call: "ship"
    input: {"reserve":"${steps[\"reserve\"].output}","validate":"${steps[\"validate\"].output}"}
`
	if diff := cmp.Diff(want, string(got)); diff != "" || len(warnings) > 0 {
		t.Errorf("(-want +got, warnings %v):\n%s", warnings, diff)
	}
}

// TestWhatHasNoMeaningIsRefusedAtOnce has a sentence for each thing.
func TestWhatHasNoMeaningIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := From("dagnats", []byte(`{
		"name": "f", "version": "1", "sticky": "hard", "timeout": "1h",
		"steps": [
			{"id": "a", "task": "a", "worker_group": "gpu", "retry": {"max_attempts": 1, "strategy": "linear", "initial_delay": "1s"}},
			{"id": "b", "type": "agent_loop", "task": "b", "config": {"max_iterations": 3, "budget_warn_at": 2}, "compensate": "nobody"},
			{"id": "c", "type": "planner", "task": "c", "config": {"max_steps": 3, "max_depth": 2}},
			{"id": "d", "type": "map", "task": "d", "config": {"max_itemz": 3}, "depends_on": ["a", "b"]},
			{"id": "e", "type": "respond", "config": {"headers": {"A": "b"}, "content_type": "text/html"}},
			{"id": "g", "type": "sleep", "config": {"duration": "1s"}, "compensate": "x"},
			{"id": "h", "type": "robot", "on_failure": "i"},
			{"id": "i", "task": "i", "depends_on": ["a"], "skip_if": {"step_id": "a", "field": "f", "op": "<", "value": true}},
			{"id": "j", "type": "sleep", "config": {"cron": "0 9 * * 1"}},
			{"id": "k", "task": "k", "depends_on": ["a"], "skip_if": {"step_id": "a", "field": "f", "op": "==", "value": null}}
		]}`), "shop")
	var refused Unsupported
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want Unsupported", err)
	}
	for _, part := range []string{
		"sticky", "worker_group", "linear", "budget_warn_at", `"nobody"`, "allowed_tasks", "max_depth",
		"several steps", "max_itemz", "headers has", "content_type", "of type sleep", "type robot:",
		"step i: depends_on names a", "a boolean by <", "cron has", "compares with null",
	} {
		if strings.Count(err.Error(), part) != 1 {
			t.Errorf("got %v, want one sentence about %s", err, part)
		}
	}
	if len(refused) != 17 {
		t.Errorf("%d sentences, want 17: %v", len(refused), refused)
	}
	for document, part := range map[string]string{
		`{"name": "f", "version": "1", "stepz": []}`:                                              `unknown field "stepz"`,
		`{"name": "f", "version": "1", "steps": [{"id": "a", "task": "a", "depends_on": ["b"]}]}`: `there is no step "b"`,
	} {
		if _, _, err := From("dagnats", []byte(document), "shop"); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: got %v, want %s", document, err, part)
		}
	}
	if _, _, err := From("airflow", nil, ""); err == nil || !strings.Contains(err.Error(), "dagnats") {
		t.Errorf("got %v, want the known sources", err)
	}
}

// TestDagNatsPipeline: what a definition says about where and how much runs at once is refused, in a sentence each, and the
// rest of it is converted.
func TestDagNatsPipeline(t *testing.T) {
	t.Parallel()
	const pipeline = `{"name": "review", "version": "1", "timeout": "30m",%s
		"default_retry": {"max_attempts": 2, "strategy": "fixed", "initial_delay": "5s", "max_delay": "5s"},
		"steps": [
			{"id": "get-diff", "task": "git.diff", "timeout": "2m", "type": "normal"},
			{"id": "check", "task": "check", "depends_on": ["get-diff"]%s},
			{"id": "agent", "task": "agent.review", "type": "agent_loop", "timeout": "15m", "depends_on": ["get-diff"],
				"loop": {"max_iterations": 10, "loop_delay": "2s"%s},
				"retry": {"max_attempts": 3, "strategy": "exponential", "initial_delay": "2s", "max_delay": "30s", "multiplier": 2.0}},
			{"id": "post", "task": "post", "depends_on": ["check", "agent"], "on_failure": "alert", "metadata": {"channel": "reviews"},
				"skip_if": {"step_id": "check", "field": "found", "op": "==", "value": 0}},
			{"id": "alert", "task": "alert", "depends_on": ["get-diff"]}
		]}`
	if _, _, err := From("dagnats", fmt.Appendf(nil, pipeline, "", "", ""), "shop"); err != nil {
		t.Error(err)
	}
	_, _, err := From("dagnats", fmt.Appendf(nil, pipeline, `"concurrency": {"max_runs": 3, "max_steps": 2},`,
		`, "worker_group": "linters"`, `, "max_duration": "10m"`), "shop")
	want := Unsupported{
		"the workflow: concurrency has no meaning here: use limits: stepwell limits, stepwell policies",
		"step check: worker_group has no meaning here: name the deployment that has the function",
		"step agent: max_duration has no meaning here: limit the iterations, and the timeout of each",
	}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDagNatsSkipsAsThere skips what needs a step whose failure is handled, and by conditions on what the step has
// returned: what cannot be compared does not meet them.
func TestDagNatsSkipsAsThere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		output, op, value string
		skipped           bool
	}{
		{`{"f":7}`, "==", "7.0", true}, {`{"f":7}`, "!=", "7", false}, {`{"f":7.5}`, "<", "8", true}, {`{"f":"7"}`, "!=", "7", false},
		{`{"f":"a"}`, "<", `"b"`, true}, {`{"f":1}`, "<", `"b"`, false}, {`{"f":true}`, "==", "true", true},
		{`null`, "==", "7", false}, {`[1]`, "!=", "7", false}, {`{}`, "!=", "7", false},
	} {
		got, _, err := From("dagnats", []byte(`{"name": "f", "version": "1", "steps": [{"id": "a", "task": "a"}, {"id": "b", "task": "b",
			"depends_on": ["a"], "skip_if": {"step_id": "a", "field": "f", "op": "`+test.op+`", "value": `+test.value+`}}]}`), "shop")
		if err != nil {
			t.Fatal(err)
		}
		run := trial(t, got, flow.Trial{Results: map[string]flow.Result{"a": {Output: json.RawMessage(test.output)}}})
		if want := "b completed"; run.Error != nil || slices.Contains(run.Steps(), want) == test.skipped {
			t.Errorf("%s %s %s: %v, %v", test.output, test.op, test.value, run.Steps(), run.Error)
		}
	}
	got, _, err := From("dagnats", []byte(`{"name": "f", "version": "1", "steps": [{"id": "a", "task": "a", "on_failure": "alert"},
		{"id": "b", "task": "b", "depends_on": ["a"]}, {"id": "alert", "task": "alert"}]}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	var failed flow.Result
	if err := json.Unmarshal([]byte(`{"error": {"message": "no"}}`), &failed); err != nil {
		t.Fatal(err)
	}
	run := trial(t, got, flow.Trial{Results: map[string]flow.Result{"a": failed}})
	if want := []string{"a failed", "alert completed", "b skipped"}; run.Status != entities.RunCompleted || !slices.Equal(want, run.Steps()) {
		t.Errorf("%s: %v, want %v", run.Status, run.Steps(), want)
	}
}

// TestDagNatsWithBodies converts a map, a loop, a plan and an approval, and runs the flow.
func TestDagNatsWithBodies(t *testing.T) {
	t.Parallel()
	got, _, err := From("dagnats", []byte(`{
		"name": "images", "version": "1",
		"steps": [
			{"id": "fetch-urls", "task": "fetch-urls"},
			{"id": "resize", "task": "resize", "type": "map", "depends_on": ["fetch-urls"], "config": {"max_items": 3}, "retries": 1, "compensate": "remove"},
			{"id": "remove", "task": "remove"},
			{"id": "improve", "task": "improve", "type": "agent_loop", "depends_on": ["resize"], "loop": {"max_iterations": 10, "loop_delay": 1000000000}},
			{"id": "agree", "type": "approval", "depends_on": ["improve"], "config": {"timeout": 3600000000000, "subject": "approval.images", "description": "Publish?"}},
			{"id": "publish", "task": "plan-it", "type": "planner", "depends_on": ["agree"], "config": {"max_steps": 5, "max_depth": 5, "allowed_tasks": ["upload"]}}
		]}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	const want = `flow: "images"
deployment: "shop"
defaults: {"retry":{"maxAttempts":1}}
steps:
  "fetch-urls":
    call: "fetch-urls"
  resize:
    needs: ["fetch-urls"]
    map: "size(steps[\"fetch-urls\"].output) <= 3 ? steps[\"fetch-urls\"].output : dyn('more than 3 items')"
    do: {"call":"resize","retry":{"backoff":"5s","factor":1,"maxAttempts":2},"undo":{"call":"remove","input":{"original_output":"${undo.output}","original_step":"resize"}}}
  improve:
    needs: ["resize"]
    # improve returns an object: done ends the loop, and the next call gets the object as last.
    loop: {"delay":"1s","do":{"call":"improve","input":{"input":"${steps[\"resize\"].output}","last":"${iteration.last}"}},"max":10,"until":"iteration.last.done"}
  agree:
    needs: ["improve"]
    # Nothing is published at the subject approval.images: stepwell hooks list has what waits.
    approval: {"deadline":"1h0m0s","onTimeout":"reject","title":"Publish?"}
  publish:
    needs: ["agree"]
    # plan-it returns steps in the language of flows.
    plan: "plan-it"
    allow: {"calls":["upload"],"maxSteps":5}
    input: "${steps[\"agree\"].output}"
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	results := map[string]flow.Result{
		"fetch-urls": {Output: json.RawMessage(`["a","b"]`)}, "resize[0]": {Output: json.RawMessage(`1`)},
		"resize[1]": {Output: json.RawMessage(`2`)}, "improve#1": {Output: json.RawMessage(`{"done":false,"n":1}`)},
		"improve#2": {Output: json.RawMessage(`{"done":true,"n":2}`)},
		"publish#1": {Output: json.RawMessage(`{"steps":{"up":{"call":"upload"}}}`)}, "publish.up": {Output: json.RawMessage(`"there"`)},
	}
	votes := map[string][]json.RawMessage{"agree": {json.RawMessage(`{"decision":"approve","by":"anna"}`)}}
	run := trial(t, got, flow.Trial{Results: results, Payloads: votes})
	if run.Status != entities.RunCompleted || string(run.Output) != `{"publish":{"up":"there"}}` {
		t.Errorf("the run is %s with %s, %v", run.Status, run.Output, run.Error)
	}
	const again = `{"input":[1,2],"last":{"done":false,"n":1}}`
	if !slices.ContainsFunc(run.Events, func(e flow.Event) bool {
		return e.Type == entities.EventStepCreated && e.CorrelationID == "improve#2" && string(e.Payload) == again
	}) {
		t.Errorf("the second iteration does not get %s", again)
	}
	results["fetch-urls"] = flow.Result{Output: json.RawMessage(`[1,2,3,4]`)}
	if run := trial(t, got, flow.Trial{Results: results}); run.Error == nil || run.Error.Code != "flow.not_a_list" {
		t.Errorf("with more than max_items: %s, %v", run.Status, run.Error)
	}
}

// trial runs a flow offline.
func trial(t *testing.T, document []byte, by flow.Trial) flow.Outcome {
	t.Helper()
	p, err := flow.Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	run, err := by.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestDagNatsResponds converts a workflow that responds to a request: the flow waits for it.
func TestDagNatsResponds(t *testing.T) {
	t.Parallel()
	got, _, err := From("dagnats", []byte(`{
		"name": "http-echo", "version": "1.0",
		"steps": [
			{"id": "echo", "task": "echo", "depends_on": [], "on_failure": "sorry"},
			{"id": "sorry", "task": "sorry"},
			{"id": "respond", "type": "respond", "depends_on": ["echo"], "config": {"status": 201, "content_type": "application/json"}}
		],
		"triggers": [{"id": "t", "workflow_id": "http-echo", "enabled": true,
			"http": {"path": "/api/echo", "method": "POST", "timeout_ms": 5000, "max_body_bytes": 1048576}}]
		}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	const want = `flow: "http-echo"
deployment: "shop"
defaults: {"retry":{"maxAttempts":1}}
steps:
  # A run waits for its request: start it, and send the request to the URL of this hook.
  request:
    hook: {"webhook":{"respond":"5s"}}
  echo:
    needs: ["request"]
    call: "echo"
    input: "${steps[\"request\"].output.body}"
    catch: [{"to":"sorry"}]
  sorry:
    call: "sorry"
    input: {"error":"${error.message}","failed_step":"echo"}
  respond:
    needs: ["echo"]
    when: "!steps[\"echo\"].failed"
    respond: {"body":"${steps[\"echo\"].output}","status":201,"to":"request"}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	run := trial(t, got, flow.Trial{
		Results:  map[string]flow.Result{"echo": {Output: json.RawMessage(`"hi"`)}},
		Payloads: map[string][]json.RawMessage{"request": {json.RawMessage(`{"request":"req_1","body":"hi"}`)}},
	})
	if run.Status != entities.RunCompleted {
		t.Errorf("the run is %s, %v", run.Status, run.Error)
	}
}

// TestDagNatsSleeps until a time, or for a number of milliseconds, as the input says.
func TestDagNatsSleeps(t *testing.T) {
	t.Parallel()
	got, _, err := From("dagnats", []byte(`{"name": "f", "version": "1", "steps": [
		{"id": "a", "type": "sleep", "config": {"until_input_path": "at"}}]}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]time.Duration{`{"at": 90000}`: 90 * time.Second, `{"at": "2030-01-02T03:04:05Z"}`: 0} {
		run := trial(t, got, flow.Trial{Input: json.RawMessage(input)})
		created := slices.IndexFunc(run.Events, func(e flow.Event) bool { return e.Type == entities.EventWaitCreated })
		ended := slices.IndexFunc(run.Events, func(e flow.Event) bool { return e.Type == entities.EventWaitCompleted })
		if run.Status != entities.RunCompleted || created < 0 || ended < 0 {
			t.Fatalf("%s: %s, %v", input, run.Status, run.Error)
		}
		from, to := run.Events[created].CreatedAt, run.Events[ended].CreatedAt
		if want == 0 {
			want = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).Sub(from)
		}
		if to.Sub(from) != want {
			t.Errorf("%s: it waits for %s, want %s", input, to.Sub(from), want)
		}
	}
}

// TestDagNatsHandlesSeveralFailures with one handler, which may need what the failed steps needed, and which agents may be.
func TestDagNatsHandlesSeveralFailures(t *testing.T) {
	t.Parallel()
	const steps = `{"name": "f", "version": "1", "steps": [
		{"id": "get", "task": "get"},
		{"id": "a", "task": "a", "type": "agent", "depends_on": ["get"], "on_failure": "alert"},
		{"id": "b", "task": "b", "depends_on": ["get"], "on_failure": "alert"},
		{"id": "alert", "task": "alert", "type": "agent", "depends_on": ["get"]}%s]}`
	got, _, err := From("dagnats", fmt.Appendf(nil, steps, ""), "shop")
	if err != nil {
		t.Fatal(err)
	}
	var failed flow.Result
	if err := json.Unmarshal([]byte(`{"error": {"message": "no"}}`), &failed); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"a": "get completed, a failed, b completed, alert completed, alert_b skipped",
		"b": "get completed, a completed, b failed, alert skipped, alert_b completed",
	} {
		run := trial(t, got, flow.Trial{Results: map[string]flow.Result{id: failed}})
		steps := run.Steps()
		slices.Sort(steps)
		sorted := strings.Split(want, ", ")
		slices.Sort(sorted)
		if diff := cmp.Diff(sorted, steps); diff != "" || run.Status != entities.RunCompleted {
			t.Errorf("%s fails: %s (-want +got):\n%s", id, run.Status, diff)
		}
	}
	_, _, err = From("dagnats", fmt.Appendf(nil, steps, `, {"id": "c", "task": "c", "depends_on": ["alert"]}`), "shop")
	if err == nil || !strings.Contains(err.Error(), "write a handler for each of a, b") {
		t.Errorf("a step that needs the handler: %v", err)
	}
}

// TestDagNatsPrintsCommandsForTriggers that the document has.
func TestDagNatsPrintsCommandsForTriggers(t *testing.T) {
	t.Parallel()
	const document = `{"name": "f", "version": "1", "steps": [{"id": "a", "task": "a"}], "triggers": [%s]}`
	got, _, err := From("dagnats", fmt.Appendf(nil, document, `
		{"id": "nightly", "enabled": false, "cron": {"expression": "30 2 * * *", "timezone": "Europe/Berlin"}},
		{"id": "paid", "subject": {"subject": "order.paid"}}, {"id": "in", "webhook": {"path": "/x"}},
		{"id": "sync", "http": {"path": "/y", "method": "POST", "timeout_ms": 1, "max_body_bytes": 1}}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	const want = `# Once the flow is put: stepwell schedules put nightly f --cron '30 2 * * *' --time-zone Europe/Berlin (it was not enabled)
# Once the flow is put: stepwell triggers put paid f --signal order.paid
# Once the flow is put: stepwell triggers put in f --webhook
# Once the flow is put: stepwell triggers put sync f --webhook
flow: `
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got %s, want %s", got, want)
	}
	for trigger, part := range map[string]string{
		`{"id": "a", "subject": {"subject": "orders.*"}}`:                        "name each signal",
		`{"id": "a", "webhook": {"path": "/", "secret": "s"}}`:                   "--verify",
		`{"id": "a", "subject": {"subject": "a"}, "debounce": {"period": "1s"}}`: "--debounce",
		`{"id": "a", "external": {"kind": "x"}}`:                                 "external has no meaning",
		`{"id": "a", "else": 1}`:                                                 "cannot be read",
	} {
		if _, _, err := From("dagnats", fmt.Appendf(nil, document, trigger), "shop"); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: got %v, want %s", trigger, err, part)
		}
	}
}

// FuzzDagNats: no document makes the conversion panic.
func FuzzDagNats(f *testing.F) {
	f.Add([]byte(`{"name": "f", "version": "1", "steps": [{"id": "a", "task": "a", "on_failure": "b", "compensate": "b", "retries": 1}]}`))
	for _, kind := range []string{"map", "agent_loop", "planner", "approval", "respond", "sleep", "wait_for_event", "sub_workflow"} {
		f.Add([]byte(`{"name": "f", "version": "1", "default_retry": {"strategy": "fixed"}, "triggers": [{"http": {}}], "steps": [{"id": "a",
			"task": "a", "type": "` + kind + `", "depends_on": ["a"], "config": {}, "skip_if": {"step_id": "a", "op": "<", "value": 1}}]}`))
	}
	f.Fuzz(func(_ *testing.T, document []byte) { _, _, _ = From("dagnats", document, "shop") })
}
