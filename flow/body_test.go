package flow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// numbers returns a list of the numbers from 0.
func numbers(n int) json.RawMessage {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return mustJSON(list)
}

// TestBodies runs documents with maps, loops and plans. What is expected follows from docs/flows.md.
func TestBodies(t *testing.T) {
	t.Parallel()
	const rows = "flow: f\ndeployment: d\nsteps:\n  m:\n    map: input\n"
	runTrials(t, []trialTest{
		{
			name: "a map", document: rows + "    do: {call: x}\n",
			trial: Trial{Input: numbers(2), Results: map[string]Result{"m[0]": output(`"a"`), "m[1]": output(`"b"`)}},
			steps: []string{"m~items completed", "m[0] completed", "m[1] completed", "m completed"}, status: entities.RunCompleted, output: `{"m":["a","b"]}`,
		},
		{
			name: "an empty map", document: rows + "    do: {call: x}\n", trial: Trial{Input: numbers(0)},
			steps: []string{"m completed"}, status: entities.RunCompleted, output: `{"m":[]}`,
		},
		{
			name: "one at a time, with keys", document: rows + "    key: \"'k' + string(item)\"\n    concurrency: 1\n    do: {call: x}\n",
			trial: Trial{Input: json.RawMessage(`[7, 5]`), Results: map[string]Result{"m[k7]": output(`7`), "m[k5]": output(`5`)}},
			steps: []string{"m~items completed", "m[k7] completed", "m[k5] completed", "m completed"}, status: entities.RunCompleted, output: `{"m":[7,5]}`,
		},
		{
			name: "no list", document: rows + "    do: {call: x}\n", trial: Trial{Input: json.RawMessage(`{}`)},
			steps: []string{"m failed"}, status: entities.RunFailed, code: codeNotAList,
		},
		{
			name: "two equal keys", document: rows + "    key: string(item)\n    do: {call: x}\n", trial: Trial{Input: json.RawMessage(`[1,2,1]`)},
			steps: []string{"m failed"}, status: entities.RunFailed, code: codeDuplicateKey,
		},
		{
			name: "a key that cannot be an ID", document: rows + "    key: string(item)\n    do: {call: x}\n", trial: Trial{Input: json.RawMessage(`["a/b"]`)},
			steps: []string{"m failed"}, status: entities.RunFailed, code: codeKey,
		},
		{
			name: "tolerated failures", document: rows + "    tolerate: 1\n    do: {call: x}\n  tell: {needs: m, set: '${steps.m.failures}'}\n",
			trial:  Trial{Input: numbers(3), Results: map[string]Result{"m[0]": output(`"a"`), "m[1]": failure("x"), "m[2]": output(`"c"`)}},
			steps:  []string{"m~items completed", "m[0] completed", "m[1] failed", "m[2] completed", "m completed", "tell completed"},
			status: entities.RunCompleted, output: `{"tell":[{"index":1,"key":"1","error":{"message":"it failed","code":"x"}}]}`,
		},
		{
			name:     "one failure too many: nothing new begins, what is open is cancelled, what is done is undone",
			document: rows + "    tolerate: {percent: 20}\n    concurrency: 3\n    do: {call: x, undo: {call: u}}\n    catch: [{to: n}]\n  n: {set: '${error.code}'}\n",
			trial:    Trial{Input: numbers(5), Results: map[string]Result{"m[0]": output(`"a"`), "m[1]": failure("x"), "m[2]": failure("y")}},
			steps: []string{
				"m~items completed", "m[0] completed", "m[1] failed", "m[2] failed", "m[3] completed", "m[4] completed",
				"m[0]~undo completed", "m[3]~undo completed", "m[4]~undo completed", "m failed", "n completed",
			},
			status: entities.RunCompleted, output: `{"m":"y"}`,
		},
		{
			name: "items of several steps, of which one fails and is undone at once",
			document: rows + `    tolerate: 1
    do:
      steps:
        a: {call: a, undo: {call: u}}
        b: {needs: a, call: b, input: ["${item}", "${index}", "${steps.a.output}", "${steps.before.output}"]}
      output: "${steps.b.output}"
    needs: before
  before: {set: 9}
`,
			trial: Trial{Input: numbers(2), Results: map[string]Result{"m[0].b": failure("x"), "m[1].b": output(`"b"`)}},
			steps: []string{
				"before completed", "m~items completed", "m[0].a completed", "m[1].a completed", "m[0].b failed",
				"m[1].b completed", "m[1] completed", "m[0].a~undo completed", "m[0] failed", "m completed",
			},
			status: entities.RunCompleted, output: `{"m":[null,"b"]}`,
		},
		{
			name:     "the items of a map are undone when a later step fails, before what the map needed",
			document: rows + "    needs: a\n    do: {call: x, undo: {call: u}}\n  a: {call: a, undo: {call: u}}\n  z: {needs: m, call: z}\n",
			trial:    Trial{Input: numbers(2), Results: map[string]Result{"z": failure("x")}},
			steps: []string{
				"a completed", "m~items completed", "m[0] completed", "m[1] completed", "m completed", "z failed",
				"m[0]~undo completed", "m[1]~undo completed", "a~undo completed",
			},
			status: entities.RunFailed, code: "x",
		},
		{
			name: "a map of maps", document: rows + "    do: {steps: {n: {map: item, do: {call: x, input: '${item * 2.0}'}}}, output: '${steps.n.output}'}\n",
			trial: Trial{Input: json.RawMessage(`[[1],[],[2,3]]`), Results: map[string]Result{"m[0].n[0]": output("1"), "m[2].n[1]": output("3")}},
			steps: []string{
				"m~items completed", "m[0].n~items completed", "m[1].n completed", "m[1] completed", "m[2].n~items completed",
				"m[0].n[0] completed", "m[0].n completed", "m[0] completed", "m[2].n[0] completed", "m[2].n[1] completed",
				"m[2].n completed", "m[2] completed", "m completed",
			},
			status: entities.RunCompleted, output: `{"m":[[1],[],[null,3]]}`,
		},
		{
			name: "an item whose input cannot be evaluated", document: rows + "    tolerate: 1\n    do: {call: x, input: '${item.n}'}\n",
			trial: Trial{Input: json.RawMessage(`[0,{"n":5}]`)},
			steps: []string{"m~items completed", "m[0] failed", "m[1] completed", "m completed"}, status: entities.RunCompleted, output: `{"m":[null,null]}`,
		},
		{
			name: "a loop until", document: "flow: f\ndeployment: d\nsteps:\n  l: {loop: {do: {call: x, input: '${iteration}'}, until: iteration.last.done, delay: 1m}}\n",
			trial: Trial{Results: map[string]Result{"l#1": output(`{"done":false}`), "l#2": output(`{"done":true}`)}},
			steps: []string{"l#1 completed", "l#1~delay completed", "l#2 completed", "l completed"}, status: entities.RunCompleted, output: `{"l":{"done":true}}`,
		},
		{
			name: "a loop while, in one decision", document: "flow: f\nsteps:\n  l: {loop: {do: {steps: {a: {set: '${iteration.index * 2.0}'}}, output: '${steps.a.output}'}, while: iteration.index < 3}}\n",
			steps: []string{
				"l#1.a completed", "l#1 completed", "l#2.a completed", "l#2 completed", "l#3.a completed", "l#3 completed", "l completed",
			},
			status: entities.RunCompleted, output: `{"l":6}`,
		},
		{
			name: "a loop that need not begin", document: "flow: f\ndeployment: d\nsteps:\n  l: {loop: {do: {call: x}, while: 'false'}}\n",
			steps: []string{"l completed"}, status: entities.RunCompleted, output: `{"l":null}`,
		},
		{
			name: "a loop without end is undone, the last iteration first", document: "flow: f\ndeployment: d\nsteps:\n  l: {loop: {do: {call: x, undo: {call: u}}, until: 'false', max: 2}}\n",
			steps: []string{"l#1 completed", "l#2 completed", "l#2~undo completed", "l#1~undo completed", "l failed"}, status: entities.RunFailed, code: codeExhausted,
		},
		{
			name: "a plan, which is repaired", document: "flow: f\ndeployment: d\nsteps:\n  p: {plan: think, allow: {calls: [get]}}\n",
			trial: Trial{Results: map[string]Result{
				"p#1": output(`{"steps":{"a":{"call":"delete"},"b":{"cal":"get"}}}`),
				"p#2": output(`{"steps":{"a":{"call":"get","input":"${input}"}},"output":"${steps.a.output}"}`), "p.a": output(`"got"`),
			}},
			steps: []string{"p#1 completed", "p#2 completed", "p.a completed", "p completed"}, status: entities.RunCompleted, output: `{"p":"got"}`,
		},
		{
			name: "a plan that is never valid", document: "flow: f\ndeployment: d\nsteps:\n  p: {plan: think, repairs: 1, allow: {calls: [get]}}\n",
			steps: []string{"p#1 completed", "p#2 completed", "p failed"}, status: entities.RunFailed, code: codePlan,
		},
		{
			name: "the steps of a plan are undone", document: "flow: f\ndeployment: d\nsteps:\n  p: {plan: think, allow: {calls: [get]}}\n  z: {needs: p, fail: {message: no, code: x}}\n",
			trial: Trial{Results: map[string]Result{
				"p#1": output(`{"steps":{"a":{"call":"get","undo":{"call":"get"}},"b":{"needs":"a","call":"get","undo":{"call":"get"}}}}`),
			}},
			steps:  []string{"p#1 completed", "p.a completed", "p.b completed", "p completed", "z failed", "p.b~undo completed", "p.a~undo completed"},
			status: entities.RunFailed, code: "x",
		},
		{
			name: "a plan whose step fails is undone before it fails", document: "flow: f\ndeployment: d\nsteps:\n  p: {plan: think, allow: {calls: [get]}, catch: [{then: continue}]}\n",
			trial: Trial{Results: map[string]Result{
				"p#1": output(`{"steps":{"a":{"call":"get","undo":{"call":"get"}},"b":{"needs":"a","call":"get"}}}`), "p.b": failure("x"),
			}},
			steps: []string{"p#1 completed", "p.a completed", "p.b failed", "p.a~undo completed", "p failed"}, status: entities.RunCompleted, output: `{"p":null}`,
		},
		{
			name: "open children of a map undo what they did before it fails", document: rows + "    needs: a\n    do: {flow: kid, grace: 2h}\n  a: {call: x, undo: {call: u}}\n",
			trial: Trial{Input: numbers(2), Results: map[string]Result{"m[0]": failure("x"), "m[1]": {After: time.Hour}}},
			steps: []string{
				"a completed", "m~items completed", "m[0] failed", "m[1]~cancel completed", "m[1] failed", "m failed", "a~undo completed",
			},
			status: entities.RunFailed, code: "x",
		},
	})
}

