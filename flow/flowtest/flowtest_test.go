package flowtest

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/flow"
)

const document = `
flow: order
deployment: shop
steps:
  charge: {call: charge, timeout: 1h, catch: [{codes: [declined], to: invoice}], undo: {call: refund}}
  invoice: {call: invoice}
  paid: {needs: [charge], signal: {name: paid, within: 24h}}
  ship: {needs: [paid], call: ship}
output: {shipped: "${steps.ship.output}"}
`

// run runs the only test of a file with the given fields.
func run(t *testing.T, fields string) []string {
	t.Helper()
	p, err := flow.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Read([]byte("flow: order.yaml\ntests:\n- name: one\n" + fields))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := f.Tests[0].Run(p)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestWhatIsExpectedHappens has results, failures, timeouts, and signals at their times.
func TestWhatIsExpectedHappens(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{
		"well": `
  input: {id: 7}
  results: {charge: {output: 1, after: 59m}, ship: {output: {n: 2}}}
  signals: {paid: {data: yes, after: 23h}}
  expect:
    status: completed
    output: {shipped: {n: 2}}
    inputs: {charge: {id: 7}}
    steps: [charge completed, invoice skipped, paid received, paid disposed, paid~within cancelled, ship completed]
`,
		"declined": `
  results: {charge: {error: {message: "no", code: declined}}}
  signals: {paid: {}}
  expect: {status: completed}
`,
		"a timeout": `
  results: {charge: {after: 2h}}
  expect: {status: failed, error: {code: timeout}}
`,
		"a signal too late": `
  signals: {paid: {after: 25h}}
  expect: {status: failed, error: {code: wait_timeout}}
`,
		"undone": `
  results: {ship: {error: {message: lost, code: lost}}, charge~undo: {error: {message: closed}}}
  signals: {paid: {}}
  expect: {status: failed, error: {code: lost, message: lost}}
`,
	} {
		if lines := run(t, fields); len(lines) > 0 {
			t.Errorf("%s: %s", name, strings.Join(lines, "\n"))
		}
	}
}

// TestDifferencesAreShown compares a run with what it does not do.
func TestDifferencesAreShown(t *testing.T) {
	t.Parallel()
	got := run(t, `
  results: {charge: {error: {message: gone, code: broken}}}
  expect:
    status: completed
    output: {shipped: {n: 2}}
    error: {code: lost, message: gone}
    inputs: {ship: null, charge: 1}
    steps: [charge completed, paid received]
`)
	want := []string{
		"status: want completed, got failed: gone (broken)",
		`output: want {"shipped":{"n":2}}, got null`,
		`error.code: want "lost", got "broken"`,
		"inputs.charge: want 1, got null",
		"inputs.ship: the step has not begun",
		"steps:\n  - charge completed\n  - paid received\n  + charge failed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lines := walk("output", decode([]byte(`{"a":[1,{"b":2}],"c":3}`)), decode([]byte(`{"a":[1,{"b":9007199254740993}],"d":4}`)))
	if diff := cmp.Diff([]string{
		"output.a[1].b: want 2, got 9007199254740993", "output.c: want 3, got nothing", "output.d: want nothing, got 4",
	}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFilesWithMistakes has a sentence for each.
func TestFilesWithMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"flow: f": `"tests"`,
		"flow: f\ntests: [{name: a, expects: {}}]":                      `unknown field "expects"`,
		"flow: f\ntests: [{expect: {}}]":                                `want a "name"`,
		"flow: f\ntests: [{name: a, expect: {status: done}}]":           `the status "done"`,
		"flow: f\ntests: [{name: a, results: {b: {after: 5 minutes}}}]": "5 minutes",
		"flow: f\ntests: [{name: a, name: b}]":                          "there twice",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	p, err := flow.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"chrage", "charge[0]", "charge.a", "charge~within"} {
		test := Test{Results: map[string]result{id: {}}}
		if _, err := test.Run(p); err == nil || !strings.Contains(err.Error(), `"`+id+`"`) {
			t.Errorf("got %v, want the unknown step %s", err, id)
		}
	}
	test := Test{Payloads: map[string][]json.RawMessage{"hok": nil}}
	if _, err := test.Run(p); err == nil || !strings.Contains(err.Error(), `payloads: there is no step "hok"`) {
		t.Errorf("got %v, want the unknown hook", err)
	}
}

// TestBodiesAndOthers gives results to instances of bodies, payloads to a hook and votes to an approval, and reads the
// request of an HTTP step.
func TestBodiesAndOthers(t *testing.T) {
	t.Parallel()
	p, err := flow.Parse([]byte(`
flow: order
deployment: shop
steps:
  enrich: {map: '[1, 2]', do: {call: enrich}}
  pack: {map: '[1]', do: {steps: {a: {call: pack}}}}
  agent: {loop: {do: {call: ask}, until: 'iteration.last == 5', max: 3}}
  paid: {hook: {}}
  boss: {approval: {title: "May it?", quorum: 2}}
  post: {needs: [paid], http: "https://example.com/${steps.paid.output.id}"}
output: ["${steps.enrich.output}", "${steps.pack.output}", "${steps.agent.output}", "${steps.paid.output.id}", "${steps.boss.status}"]
`))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Read([]byte(`
flow: order.yaml
tests:
- name: one
  results:
    enrich[1]: {output: 4}
    pack[0].a: {output: 6}
    agent#1: {output: 3}
    agent#2: {output: 5}
  payloads:
    paid: [{id: 7}]
    boss: [{decision: approve, by: anna}, {decision: approve, by: bob}]
  expect:
    status: completed
    output: [[null, 4], [{a: 6}], 5, 7, completed]
    inputs:
      enrich[1]: 2
      post: {method: GET, url: "https://example.com/7"}
`))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := f.Tests[0].Run(p)
	if err != nil || len(lines) > 0 {
		t.Errorf("got %v and %q, want what is expected", err, lines)
	}
}

// TestTheExampleOfTheDocument runs the test in docs/flows.md with the first flow there.
func TestTheExampleOfTheDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/flows.md")
	if err != nil {
		t.Fatal(err)
	}
	var p *flow.Program
	run := 0
	for _, found := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		if p == nil {
			if p, err = flow.Parse(found[1]); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Read(found[1])
		if err != nil {
			continue // it is a flow, or a part of one
		}
		for _, test := range f.Tests {
			run++
			if lines, err := test.Run(p); err != nil || len(lines) > 0 {
				t.Errorf("%s: %v\n%s", test.Name, err, strings.Join(lines, "\n"))
			}
		}
	}
	if run != 1 {
		t.Errorf("%d tests", run)
	}
}

// FuzzRead: no file with tests makes the reader or a test panic.
func FuzzRead(f *testing.F) {
	p, err := flow.Parse([]byte(document))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("flow: f\ntests: [{name: a, results: {charge: {error: {message: m}, after: 2h}}, expect: {steps: []}}]"))
	f.Add([]byte("flow: f\ntests: [{name: a, signals: {paid: {data: 1}}, expect: {inputs: {ship: null}, output: {a: [1]}}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Read(text)
		for _, test := range file.Tests {
			if err == nil {
				_, _ = test.Run(p)
			}
		}
	})
}
