package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/flow/replay"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// orderFlow has a step of each kind that flows have.
const orderFlow = `
flow: order
deployment: dpl_test
defaults: {retry: {maxAttempts: 1}}
input: {type: object, required: [id]}
steps:
  reserve: {call: reserve, undo: {call: release}}
  big: {needs: [reserve], when: input.amount > 100, call: check}
  charge:
    needs: [reserve, big]
    call: charge
    input: {order: "${input.id}", held: "${steps.reserve.output}"}
    undo: {call: refund, input: "${undo}"}
    catch: [{codes: [declined], to: invoice}]
  invoice: {call: invoice, input: {because: "${error.message}"}}
  pause: {needs: [charge], wait: 10ms}
  gift: {needs: [charge], flow: gift, input: {for: "${input.id}"}}
  never: {needs: [charge], signal: {name: never, within: 10ms}, catch: [{codes: [wait_timeout]}]}
  ship: {needs: [pause, gift, never], call: ship}
output: {shipped: "${steps.ship.output}", gift: "${steps.gift.output}", text: "Order ${input.id}"}
`

// askFlow has the steps that speak to others.
const askFlow = `
flow: ask
deployment: dpl_test
defaults: {retry: {maxAttempts: 1}}
steps:
  ask: {http: {url: "${input.url}/json", body: {id: "${input.id}"}}, undo: {http: "${input.url}/text"}}
  agree: {needs: [ask], approval: {title: "Order ${input.id}", by: [anna, bob, carl], quorum: 2}}
  answer: {needs: [agree], hook: {token: "${'answer ' + run.id}"}}
  heard: {needs: [agree], signal: told}
  tell: {needs: [answer], emit: {signal: "told", data: "${input.id}"}}
  more: {needs: [tell], start: gift, input: {for: "${input.id}"}}
  lost: {needs: [more, heard], when: input.fails, fail: {message: lost, code: lost}}
output: {n: "${steps.ask.output.body.n}", votes: "${size(steps.agree.output.votes)}", said: "${steps.answer.output}", heard: "${steps.heard.output}"}
`

const giftFlow = `
flow: gift
steps:
  pack: {set: "${'a gift for ' + input.for}"}
output: "${steps.pack.output}"
`