// TestMapsOfAllSizes: each item completes once, in windows, and the output is in their order.
func TestMapsOfAllSizes(t *testing.T) {
	t.Parallel()
	p := parse(t, "flow: f\ndeployment: d\nsteps: {m: {map: input, concurrency: 700, do: {call: x}}}\noutput: '${steps.m.output}'\n")
	for _, n := range []int{0, 1, 2, 9_999, 10_000, 10_001} {
		results := map[string]Result{}
		for i := range n {
			results[fmt.Sprintf("m[%d]", i)] = output(fmt.Sprint(i))
		}
		began := time.Now()
		got, err := Trial{Input: numbers(n), Results: results}.Run(p)
		t.Log(n, time.Since(began))
		switch {
		case err != nil:
			t.Fatalf("%d items: %v", n, err)
		case n > MaxItems && (got.Error == nil || got.Error.Code != codeTooManyItems):
			t.Errorf("%d items: %+v", n, got.Error)
		case n <= MaxItems && string(got.Output) != string(numbers(n)):
			t.Errorf("%d items: %.100s, %+v", n, got.Output, got.Error)
		}
		open, most := map[string]bool{}, 0
		for _, e := range got.Events {
			switch {
			case !strings.HasPrefix(e.CorrelationID, "m["):
			case e.Type == entities.EventStepCreated:
				if open[e.CorrelationID] {
					t.Errorf("%s begins twice", e.CorrelationID)
				}
				open[e.CorrelationID] = true
			default:
				delete(open, e.CorrelationID)
			}
			most = max(most, len(open))
		}
		if want := min(n, 700); n <= MaxItems && most != want {
			t.Errorf("%d items: %d were open at once, want %d", n, most, want)
		}
	}
}

