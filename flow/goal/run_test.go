package goal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

const header = "catalog: c\ndeployment: d\nattributes: {list: {type: array}, n: {}, x: {type: string}}\nsteps:\n"

func gives(text string) flow.Result { return flow.Result{Output: json.RawMessage(text)} }

func fails() flow.Result {
	return flow.Result{Error: &contract.Failure{Message: "it failed", Code: "broken"}}
}

func after(d time.Duration, r flow.Result) flow.Result {
	r.After = d
	return r
}

// TestRuns runs plans: with failures, with conditions, and with values that come late or not at all.
func TestRuns(t *testing.T) {
	t.Parallel()
	const late = time.Hour
	for _, test := range []struct {
		name, steps string
		want, have  string // names, and the input
		results     map[string]flow.Result
		output      string
		error       string   // a part of the message
		calls       []string // the steps that have begun, in their order
	}{
		{
			name: "values are handed on byte for byte", want: "y", have: `{"n": 1e2}`,
			steps: `
  f: {call: f, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {}, k: {const: {"${7}": "${7}"}}, r: {meta: run.id}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"f": gives(`{"x":"\u00e9"}`), "g": gives(`{"y":{"b":1.0,"a":12345678901234567890}}`)},
			output:  `{"y":{"b":1.0,"a":12345678901234567890}}`,
			calls:   []string{`f {"n":1e2}`, `g {"x":"\u00e9","k":{"${7}":"${7}"},"r":"wrun_trial"}`},
		},
		{
			name: "the run fails as soon as a goal cannot be had, and says why", want: "y", have: `{"n": 1}`,
			steps: `
  f: {call: f, takes: {n: {}}, gives: {x: {}}}
  slow: {call: slow, takes: {n: {}}, gives: {z: {}}}
  g: {call: g, takes: {x: {}, z: {}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"f": fails(), "slow": after(late, gives(`{"z":1}`))},
			error:   "g--y cannot be had: it needs g, which needs f--x, which needs f, which failed: it failed",
			calls:   []string{`f {"n":1}`, `slow {"n":1}`},
		},
		{
			name: "a failed step that no goal needs in the end leaves nothing open", want: "y", have: `{"n": 1}`,
			steps: `
  f: {call: f, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {optional: true, default: none}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"f": fails(), "g": gives(`{"y":2}`)},
			output:  `{"y":2}`, calls: []string{`f {"n":1}`, `g {"n":1,"x":"none"}`},
		},
		{
			name: "a spare begins when the first choice has failed", want: "x", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}, cost: 2}`,
			results: map[string]flow.Result{"a": fails(), "b": gives(`{"x":"b"}`)},
			output:  `{"x":"b"}`, calls: []string{`a {"n":1}`, `b {"n":1}`},
		},
		{
			name: "a spare does not begin otherwise", want: "x", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}, cost: 2}`,
			results: map[string]flow.Result{"a": gives(`{"x":"a"}`)},
			output:  `{"x":"a"}`, calls: []string{`a {"n":1}`},
		},
		{
			name: "together: the first value counts, and what is under way is cancelled", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {together: true}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": after(late, gives(`{"x":"a"}`)), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"x":"b"}`},
		},
		{
			name: "a missing output is a failure", want: "x", have: `{"n": 1}`,
			steps:   `  f: {call: f, takes: {n: {}}, gives: {x: {}}}`,
			results: map[string]flow.Result{"f": gives(`{"y":1}`)},
			error:   `f--x cannot be had: it failed`, calls: []string{`f {"n":1}`},
		},
		{
			name: "an output of another type is a failure", want: "x", have: `{"n": 1}`,
			steps:   `  f: {call: f, takes: {n: {}}, gives: {x: {}}}`,
			results: map[string]flow.Result{"f": gives(`{"x":1}`)},
			error:   `the value does not fit`, calls: []string{`f {"n":1}`},
		},
		{
			name: "a condition that is false skips the step", want: "y", have: `{"n": 1}`,
			steps: `
  f: {call: f, takes: {n: {}}, when: n > 5, gives: {x: {}}}
  g: {call: g, takes: {x: {}}, gives: {y: {}}}`,
			error: "which needs f, which was skipped: when is false", calls: []string{},
		},
		{
			name: "each of no items is an empty list", want: "y", have: `{"list": []}`,
			steps:  `  f: {call: f, takes: {list: {each: true}}, gives: {y: {}}}`,
			output: `{"y":[]}`, calls: []string{},
		},
		{
			name: "each of one item is a list of one", want: "y", have: `{"list": [7]}`,
			steps:   `  f: {call: f, takes: {list: {each: true}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"f[0]": gives(`{"y":"a"}`)},
			output:  `{"y":["a"]}`, calls: []string{`f[0] {"list":7}`},
		},
		{
			name: "two each are all combinations, in order", want: "y", have: `{"list": [1,2], "n": ["a","b"]}`,
			steps: `  f: {call: f, takes: {list: {each: true}, n: {each: true}, k: {const: c}}, gives: {y: {from: "size(result)"}}}`,
			calls: []string{
				`f[0] {"list":1,"n":"a","k":"c"}`, `f[1] {"list":1,"n":"b","k":"c"}`, `f[2] {"list":2,"n":"a","k":"c"}`,
				`f[3] {"list":2,"n":"b","k":"c"}`,
			},
			output: `{"y":4}`,
		},
		{
			name: "each needs a list", want: "y", have: `{"n": 3}`,
			steps: `  f: {call: f, takes: {n: {each: true}}, gives: {y: {}}}`,
			error: "a map needs one", calls: []string{},
		},
		{
			name: "some is a list of what there is", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {collect: some}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": fails(), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"x":["b"]}`},
		},
		{
			name: "all needs each of them", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {collect: all}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": fails(), "b": after(late, gives(`{"x":"b"}`))},
			error:   "which needs a, which failed", calls: []string{`a {"n":1}`, `b {"n":1}`},
		},
		{
			name: "last is the one that ended last", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {collect: last}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": after(late, gives(`{"x":"a"}`)), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"x":"a"}`},
		},
		{
			name: "none runs if nothing was given", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {collect: none}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": fails(), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `g {"n":1}`},
		},
		{
			name: "none does not run otherwise", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {collect: none}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": gives(`{"x":"a"}`)},
			error:   "something that must not has completed", calls: []string{`a {"n":1}`},
		},
		{
			name: "what is optional is awaited for so long", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {optional: true, default: "${none}", within: 2s}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": after(late, gives(`{"x":"a"}`)), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `g {"n":1,"x":"${none}"}`},
		},
		{
			name: "what is there of several when the time is over counts", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {collect: some, optional: true, within: 2s}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": after(late, gives(`{"x":"a"}`)), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"n":1,"x":["b"]}`},
		},
		{
			name: "so does the last of them", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  c: {call: c, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {collect: last, optional: true, default: none, within: 2s}}, gives: {y: {}}}`,
			results: map[string]flow.Result{
				"a": after(time.Second, gives(`{"x":"a"}`)), "b": gives(`{"x":"b"}`), "c": after(late, gives(`{"x":"c"}`)), "g": gives(`{"y":1}`),
			},
			output: `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `c {"n":1}`, `g {"n":1,"x":"a"}`},
		},
		{
			name: "all of several, or the default", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {n: {}, x: {collect: all, optional: true, within: 2s}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": after(late, gives(`{"x":"a"}`)), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"n":1,"x":null}`},
		},
		{
			name: "each of what is optional and not there is an empty list", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  g: {call: g, takes: {x: {optional: true, each: true}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": fails()}, output: `{"y":[]}`, calls: []string{`a {"n":1}`},
		},
		{
			name: "the time counts from when the others are there", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {z: {}}}
  g: {call: g, takes: {z: {}, x: {optional: true, within: 2s}}, gives: {y: {}}}`,
			results: map[string]flow.Result{
				"a": after(late+time.Second, gives(`{"x":"a"}`)), "b": after(late, gives(`{"z":1}`)), "g": gives(`{"y":1}`),
			},
			output: `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"z":1,"x":"a"}`},
		},
		{
			name: "what does not match does not count", want: "y", have: `{"n": 1}`,
			steps: `
  a: {call: a, takes: {n: {}}, gives: {x: {}}}
  b: {call: b, takes: {n: {}}, gives: {x: {}}, cost: 2}
  g: {call: g, takes: {x: {match: "value != 'a'"}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"a": gives(`{"x":"a"}`), "b": gives(`{"x":"b"}`), "g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`a {"n":1}`, `b {"n":1}`, `g {"x":"b"}`},
		},
		{
			name: "set and from compute, and input names other fields", want: "y", have: `{"n": 4}`,
			steps: `
  f: {set: {x: "no ${n}", m: "${n * 2.0}"}, takes: {n: {}}, gives: {x: {}, m: {from: result.m + 1.0}}}
  g: {call: g, takes: {x: {}, m: {}}, input: {text: "${x}", number: "${m}"}, gives: {y: {}}}`,
			results: map[string]flow.Result{"g": gives(`{"y":1}`)},
			output:  `{"y":1}`, calls: []string{`g {"text":"no 4","number":9}`},
		},
		{
			name: "what was done is undone when a goal cannot be had", want: "y", have: `{"n": 1}`,
			steps: `
  f: {call: f, takes: {n: {}}, gives: {x: {}}, undo: {call: u}}
  g: {call: g, takes: {x: {}}, gives: {y: {}}}`,
			results: map[string]flow.Result{"f": gives(`{"x":"a"}`), "g": fails()},
			error:   "which failed", calls: []string{`f {"n":1}`, `g {"x":"a"}`, `f~undo *`},
		},
		{
			name: "a goal that is there needs no step", want: "n", have: `{"n": 5}`,
			steps: `  f: {call: f, gives: {n: {}}}`, output: `{"n":5}`, calls: []string{},
		},
		{
			name: "a step as a goal", want: "send", have: `{"n": 5}`,
			steps:   `  send: {call: send, takes: {n: {}}}`,
			results: map[string]flow.Result{"send": gives(`"sent"`)},
			output:  `{"send":"sent"}`, calls: []string{`send {"n":5}`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var have map[string]json.RawMessage
			if err := json.Unmarshal([]byte(test.have), &have); err != nil {
				t.Fatal(err)
			}
			ask := Ask{Want: names(test.want)}
			for name := range have {
				ask.Have = append(ask.Have, name)
			}
			slices.Sort(ask.Have)
			got := runPlan(t, header+test.steps, ask, `{"have":`+test.have+`}`, test.results)
			if diff := cmp.Diff(test.calls, callsOf(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			switch {
			case test.error == "" && (got.Status != entities.RunCompleted || string(got.Output) != test.output):
				t.Errorf("%s with %s (%v), want %s", got.Status, got.Output, got.Error, test.output)
			case test.error == "":
			case got.Error == nil || got.Error.Code != "flow.goal" || !strings.Contains(got.Error.Message, test.error):
				t.Errorf("got %s, %v, want %q", got.Status, got.Error, test.error)
			}
		})
	}
}

func runPlan(t *testing.T, document string, ask Ask, input string, results map[string]flow.Result) flow.Outcome {
	t.Helper()
	p, err := parse(t, document).Plan(ask, NewBudget())
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := flow.Parse(p.Document("a plan"))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, p.Document("a plan"))
	}
	got, err := flow.Trial{Input: json.RawMessage(input), Results: results}.Run(f)
	if err != nil {
		t.Fatalf("%v after %v", err, got.Steps())
	}
	return got
}

// callsOf returns the steps that were called, with their inputs.
func callsOf(o flow.Outcome) []string {
	calls := []string{}
	for _, e := range o.Events {
		if e.Type == entities.EventStepCreated && e.Payload != nil {
			call := e.CorrelationID + " " + string(e.Payload)
			if strings.HasSuffix(e.CorrelationID, "~undo") {
				call = e.CorrelationID + " *"
			}
			calls = append(calls, call)
		}
	}
	return calls
}

// TestManyProducts has as many combinations as there may be, and one more.
func TestManyProducts(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"v",`, n), ",") + "]" }
	const steps = "  f: {call: f, takes: {list: {each: true}, n: {each: true}}, concurrency: 1000, gives: {y: {}}}"
	for n, wanted := range map[int]string{100: "", 101: "10100 combinations"} {
		results := map[string]flow.Result{}
		for i := range 10_000 {
			results[fmt.Sprintf("f[%d]", i)] = gives(`{"y":1}`)
		}
		input := fmt.Sprintf(`{"have":{"list":%s,"n":%s}}`, list(100), list(n))
		got := runPlan(t, header+steps, Ask{Want: []string{"y"}, Have: names("list n")}, input, results)
		switch {
		case wanted == "" && (got.Status != entities.RunCompleted || strings.Count(string(got.Output), "1") != 10_000):
			t.Errorf("%d: %s, %v", n, got.Status, got.Error)
		case wanted != "" && (got.Error == nil || !strings.Contains(got.Error.Message, wanted)):
			t.Errorf("%d: %s, %v", n, got.Status, got.Error)
		}
	}
}

// TestFaults has all faults of a catalog at once, at their places.
func TestFaults(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`catalog: no name
deployment: d
attribtes: {}
attributes: {input: {}, b: {type: nothing}}
steps:
  a--b: {call: f, takes: {c: {}}, gives: {b: {}}}
  b: {call: f, gives: {e: {form: 1}}}
  e: {call: f, tskes: {}, cost: -1, concurrency: 2}
  f: {call: f, takes: {e: {within: 1s, collect: most}, g: {const: 1, optional: true}}, gives: {e: {}}}
`))
	want := []string{
		`1:10 missing`, `3:12 unknown "attribtes"`, `4:21 type "input"`, `4:28 type not a JSON Schema`, `6:9 type "a--b"`, `6:30 unknown no step gives c`,
		`7:6 conflict b is an attribute`, `7:34 unknown do you mean "from"?`, `8:6 conflict e is an attribute`,
		`8:23 unknown do you mean "takes"?`, `8:33 type`, `8:50 conflict`, `9:36 conflict within`, `9:49 type "most"`,
		`9:59 conflict const`, `9:99 conflict f takes e`,
	}
	wantFaults(t, err, want)
	_, err = Parse([]byte(`catalog: c
attributes: {b: {type: string}}
steps:
  a: {call: f, when: b >, takes: {b: {match: "value +"}}, retry: {maxAttempts: 0}, gives: {c: {from: resul.c}}}
`))
	wantFaults(t, err, []string{
		"4:6 missing", `4:22 expression "b >"`, `4:46 expression "value +"`, `4:80 type`, `4:102 expression "resul.c"`,
	})
}

// wantFaults compares faults by their places, codes, and words that are in their messages.
func wantFaults(t *testing.T, err error, want []string) {
	t.Helper()
	list, ok := err.(flow.Faults) //nolint:errorlint // it is not wrapped
	if !ok {
		t.Fatalf("got %v, want faults", err)
	}
	var got []string
	for i, f := range list {
		line := fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Code)
		if i < len(want) {
			if rest, found := strings.CutPrefix(want[i], line+" "); found && strings.Contains(f.Message, rest) {
				line = want[i]
			}
		}
		if i >= len(want) || line != want[i] {
			line += ": " + f.Message
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