// shop is the function of the steps. A step fails with the code in the run's attribute "fail." and its name.
func shop(c *functionCall) {
	if code := c.Run.Attributes["fail."+c.Step.Name]; code != "" {
		c.w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprintf(c.w, `{"error":{"message":"%s failed","code":%q}}`, c.Step.Name, code)
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(c.w, `"%s done"`, c.Step.Name)
}

// startFlows starts a server with the flows, and a deployment that executes the same flows remotely.
func startFlows(t *testing.T) *server {
	t.Helper()
	d := startServer(t, serve(t, shop))
	flows := registry.New(d.pool, time.Now)
	for _, document := range []string{giftFlow, orderFlow, askFlow} {
		if _, err := flows.Put(t.Context(), project, []byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call flow.Call
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		document := orderFlow
		if call.Run.Workflow == "ask" {
			document = askFlow
		}
		p, err := flow.Parse([]byte(document))
		if err != nil {
			t.Error(err)
			return
		}
		body, err := p.Answer(r.Context(), call)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(remote.Close)
	d.register(t, "remote", remote.URL)
	return d
}

// startOrder starts a run of the flow in a deployment, in which the steps with the names fail.
func (d *server) startOrder(t *testing.T, deployment, input, fails string) entities.RunID {
	t.Helper()
	attributes := map[string]string{}
	if name, code, ok := strings.Cut(fails, "="); ok {
		attributes["fail."+name] = code
	}
	return d.startRun(t, input, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.Attributes = deployment, attributes
	})
}

// TestFlows runs flows in the server, and in a remote function: both logs are what the document says.
func TestFlows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, input, fails string
		status             entities.RunStatus
		payload            string
		steps              map[string]string // how each step ended
	}{
		{
			name: "well", input: `{"id":"7","amount":3}`, status: entities.RunCompleted,
			payload: `{"shipped":"ship done","gift":"a gift for 7","text":"Order 7"}`,
			steps: map[string]string{
				"reserve": "completed", "big": "skipped", "charge": "completed", "invoice": "skipped", "gift": "completed",
				"ship": "completed", "never": "disposed", "pause": "completed", "never~within": "completed",
			},
		},
		{
			name: "declined", input: `{"id":"7","amount":300}`, fails: "charge=declined", status: entities.RunCompleted,
			payload: `{"shipped":"ship done","gift":"a gift for 7","text":"Order 7"}`,
			steps: map[string]string{
				"reserve": "completed", "big": "completed", "charge": "failed", "invoice": "completed", "gift": "completed",
				"ship": "completed", "never": "disposed", "pause": "completed", "never~within": "completed",
			},
		},
		{
			name: "undone", input: `{"id":"7","amount":3}`, fails: "ship=lost", status: entities.RunFailed,
			payload: `{"message":"ship failed","code":"lost","details":{"step":"ship","undo":{"done":["reserve","charge"],"failed":[]}}}`,
			steps: map[string]string{
				"reserve": "completed", "big": "skipped", "charge": "completed", "invoice": "skipped", "gift": "completed",
				"ship": "failed", "never": "disposed", "pause": "completed", "never~within": "completed",
				"charge~undo": "completed", "reserve~undo": "completed",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := startFlows(t)
			for _, deployment := range []string{"order@1", "remote"} {
				id := d.startOrder(t, deployment, test.input, test.fails)
				d.wantEnd(t, id, test.status, test.payload)
				if diff := cmp.Diff(test.steps, d.ends(t, id)); diff != "" {
					t.Errorf("%s: steps (-want +got):\n%s\nthe log is\n%s", deployment, diff, d.describe(t, id))
				}
				d.wantDecisions(t, id, orderFlow, true)
				d.wantDecisions(t, id, strings.Replace(orderFlow, "call: reserve", "call: hold", 1), false)
			}
		})
	}
}

// wantDecisions replays the log of a run with a document, which decides the same or not.
func (d *server) wantDecisions(t *testing.T, id entities.RunID, document string, same bool) {
	t.Helper()
	page, err := d.log.Events(t.Context(), project, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	run, err := store.RunByID(t.Context(), pg.NewPool(d.pool), project, id)
	if err != nil {
		t.Fatal(err)
	}
	var events []json.RawMessage
	for _, e := range page.Events {
		text, err := json.Marshal(view.Of(&e))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, text)
	}
	p, err := flow.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	difference, err := replay.Compare(t.Context(), p, contract.About(run), events)
	if err != nil || (difference == nil) != same {
		t.Errorf("same decisions: want %t, difference: %v (%v)\nthe log is\n%s", same, difference, err, d.describe(t, id))
	}
}

