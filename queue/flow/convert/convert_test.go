package convert

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/flow"
)

func TestDagNats(t *testing.T) {
	t.Parallel()
	got, warnings, err := From("dagnats", []byte(`{
		"name": "orders", "version": "1",
		"default_retry": {"max_attempts": 2, "strategy": "exponential", "initial_delay": "1s", "max_delay": 60000000000},
		"steps": [
			{"id": "validate", "task": "validate-order", "timeout": "30s", "retries": 3},
			{"id": "pay", "type": "sub_workflow", "config": {"workflow": "payment"}, "depends_on": ["validate"],
				"skip_if": {"step_id": "validate", "field": "total", "op": "==", "value": 0}},
			{"id": "reserve", "task": "reserve", "depends_on": ["validate"], "compensate": "release", "on_failure": "alert"},
			{"id": "release", "task": "release-stock"},
			{"id": "alert", "task": "alert"},
			{"id": "pause", "type": "sleep", "config": {"duration": 60000000000}, "depends_on": ["validate"]},
			{"id": "paid", "type": "wait_for_event", "config": {"event": "order.paid", "timeout": "2h"}},
			{"id": "ship", "task": "ship", "depends_on": ["validate", "reserve"]}
		]}`), "shop")
	if err != nil {
		t.Fatal(err)
	}
	const want = `flow: "orders"
deployment: "shop"
defaults: {"retry":{"backoff":"1s","factor":2,"maxAttempts":3,"maxBackoff":"1m0s"}}
steps:
  validate:
    call: "validate-order"
    timeout: "30s"
    retry: {"maxAttempts":4}
  pay:
    needs: ["validate"]
    when: "!(\"total\" in steps[\"validate\"].output && steps[\"validate\"].output[\"total\"] == 0)"
    flow: "payment"
    input: "${steps[\"validate\"].output}"
  reserve:
    needs: ["validate"]
    call: "reserve"
    input: "${steps[\"validate\"].output}"
    catch: [{"to":"alert"}]
    undo: {"call":"release-stock"}
  alert:
    call: "alert"
  pause:
    needs: ["validate"]
    wait: "1m0s"
  paid:
    signal: {"name":"order.paid","within":"2h0m0s"}
  ship:
    needs: ["validate","reserve"]
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
			{"id": "h", "type": "agent"}
		]}`), "shop")
	var refused Unsupported
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want Unsupported", err)
	}
	for _, part := range []string{
		"sticky", "timeout has", "worker_group", "linear", "budget_warn_at", `"nobody"`, "allowed_tasks", "max_depth",
		"several steps", "max_itemz", "headers has", "content_type", "of type sleep", "type agent:",
	} {
		if strings.Count(err.Error(), part) != 1 {
			t.Errorf("got %v, want one sentence about %s", err, part)
		}
	}
	if len(refused) != 14 {
		t.Errorf("%d sentences, want 14: %v", len(refused), refused)
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
steps:
  "fetch-urls":
    call: "fetch-urls"
  resize:
    needs: ["fetch-urls"]
    map: "size(steps[\"fetch-urls\"].output) <= 3 ? steps[\"fetch-urls\"].output : dyn('more than 3 items')"
    do: {"call":"resize","retry":{"maxAttempts":2},"undo":{"call":"remove"}}
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
    input: "${steps[\"request\"].output.body}"
  respond:
    needs: ["echo"]
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
