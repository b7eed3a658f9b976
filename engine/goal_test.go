package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// goods is a catalog with a spare, a list, a value that nobody gives in time, and a child that is planned, too.
const goods = `
catalog: goods
deployment: dpl_test
defaults: {retry: {maxAttempts: 1}}
steps:
  fast: {call: fast, takes: {order: {}}, gives: {quote: {from: result}}}
  slow: {call: slow, takes: {order: {}}, gives: {quote: {from: result}}, cost: 2}
  pack: {call: pack, takes: {parcels: {each: true}}, gives: {packed: {from: result}}}
  find: {flow: {catalog: people, want: name}, takes: {order: {}}, gives: {name: {}}}
  book:
    call: book
    takes: {packed: {}, account: {const: A-7}}
    undo: {call: cancel}
    gives: {ticket: {from: result}}
  sum:
    set: {label: {text: "${ticket}", quote: "${quote}", packed: "${packed}", name: "${name}"}}
    takes: {ticket: {}, quote: {}, packed: {}, name: {}}
    gives: {label: {}}
attributes: {order: {type: object}, parcels: {type: array}}
`

const people = `
catalog: people
steps:
  find: {set: {name: "customer of ${order.id}"}, takes: {order: {}}, gives: {name: {}}}
attributes: {order: {type: object}}
`

// TestGoals plans runs and executes them. The plan of a run stays as it was when the catalog changes, and equal plans
// share a deployment.
func TestGoals(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, shop))
	flows := registry.New(d.pool, time.Now)
	const one = `{"have":{"order":{"id":"7"},"parcels":["p"]}}`
	put := func(document string) {
		t.Helper()
		if _, _, err := flows.PutCatalog(t.Context(), project, []byte(document), false); err != nil {
			t.Fatal(err)
		}
	}
	plan := func() string {
		t.Helper()
		deployment, err := flows.Plan(t.Context(), project, "goods", goal.Ask{
			Want: []string{"label"}, Have: []string{"order", "parcels"},
		}, []byte(one))
		if err != nil {
			t.Fatal(err)
		}
		return deployment
	}
	start := func(deployment, input, fails string) entities.RunID {
		return d.startRun(t, input, func(r *eventlog.Request) {
			r.Data.DeploymentID, r.Data.WorkflowName = deployment, "goods"
			if fails != "" {
				r.Data.Attributes = map[string]string{"fail." + fails: "broken"}
			}
		})
	}
	put(people)
	put(goods)
	first := plan()
	if again := plan(); first != "goods@1" || again != first {
		t.Fatalf("the plans are %s and %s, want goods@1 twice", first, again)
	}
	put(strings.Replace(goods, "A-7", "B-8", 1))
	if next := plan(); next != "goods@2" {
		t.Fatalf("the plan of the next version is %s, want goods@2", next)
	}

	const label = `{"label":{"text":"book done","quote":"fast done","packed":["pack done"],"name":"customer of 7"}}`
	id := start(first, one, "")
	d.wantEnd(t, id, entities.RunCompleted, label)
	want := map[string]string{
		"fast": "completed", "fast--quote": "completed", "slow": "skipped", "slow--quote": "skipped",
		"sum--quote--slow--start": "skipped", "sum--quote--all": "completed", "pack": "completed", "pack[0]": "completed",
		"pack~items": "completed", "pack--packed": "completed", "find": "completed", "find--name": "completed",
		"book": "completed", "book--ticket": "completed", "sum": "completed", "sum--label": "completed",
	}
	if diff := cmp.Diff(want, d.ends(t, id)); diff != "" {
		t.Errorf("steps (-want +got):\n%s\nthe log is\n%s", diff, d.describe(t, id))
	}
	id = start("goods@2", `{"have":{"order":{"id":"7"},"parcels":[]}}`, "fast")
	d.wantEnd(t, id, entities.RunCompleted, strings.NewReplacer("fast", "slow", `"pack done"`, "").Replace(label))
	id = start(first, one, "pack")
	d.wantEnd(t, id, entities.RunFailed, `{"message":"sum--label cannot be had: it needs sum, which needs book--ticket, `+
		`which needs book, which needs pack--packed, which needs pack, which failed: pack failed","code":"flow.goal",`+
		`"details":{"chain":["sum--label","sum","book--ticket","book","pack--packed","pack"],"error":{"message":"pack failed","code":"broken"}}}`)
}

