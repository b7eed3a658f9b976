package flow

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestGraph has a step that needs two, one with a condition, and one that a catch leads to.
func TestGraph(t *testing.T) {
	t.Parallel()
	g := parse(t, `
flow: f
deployment: d
steps:
  a: {call: a, undo: {call: u}, catch: [{codes: [x, y], to: c}]}
  b: {when: 'input == "b"', call: other}
  c: {wait: 1s}
  e: {needs: [a, b], join: any, set: 1}
`).Graph()
	want := Graph{
		Steps: []GraphStep{
			{ID: "a", Kind: "call", Name: "a", Undo: true},
			{ID: "b", Kind: "call", Name: "other", Conditional: true},
			{ID: "c", Kind: "wait", Layer: 1},
			{ID: "e", Kind: "set", Join: "any", Layer: 2}, // c may stand for a
		},
		Edges: []GraphEdge{{"a", "c", "x, y"}, {"a", "e", ""}, {"b", "e", ""}},
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const mermaid = `flowchart TD
  s0["a<br>call"]
  s1{{"b<br>call other"}}
  s2["c<br>wait"]
  s3["e<br>set"]
  s0 -. "fails: x, y" .-> s2
  s0 --> s3
  s1 --> s3
`
	if diff := cmp.Diff(mermaid, g.Mermaid()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := mermaidText(`a"b<i>#`); got != "a#quot;b#lt;i#gt;#35;" {
		t.Errorf("escaped: %s", got)
	}
}

// TestStages has what the log does not say by itself: which step has completed the run, what is left of one that was
// cancelled, and failures that the step of a body catches.
func TestStages(t *testing.T) {
	t.Parallel()
	p := parse(t, `
flow: f
deployment: d
steps:
  a: {map: input, do: {call: a, catch: [{codes: [odd], then: continue}]}}
  b: {needs: a, call: b, undo: {call: u}}
  c: {needs: a, signal: {name: s, within: 1h}}
  d: {needs: [b, c], complete: 1}
`)
	event := func(kind entities.EventType, id string) Event {
		return Event{Type: kind, CorrelationID: id, Payload: json.RawMessage(`{"message":"","code":"timeout"}`)}
	}
	items := map[string][]Instances{"a": {
		{Stage: StageFailed, Code: "odd", Count: 2}, {Stage: StageFailed, Code: "other", Count: 1}, {Stage: StageRunning, Count: 3},
	}}
	counted := &Items{Begun: 6, Completed: 2, Failed: 1}
	for name, test := range map[string]struct {
		status entities.RunStatus
		events []Event
		of     map[string][]Instances
		want   []StepStage
	}{
		"nothing": {entities.RunPending, nil, nil, []StepStage{
			{Stage: StagePending}, {Stage: StagePending}, {Stage: StagePending}, {Stage: StagePending},
		}},
		"items": {entities.RunRunning, nil, items, []StepStage{
			{Stage: StageRunning, Items: counted}, {Stage: StagePending}, {Stage: StagePending}, {Stage: StagePending},
		}},
		"completed by d": {entities.RunCompleted, []Event{
			event(entities.EventStepCompleted, "a"), event(entities.EventStepCompleted, "b"), event(entities.EventHookReceived, "c"),
		}, nil, []StepStage{
			{Stage: StageCompleted}, {Stage: StageCompleted}, {Stage: StageCompleted}, {Stage: StageCompleted},
		}},
		"cancelled": {entities.RunCancelled, []Event{
			event(entities.EventStepCompleted, "a"), event(entities.EventStepCreated, "b"), event(entities.EventHookCreated, "c"),
		}, nil, []StepStage{
			{Stage: StageCompleted}, {Stage: StageCancelled}, {Stage: StageCancelled}, {Stage: StagePending},
		}},
		"undoing": {entities.RunRunning, []Event{
			event(entities.EventStepCompleted, "a"), event(entities.EventStepFailed, "b"), event(entities.EventHookCreated, "c"),
			event(entities.EventWaitCreated, "c~within"), event(entities.EventWaitCompleted, "c~within"),
			event(entities.EventStepCreated, "b~undo"), event(entities.EventStepRetrying, "b~undo"),
		}, nil, []StepStage{
			{Stage: StageCompleted}, {Stage: StageFailed, Code: "timeout", Undoing: StageRetrying},
			{Stage: StageFailed, Code: "wait_timeout"}, {Stage: StagePending},
		}},
	} {
		got, err := p.Stages(test.status, test.events, test.of)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got, %v):\n%s", name, err, diff)
		}
	}
	if _, err := p.Stages(entities.RunRunning, []Event{event(entities.EventStepCreated, "z")}, nil); !errors.Is(err, ErrLog) {
		t.Errorf("a step that does not exist: got %v, want ErrLog", err)
	}
}