// TestRulesOfBodies tests the rules by which runs survive, where a map or a loop could break them.
func TestRulesOfBodies(t *testing.T) {
	t.Parallel()
	run := func(document, input string) Outcome {
		t.Helper()
		got, err := Trial{Input: json.RawMessage(input)}.Run(parse(t, "flow: f\ndeployment: d\nsteps:\n"+document))
		if err != nil || got.Status != entities.RunCompleted {
			t.Fatalf("%s, %+v (%v) after %v", got.Status, got.Error, err, got.Steps())
		}
		return got
	}
	created := func(o Outcome) (ids []string, inputs map[string]string) {
		inputs = map[string]string{}
		for _, e := range o.Events {
			if e.Type == entities.EventStepCreated {
				ids, inputs[e.CorrelationID] = append(ids, e.CorrelationID), string(e.Payload)
			}
		}
		return ids, inputs
	}

	// Decisions are made once, by the log's clock: the third item begins later, with the list that the first decision
	// made.
	got := run("  m: {map: '[now, now, now]', concurrency: 1, do: {call: x}}\n", "{}")
	_, inputs := created(got)
	if want := `"` + trialStart.Format(time.RFC3339Nano) + `"`; inputs["m[0]"] != want || inputs["m[2]"] != want {
		t.Errorf("items %v, want %s each", inputs, want)
	}

	// IDs are places, and the order is the document's: what begins in one decision begins in the order of the items.
	got = run("  m: {map: input, key: item.id, do: {steps: {b: {call: x}, a: {call: x}}}}\n  l: {call: x}\n", `[{"id":"z"},{"id":"y"}]`)
	ids, _ := created(got)
	want := []string{"m~items", "m[z].b", "m[z].a", "m[y].b", "m[y].a", "l", "m[z]", "m[y]", "m"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("steps begin (-want +got):\n%s", diff)
	}

	// A condition that was decided is not evaluated again: the pause after it is in the log.
	got = run("  l: {loop: {do: {call: x}, until: 'now > timestamp(\"2026-01-01T00:30:00Z\")', delay: 1h}}\n", "{}")
	ids, _ = created(got)
	if diff := cmp.Diff([]string{"l#1", "l#2", "l"}, ids); diff != "" {
		t.Errorf("iterations (-want +got):\n%s", diff)
	}
}