// scenario answers as the name of a step says: with what it takes, late by a callback, after a failed attempt, with a
// failure, or never.
func scenario(d **server, hang <-chan struct{}) func(*functionCall) {
	return func(c *functionCall) {
		result := StepResult{Output: c.Step.Input}
		kind, _, _ := strings.Cut(c.Step.Name, "-")
		switch {
		case kind == "hang":
			select {
			case <-hang:
			case <-c.r.Context().Done():
			}
		case kind == "flaky" && c.Attempt == 1:
			c.w.WriteHeader(http.StatusServiceUnavailable)
			return
		case kind == "later" && strings.Contains(string(c.Step.Input), "bad"):
			result = StepResult{Error: &contract.Failure{Message: "it was refused", Code: "refused"}}
			fallthrough
		case kind == "later":
			first := (*d).runs.EndStep(c.r.Context(), project, c.Run.ID, c.Step.ID, result)
			again := (*d).runs.EndStep(c.r.Context(), project, c.Run.ID, c.Step.ID, StepResult{Output: []byte(`"again"`)})
			if first == nil && again == nil {
				c.w.WriteHeader(http.StatusInternalServerError) // the second result must not count
				return
			}
			c.w.WriteHeader(http.StatusAccepted)
			return
		case kind == "fail" || strings.Contains(string(c.Step.Input), "bad"):
			c.w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(c.w, `{"error":{"message":"it failed","code":"broken"}}`)
			return
		}
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = c.w.Write(result.Output)
	}
}

