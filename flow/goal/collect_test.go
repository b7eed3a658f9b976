package goal

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

// TestListsOfValues has several values of an attribute from the start.
func TestListsOfValues(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"": `"a"`, "collect: first, match: \"value > 'a'\"": `"b"`, "collect: last": `"b"`, "collect: some": `["a","b","c"]`,
		"collect: all": `["a","b","c"]`, "collect: some, match: \"value != 'b'\"": `["a","c"]`,
	} {
		steps := "  f: {call: f, takes: {n: {}}, gives: {x: {}}}\n  g: {call: g, takes: {x: {" + mode + "}}, gives: {y: {}}}"
		if strings.Contains(mode, "last") {
			steps = "  g: {call: g, takes: {x: {" + mode + "}}, gives: {y: {}}}"
		}
		input := `{"have":{"n":1},"haveAll":{"x":["a","b"]}}`
		got := runPlan(t, header+steps, Ask{Want: []string{"y"}, Have: []string{"n"}, HaveAll: []string{"x"}}, input,
			map[string]flow.Result{"f": gives(`{"x":"c"}`), "g": gives(`{"y":1}`)})
		calls := callsOf(got)
		if last := calls[len(calls)-1]; last != fmt.Sprintf(`g {"x":%s}`, want) {
			t.Errorf("%q: got %v, want %s", mode, calls, want)
		}
	}
}

// TestOneDecisionSeesSeveralEnds: what counts is the order in the log, not that of the plan. What there was at the
// start is older than all.
func TestOneDecisionSeesSeveralEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ takes, have, haveAll, ends, want string }{
		{"together: true", "", "", "a b c", `"a"`},
		{"together: true", "", "", "c b a", `"c"`},
		{"together: true, match: \"value != 'c'\"", "", "", "c b a", `"b"`},
		{"collect: last", "", "", "a c b", `"b"`},
		{"collect: last", "", "", "b c a", `"a"`},
		{"collect: last, match: \"value != 'a'\"", "", "", "b c a", `"c"`},
		{"collect: some", "", "", "c b a", `["a","b","c"]`},
		{"collect: last", "x", "", "b c a", `"a"`},
		{"collect: last", "", "x", "b c a", `"a"`},
		{"collect: some", "x", "", "c b a", `["x0","a","b","c"]`},
		{"collect: all", "", "x", "c b a", `["x0","x1","a","b","c"]`},
		{"collect: some, match: \"value == 'b'\"", "x", "", "c b a", `["b"]`},
		{"collect: some, match: \"value == 'b'\"", "", "x", "c b a", `["b"]`},
		{"collect: last, match: \"value == 'b'\"", "", "x", "c b a", `"b"`},
	} {
		p, err := parse(t, header+`
  a: {call: a, gives: {x: {from: result}}}
  b: {call: b, gives: {x: {from: result}}}
  c: {call: c, gives: {x: {from: result}}}
  g: {call: g, takes: {x: {`+test.takes+`}}, gives: {y: {}}}`).
			Plan(Ask{Want: names("y"), Have: names(test.have), HaveAll: names(test.haveAll)}, NewBudget())
		if err != nil {
			t.Fatal(err)
		}
		f, err := flow.Parse(p.Document(""))
		if err != nil {
			t.Fatal(err)
		}
		input := map[string]any{"have": map[string]any{}, "haveAll": map[string]any{}}
		if test.have != "" {
			input["have"] = map[string]any{"x": "x0"}
		}
		if test.haveAll != "" {
			input["haveAll"] = map[string]any{"x": []string{"x0", "x1"}}
		}
		text, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		log := []flow.Event{{Type: entities.EventRunCreated, Payload: text}, {Type: entities.EventRunStarted}}
		for _, id := range names("a b c") {
			log = append(log, flow.Event{Type: entities.EventStepCreated, CorrelationID: id})
		}
		for _, id := range names(test.ends) {
			log = append(log, flow.Event{
				Type: entities.EventStepCompleted, CorrelationID: id, Payload: json.RawMessage(fmt.Sprintf("%q", id)),
			})
		}
		for i := range log {
			log[i].Seq = int64(i + 1)
		}
		state := f.Begin()
		if err := state.Apply(contract.Run{ID: "wrun_trial"}, log); err != nil {
			t.Fatal(err)
		}
		commands, err := state.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, err = json.Marshal(commands)
		if err != nil {
			t.Fatal(err)
		}
		if want := `"input":{"x":` + test.want + `}`; !strings.Contains(string(text), want) {
			t.Errorf("{%s} of %s%s, %s: got %s, want %s", test.takes, test.have, test.haveAll, test.ends, text, want)
		}
	}
}
