package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/flow/goal"
	"github.com/stepwell-dev/stepwell/queue/flow/registry"
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
		})
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

	const one = `{"have":{"order":{"id":"7"},"parcels":["p"]}}`
	const label = `{"label":{"text":"book done","quote":"fast done","packed":["pack done"],"name":"customer of 7"}}`
	id := start(first, one, "")
	d.wantEnd(t, id, entities.RunCompleted, label)
	want := map[string]string{
		"fast": "completed", "fast--quote": "completed", "slow": "skipped", "slow--quote": "skipped",
		"sum--quote--slow--turn": "skipped", "sum--quote--all": "completed", "pack": "completed", "pack[0]": "completed",
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
