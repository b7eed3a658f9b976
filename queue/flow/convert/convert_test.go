package convert

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			{"id": "b", "type": "agent_loop", "task": "b", "config": {"max_iterations": 3}, "compensate": "nobody"}
		]}`), "shop")
	var refused Unsupported
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want Unsupported", err)
	}
	for _, part := range []string{"sticky", "timeout", "worker_group", "linear", "agent_loop", `"nobody"`} {
		if strings.Count(err.Error(), part) != 1 {
			t.Errorf("got %v, want one sentence about %s", err, part)
		}
	}
	if len(refused) != 6 {
		t.Errorf("%d sentences, want 6: %v", len(refused), refused)
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