// TestFlowsThatSpeakToOthers runs the same document in the server and in a remote function. Voters race: exactly the
// quorum's votes count.
func TestFlowsThatSpeakToOthers(t *testing.T) {
	t.Parallel()
	s := startService(t)
	d := startFlows(t)
	for _, fails := range []bool{false, true} {
		var logs []map[string]string
		for _, deployment := range []string{"ask@1", "remote"} {
			input := fmt.Sprintf(`{"id":"7","url":%q,"fails":%t}`, s.URL, fails)
			id := d.startRun(t, input, func(r *eventlog.Request) {
				r.Data.DeploymentID, r.Data.WorkflowName = deployment, "ask"
			})
			d.waitForEvent(t, id, "hook_created agree")
			_, err := d.log.Append(t.Context(), project, eventlog.Request{ // as a client of the Workflow SDK could
				RunID: id, Type: entities.EventHookReceived, CorrelationID: "agree", SpecVersion: entities.SpecDriven,
				Payload: []byte(`{"decision":"reject","by":"anna","key":"k"}`), Data: entities.EventData{Via: webhook.ViaSDK},
			})
			testdb.WantError(t, "a payload that is no vote", err, webhook.ErrUnverified)
			d.vote(t, id, "agree", "anna", "bob", "carl")
			d.waitForEvent(t, id, "hook_created answer")
			d.receive(t, id, "answer", `{"yes":true}`)
			if fails {
				d.wantEnd(t, id, entities.RunFailed,
					`{"message":"lost","code":"lost","details":{"step":"lost","undo":{"done":["ask"],"failed":[]}}}`)
			} else {
				d.wantEnd(t, id, entities.RunCompleted, `{"n":12345678901234567890,"votes":2,"said":{"yes":true},"heard":"7"}`)
			}
			logs = append(logs, d.ends(t, id))
			d.wantDecisions(t, id, askFlow, true)
		}
		if diff := cmp.Diff(logs[0], logs[1]); diff != "" {
			t.Errorf("steps (-in the server +remote):\n%s", diff)
		}
		want := map[string]string{
			"ask": "completed", "agree": "disposed", "answer": "disposed", "heard": "received", "tell": "completed", "more": "completed", "lost": "skipped",
		}
		if fails { // the run goes on after the signal, and so closes its hook
			want["lost"], want["ask~undo"], want["heard"] = "failed", "completed", "disposed"
		}
		if diff := cmp.Diff(want, logs[0]); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
	}
}