// TestScenarios runs small catalogs: what needs more than the interpreter, such as callbacks, children and requests. The
// rest is in package flow/goal, without a server.
func TestScenarios(t *testing.T) {
	t.Parallel()
	var d *server
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	d = startServer(t, serve(t, scenario(&d, hang)))
	service := startService(t)
	flows := registry.New(d.pool, time.Now)
	for _, document := range []string{people, "{catalog: lost, deployment: dpl_test, steps: {s: {call: fail, gives: {z: {}}}}}"} {
		if _, _, err := flows.PutCatalog(t.Context(), project, []byte(document), false); err != nil {
			t.Fatal(err)
		}
	}
	for i, test := range []struct {
		name, steps string
		want, have  string // names, and the input
		output      string // of the run; empty if it fails
		fails       string // a part of the message
		called      string // the steps that were called
	}{
		{
			name: "a diamond", want: "e", have: `{"n": 1}`, called: "a b c d",
			steps: `
  a: {call: echo, takes: {n: {}}, gives: {a1: {from: result.n}}}
  b: {call: echo, takes: {a1: {}}, gives: {b1: {from: result.a1}}}
  c: {call: echo, takes: {a1: {}}, gives: {c1: {from: result.a1}}}
  d: {call: echo, takes: {b1: {}, c1: {}}, gives: {e: {from: result}}}
  no: {call: fail, takes: {a1: {}}, gives: {other: {}}}`,
			output: `{"e":{"b1":1,"c1":1}}`,
		},
		{
			name: "a goal is reached while others hang", want: "y", have: `{"n": 1}`, called: "a b",
			steps: `
  a: {call: hang, takes: {n: {}}, gives: {x: {}}}
  b: {call: echo, takes: {n: {}, x: {optional: true, within: 1ms}}, gives: {y: {from: result}}}`,
			output: `{"y":{"n":1,"x":null}}`,
		},
		{
			name: "items by callback, in the order of the list", want: "y", have: `{"list": [1, 2], "n": ["a", "b"]}`,
			called: "a[0] a[1] a[2] a[3]",
			steps: `
  a: {call: later, async: true, timeout: 1h, concurrency: 2, takes: {list: {each: true}, n: {each: true}}, gives: {y: {from: result}}}`,
			output: `{"y":[{"list":1,"n":"a"},{"list":1,"n":"b"},{"list":2,"n":"a"},{"list":2,"n":"b"}]}`,
		},
		{
			name: "a failure by callback, and what was done is undone", want: "y", have: `{"list": ["ok", "bad"]}`,
			called: "a[0] a[0]~undo a[1]",
			steps: `
  a: {call: later, async: true, timeout: 1h, concurrency: 1, takes: {list: {each: true}}, gives: {y: {from: result}}, undo: {call: echo}}`,
			fails: "which failed: it was refused",
		},
		{
			name: "a failed item that is tolerated", want: "y", have: `{"list": ["ok", "bad"]}`, called: "a[0] a[1]",
			steps:  `  a: {call: echo, tolerate: 1, takes: {list: {each: true}}, gives: {y: {from: "result[0]"}}}`,
			output: `{"y":{"list":"ok"}}`,
		},
		{
			name: "an attempt that fails is repeated", want: "y", have: `{"n": 1}`, called: "a",
			steps:  `  a: {call: flaky, retry: {backoff: 1ms}, takes: {n: {}}, gives: {y: {from: result.n}}}`,
			output: `{"y":1}`,
		},
		{
			name: "a match leads to one of two, and the other demands nothing", want: "y", have: `{"n": "de"}`, called: "b d",
			steps: `
  a: {call: echo, takes: {n: {match: "value == 'fr'"}}, gives: {x: {from: result.n}}}
  b: {call: echo, takes: {n: {match: "value == 'de'"}}, gives: {x: {from: result.n}}}
  d: {call: echo, takes: {x: {together: true}}, gives: {y: {from: result.x}}}`,
			output: `{"y":"de"}`,
		},
		{
			name: "an expression that fails", want: "y", have: `{"n": 4}`,
			steps: `  a: {set: {y: "${n.no}"}, takes: {n: {}}, gives: {y: {}}}`,
			fails: "a--y cannot be had: it needs a, which failed",
		},
		{
			name: "a child with other names", want: "y", have: `{"n": 4}`,
			steps: `
  a: {set: {order: {id: "${n}"}}, takes: {n: {}}, gives: {order: {}}}
  b: {flow: {catalog: people, want: name}, takes: {order: {}}, gives: {y: {from: result.name}}}`,
			output: `{"y":"customer of 4"}`,
		},
		{
			name: "a child that fails, and a spare", want: "y", have: `{}`, called: "b",
			steps: `
  a: {flow: {catalog: lost, want: z}, gives: {y: {from: result.z}}}
  b: {call: echo, takes: {k: {const: 2}}, gives: {y: {from: result.k}}, cost: 2}`,
			output: `{"y":2}`,
		},
		{
			name: "a child that names a catalog, and no goals", want: "y", have: `{}`,
			steps: `  a: {flow: people, gives: {y: {from: result}}}`, fails: `"code":"workflow_is_catalog"`,
		},
		{
			name: "a request", want: "y", have: `{"url": "URL"}`,
			steps:  `  a: {http: {url: "${url}/json", method: POST}, takes: {url: {}}, gives: {y: {from: "result.n"}}}`,
			output: `{"y":12345678901234567890}`, called: "a",
		},
	} {
		name := fmt.Sprintf("c%d", i)
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := "catalog: " + name + "\ndeployment: dpl_test\ndefaults: {retry: {maxAttempts: 1}}\nattributes: " +
				"{n: {}, list: {}, url: {}}\nsteps:\n" + strings.ReplaceAll(test.steps, "retry: {", "retry: {maxAttempts: 3, ")
			if _, _, err := flows.PutCatalog(t.Context(), project, []byte(text), false); err != nil {
				t.Fatal(err)
			}
			var have map[string]json.RawMessage
			if err := json.Unmarshal([]byte(test.have), &have); err != nil {
				t.Fatal(err)
			}
			input := `{"have":` + strings.ReplaceAll(test.have, "URL", service.URL) + `}`
			ask := goal.Ask{Want: strings.Fields(test.want), Have: slices.Sorted(maps.Keys(have))}
			deployment, err := flows.Plan(t.Context(), project, name, ask, []byte(input))
			if err != nil {
				t.Fatal(err)
			}
			id := d.startRun(t, input, func(r *eventlog.Request) {
				r.Data.DeploymentID, r.Data.WorkflowName = deployment, name
			})
			status, end := d.waitForEnd(t, id)
			output := test.output
			right := status == entities.RunCompleted && end == output
			if test.fails != "" {
				right = status == entities.RunFailed && strings.Contains(end, test.fails)
			}
			if !right {
				t.Errorf("%s with %s, want %s%s; the log is\n%s", status, end, output, test.fails, d.describe(t, id))
			}
			var called string
			err = d.pool.QueryRow(t.Context(), `
				SELECT coalesce(string_agg(DISTINCT correlation_id, ' ' ORDER BY correlation_id), '') FROM events
				WHERE run_id = $1 AND type = 'step_started'`, id).Scan(&called)
			if err != nil || called != test.called {
				t.Errorf("%q were called (%v), want %q", called, err, test.called)
			}
			testdb.Eventually(t, "nothing is left to do", func() bool {
				return d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1`, id) == 0
			})
		})
	}
}
