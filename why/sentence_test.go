package why

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/queue/hold"
)

// TestSentences: each kind of reason has one, with an example.
func TestSentences(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/sentences.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct {
		Reason   Reason
		Sentence string
	}
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	missing := map[Kind]bool{}
	for _, k := range Kinds() {
		missing[k] = true
	}
	for _, e := range examples {
		delete(missing, e.Reason.Kind)
		if got := e.Reason.Sentence(); got != e.Sentence {
			t.Errorf("%s: got %q, want %q", e.Reason.Kind, got, e.Sentence)
		}
	}
	if len(missing) > 0 {
		t.Errorf("there is no example of %q", slices.Collect(maps.Keys(missing)))
	}
}

// TestCommands: each remedy has a command, whose words a shell takes as they are.
func TestCommands(t *testing.T) {
	t.Parallel()
	r := Reason{
		Kind: Parked, HookID: "paid now", Name: "order.paid", ChildID: "wrun_2", MessageID: "msg_1", DeploymentID: "shop@1",
		Limit: "it's", Slots: 2, Remedies: Remedies(),
		Pause: &hold.Pause{Subject: hold.Subject{Kind: hold.Workflow, Name: "place order"}},
	}
	want := []string{
		"stepwell messages retry msg_1", "stepwell messages discard msg_1", "stepwell deployments add shop@1 URL",
		"stepwell hooks resume 'paid now' --run wrun_1 --payload JSON", "stepwell signals send order.paid --data JSON",
		"stepwell runs send wrun_1 order.paid --payload JSON", `stepwell limits set 'it'\''s' --per-key 3`,
		"stepwell projects resume order.paid", "stepwell workflows resume 'place order'", "stepwell why wrun_2", "stepwell runs cancel wrun_1",
	}
	if diff := cmp.Diff(want, r.Commands("wrun_1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		r    Reason
		want string
	}{
		{Reason{Kind: Unreachable, DeploymentID: "shop", Remedies: []Remedy{PutDeployment}}, "stepwell deployments move shop URL"},
		{Reason{Kind: DeploymentFull, DeploymentID: "shop", Slots: 4, Remedies: []Remedy{PutDeployment}}, "stepwell deployments add shop URL --max-concurrent 5"},
		{Reason{Kind: Approval, HookID: "ok", Remedies: []Remedy{ResumeHook}}, "stepwell hooks approve wrun_1 ok"},
		{Reason{Kind: LimitPaused, Limit: "l", Remedies: []Remedy{PutLimit}}, "stepwell limits set l --no-paused"},
		{Reason{Kind: Rate, Limit: "l", Remedies: []Remedy{PutLimit}}, "stepwell limits set l --rate N/TIME"},
		{Reason{Kind: LimitFull, Limit: "l", InAll: true, Slots: 1, Remedies: []Remedy{PutLimit}}, "stepwell limits set l --total 2"},
	} {
		if got := tt.r.Commands("wrun_1"); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: got %q, want %q", tt.r.Kind, got, tt.want)
		}
	}
}