// TestFlowsAreUndoneWhenTheirTimeIsOver: so are their children, and a run that is asked to cancel fails if that is not
// possible.
func TestFlowsAreUndoneWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	const late = `{"message":"the run did not end in time","code":"timeout"}`
	for name, test := range map[string]struct{ document, fails, payload string }{
		"a run": {"order, deployment: dpl_test, steps: {a: {call: a, undo: {call: u}}, w: {wait: 1h}}", "", late},
		"a child": {"order, deployment: dpl_test, steps: {c: {flow: kid, timeout: 1h}}", "",
			`{"message":"the run did not end in time","code":"timeout","details":{"step":"c"}}`},
		"it cannot be undone": {"order, deployment: dpl_test, steps: {a: {call: a, undo: {call: u}}, w: {wait: 1h}}", "u=stuck",
			`{"message":"the run was asked to cancel, and not all could be undone","code":"flow.undo","details":` +
				`{"undo":{"done":[],"failed":["a"]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startServer(t, serve(t, shop))
			flows := registry.New(d.pool, time.Now)
			for _, document := range []string{
				test.document, "kid, deployment: dpl_test, steps: {a: {call: a, undo: {call: u}}, w: {wait: 1h}}",
			} {
				if _, err := flows.Put(t.Context(), project, []byte("{flow: "+document+"}")); err != nil {
					t.Fatal(err)
				}
			}
			id := d.startRun(t, `{}`, func(r *eventlog.Request) {
				r.Data.DeploymentID = "order@1"
				at := time.Now().Add(time.Hour)
				if name != "a child" {
					r.Data.Deadline = &at
				}
				if what, code, ok := strings.Cut(test.fails, "="); ok {
					r.Data.Attributes = map[string]string{"fail." + what: code}
				}
			})
			testdb.Eventually(t, "the first step has ended", func() bool {
				return d.Count(t, `SELECT count(*) FROM events WHERE type = 'step_completed' AND correlation_id = 'a'`) == 1
			})
			d.passDeadlines(t)
			d.wantEnd(t, id, entities.RunFailed, test.payload)
			done := 0
			d.Scan(t, `SELECT count(*) FROM events WHERE type IN ('step_completed', 'step_failed') AND correlation_id = 'a~undo'`,
				nil, &done)
			if done != 1 {
				t.Errorf("%d undos, want one; the log is\n%s", done, d.describe(t, id))
			}
		})
	}
}

// receive resumes a hook, and an approval with a vote.
func (d *server) receive(t *testing.T, id entities.RunID, hook, payload string) {
	t.Helper()
	_, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventHookReceived, CorrelationID: hook, SpecVersion: entities.SpecDriven,
		Payload: []byte(payload), Data: entities.EventData{Verified: webhook.Vote},
	})
	if err != nil && !isAny(err, entities.ErrHookNotFound, entities.ErrRunEnded) {
		t.Error(err)
	}
}

// vote has everybody approve at the same time, three times.
func (d *server) vote(t *testing.T, id entities.RunID, hook string, names ...string) {
	t.Helper()
	var voting sync.WaitGroup
	for _, name := range slices.Concat(names, names, names) {
		voting.Go(func() { d.receive(t, id, hook, fmt.Sprintf(`{"decision":"approve","by":%q,"key":"k"}`, name)) })
	}
	voting.Wait()
}

// ends returns how each step, wait and hook of a run has ended.
func (d *server) ends(t *testing.T, id entities.RunID) map[string]string {
	t.Helper()
	page, err := d.log.Events(t.Context(), project, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for _, e := range page.Events {
		_, end, _ := strings.Cut(string(e.Type), "_")
		switch {
		case e.CorrelationID == "" || end == "created" || end == "started":
		case view.Of(&e).Data.Skipped != "":
			ends[e.CorrelationID] = "skipped"
		default:
			ends[e.CorrelationID] = end
		}
	}
	return ends
}

// TestFlowsKeepTheirVersion puts a second version while a run of the first one waits: it ends as the first.
func TestFlowsKeepTheirVersion(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	flows := registry.New(d.pool, time.Now)
	put := func(output string) registry.Version {
		t.Helper()
		v, err := flows.Put(t.Context(), project, []byte(`
flow: slow
steps:
  go: {signal: go}
output: `+output))
		if err != nil {
			t.Fatal(err)
		}
		return v.Version
	}
	one := put("1")
	if again := put("1 # one"); again.Version != one.Version {
		t.Errorf("the same document is version %d, then %d", one.Version, again.Version)
	}
	id := d.startOrder(t, one.DeploymentID, `{}`, "")
	d.waitForEvent(t, id, "hook_created go")
	two := put("2")
	if two.Version != 2 {
		t.Errorf("the second document is version %d", two.Version)
	}
	if newest, err := d.NewestDeployment(t.Context(), project, "slow"); err != nil || newest.ID != two.DeploymentID {
		t.Errorf("the newest deployment is %s (%v)", newest.ID, err)
	}
	signal := store.Signal{Project: project, Name: "go", Data: []byte(`{}`)}
	if _, _, err := d.runs.PostSignal(t.Context(), signal, 0); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, id, entities.RunCompleted, "1")
}

// TestFlowsOnlyChangeAsFlows: their deployments are neither replaced nor removed.
func TestFlowsOnlyChangeAsFlows(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	_, err := d.PutDeployment(t.Context(), project, "order@1", "http://127.0.0.1:1")
	testdb.WantError(t, "registering over a flow", err, entities.ErrInvalid)
	testdb.WantError(t, "removing a flow's deployment", d.RemoveDeployment(t.Context(), project, "order@1"), entities.ErrInvalid)
	id := d.startOrder(t, "order@1", `{"id":"7","amount":3}`, "")
	if status, payload := d.waitForEnd(t, id); status != entities.RunCompleted {
		t.Errorf("run ended %s with %s", status, payload)
	}
}

// TestStartsThatAreRefusedFailTheirSteps starts runs of what is retired, missing, or another flow. A catch sees the code.
func TestStartsThatAreRefusedFailTheirSteps(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	flows := registry.New(d.pool, time.Now)
	put := func(document string) string {
		t.Helper()
		v, err := flows.Put(t.Context(), project, []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		return v.DeploymentID
	}
	put(`{flow: old, steps: {a: {set: 1}}}`)
	if _, err := flows.Retire(t.Context(), project, "old", 1); err != nil {
		t.Fatal(err)
	}
	stepsOnly := true
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: "mail", URL: "http://a.test", StepsOnly: &stepsOnly})
	if err != nil {
		t.Fatal(err)
	}
	catch := ", catch: [{codes: [flow_retired, alias_not_found, flow_mismatch, deployment_steps_only]}]}"
	id := d.startOrder(t, put(`
flow: starts
steps:
  retired: {flow: old, deployment: old@1`+catch+`
  newest: {flow: old`+catch+`
  missing: {flow: order, deployment: order@prod`+catch+`
  version: {start: order, deployment: order@99`+catch+`
  other: {start: another, deployment: order@1`+catch+`
  steps: {flow: another, deployment: mail`+catch+`
output: "${[steps.retired, steps.newest, steps.missing, steps.version, steps.other, steps.steps].map(s, s.error.code)}"
`), `{}`, "")
	d.wantEnd(t, id, entities.RunCompleted,
		`["flow_retired","flow_retired","alias_not_found","alias_not_found","flow_mismatch","deployment_steps_only"]`)
}

// TestAnIDIsOfAnAliasOrOfAnApp has aliases and apps race for the same IDs: each ID goes to one of them.
func TestAnIDIsOfAnAliasOrOfAnApp(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	flows := registry.New(d.pool, time.Now)
	const ids = 40
	var all sync.WaitGroup
	for n := range ids {
		alias := fmt.Sprintf("a%d", n)
		all.Go(func() {
			if _, err := flows.PutAlias(t.Context(), project, "order", alias, 1); err != nil && !errors.Is(err, registry.ErrTaken) {
				t.Error(err)
			}
		})
		all.Go(func() {
			_, err := d.PutDeployment(t.Context(), project, "order@"+alias, "http://127.0.0.1:1")
			if err != nil && !errors.Is(err, entities.ErrInvalid) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var both, either int
	err := d.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE a.id = d.id), count(*)
		FROM flow_aliases a FULL JOIN (SELECT id FROM deployments WHERE id LIKE 'order@a%') d USING (id)`).Scan(&both, &either)
	if err != nil || both != 0 || either != ids {
		t.Errorf("%d of %d IDs belong to both (%v), want none of %d", both, either, err, ids)
	}
}

// TestUnknownSemanticsAreLeftAlone: a run whose document was put by a later server waits, with a reason, and is not
// decided by rules that it does not have. A server that knows them goes on with it.
func TestUnknownSemanticsAreLeftAlone(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	set := func(number int) { d.Exec(t, `UPDATE flow_versions SET semantics = $1 WHERE name = 'gift'`, number) }
	set(flow.Semantics + 1)
	id := d.startRun(t, `{"for":"7"}`, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = "gift@1", "gift"
	})
	const waits = `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run' AND last_error LIKE '%semantics 2%' AND delivery_count = 0`
	testdb.Eventually(t, "the run waits for another server", func() bool { return d.Count(t, waits, id) == 1 })
	if n := d.countEvents(t, id, "step_created pack"); n != 0 {
		t.Error("the run was decided")
	}
	unknown, err := d.runs.flows.Unknown(t.Context())
	if diff := cmp.Diff([]string{string(project) + "/gift@1"}, unknown); err != nil || diff != "" {
		t.Errorf("unknown (-want +got):\n%s (%v)", diff, err)
	}
	set(flow.Semantics)
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE run_id = $1`, id)
	d.WakeTimer(nil)
	d.wantEnd(t, id, entities.RunCompleted, `"a gift for 7"`)
	if unknown, err := d.runs.flows.Unknown(t.Context()); err != nil || len(unknown) > 0 {
		t.Errorf("unknown: %v (%v)", unknown, err)
	}
}
