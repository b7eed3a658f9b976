package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/flow"
)

// recordedRun is a run that a server has executed: its log, as functions see it, and the answers to the calls with the first
// of its events.
type recordedRun struct {
	Document string
	Run      contract.Run
	Events   []json.RawMessage
	Answers  []struct {
		Events   int
		Commands json.RawMessage
	}
}

// TestRecordedRunsAreDecidedAgain has the interpreter answer all calls of recorded runs again: it sends the same commands,
// with the same defaults in them, and agrees with each decision in the log. The files are kept for good. What makes the
// test fail changes the meaning of documents whose runs are under way: it needs a new number, and rules for both. See
// flow.Semantics.
func TestRecordedRunsAreDecidedAgain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "semantics", fmt.Sprint(flow.Semantics), "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d recorded runs (%v)", len(files), err)
	}
	sent := map[string]bool{}
	for _, file := range files {
		var r recordedRun
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p, err := flow.Parse([]byte(r.Document))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d, err := Compare(t.Context(), p, r.Run, r.Events); d != nil || err != nil {
			t.Errorf("%s: %v (%v)", file, d, err)
		}
		for _, a := range r.Answers {
			want, got := commands(t, a.Commands), commands(t, r.answer(t, p, a.Events))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: the commands after %d events (-recorded +now):\n%s", file, a.Events, diff)
			}
			for _, c := range want {
				kind, _, _ := strings.Cut(c, ",")
				sent[strings.TrimSuffix(kind, "}")] = true
			}
		}
	}
	for _, kind := range []string{
		"runStep", "recordStep", "startChild", "startRun", "wait", "cancelWait", "openHook", "closeHook", "cancelStep", "emit",
		"respond", "complete", "fail", "cancelled",
	} {
		if !sent[fmt.Sprintf(`{"type":%q`, kind)] {
			t.Errorf("no recorded answer has the command %s", kind)
		}
	}
}

// answer returns the commands that follow from the first events.
func (r *recordedRun) answer(t *testing.T, p *flow.Program, n int) json.RawMessage {
	t.Helper()
	call := flow.Call{Run: r.Run}
	for _, text := range r.Events[:n] {
		var e flow.Event
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		call.Events = append(call.Events, e)
	}
	text, err := p.Answer(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Commands json.RawMessage }
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Commands
}

// commands returns commands one by one.
func commands(t *testing.T, text json.RawMessage) (list []string) {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		list = append(list, string(c)+",")
	}
	return list
}