// BenchmarkMap measures the time that the interpreter takes for an item, in maps of two sizes.
func BenchmarkMap(b *testing.B) {
	p := parse(b, "flow: f\ndeployment: d\nsteps: {m: {map: input, do: {call: x}}}\noutput: 1\n")
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			input := numbers(n)
			for b.Loop() {
				if got, err := (Trial{Input: input}).Run(p); err != nil || string(got.Output) != "1" {
					b.Fatalf("%+v (%v)", got.Error, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*b.N), "µs/item")
		})
	}
}

// TestBytesCountWhatAStateKeeps has each kind of event bring 1 MiB that the state keeps, and a map give back what it
// held.
func TestBytesCountWhatAStateKeeps(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`
flow: f
deployment: d
steps:
  call: {call: f}
  fails: {call: f, catch: [{}]}
  hook: {hook: {}}
  vote: {approval: {title: t, quorum: 2}}
  map: {map: '[1]', do: {steps: {a: {call: f}}}, tolerate: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	large := strings.Repeat("x", size)
	failed := json.RawMessage(`{"message":"no","code":"c","details":"` + large + `"}`)
	s := p.Begin()
	apply := func(typ entities.EventType, id string, payload json.RawMessage) int64 {
		t.Helper()
		before := s.Bytes()
		err := s.Apply(contract.Run{}, []Event{{Seq: s.Seq() + 1, Type: typ, CorrelationID: id, Payload: payload}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Bytes() - before
	}
	for _, e := range []Event{
		{Type: entities.EventStepCompleted, CorrelationID: "call", Payload: json.RawMessage(`"` + large + `"`)},
		{Type: entities.EventStepFailed, CorrelationID: "fails", Payload: failed},
		{Type: entities.EventHookReceived, CorrelationID: "hook", Payload: json.RawMessage(`"` + large + `"`)},
		{
			Type: entities.EventHookReceived, CorrelationID: "vote",
			Payload: json.RawMessage(`{"decision":"approve","by":"anna","comment":"` + large + `"}`),
		},
	} {
		if got := apply(e.Type, e.CorrelationID, e.Payload); got < size || got > size+1000 {
			t.Errorf("%s of %s counts as %d bytes, want about %d", e.Type, e.CorrelationID, got, size)
		}
	}
	apply(entities.EventStepCompleted, "map~items", json.RawMessage(`{"items":[1]}`))
	apply(entities.EventStepCreated, "map[0].a", nil)
	if got := apply(entities.EventStepFailed, "map[0]", failed); got > size+1000 || got < size-frameBytes {
		t.Errorf("the failure of an item counts as %d bytes, want about %d", got, size)
	}
	if got := apply(entities.EventStepCompleted, "map", json.RawMessage("null")); got < -1000 || got > 1000 {
		t.Errorf("the end of the map counts as %d bytes, want about 0: the list of failures has the one of the item", got)
	}
}

// TestDeepValuesFailTheirSteps: a loop that wraps its last value again and again ends with a failure, not with an
// answer that the server refuses.
func TestDeepValuesFailTheirSteps(t *testing.T) {
	t.Parallel()
	got, err := Trial{}.Run(parse(t, `
flow: f
steps:
  deep: {loop: {max: 10000, until: "false", do: {steps: {a: {set: ["${iteration.last}"]}}, output: "${steps.a.output}"}}}
`))
	if err != nil || got.Error == nil || got.Error.Code != codeExpression {
		t.Errorf("%s, %+v (%v)", got.Status, got.Error, err)
	}
}
