package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/why"
)

const lineFlow = `
flow: line
deployment: dpl_test
steps:
  a: {call: work}
  b: {needs: a, call: work, input: "${steps.a.output}"}
  c: {needs: b, call: work, input: "${steps.b.output}"}
`

// knowFlow stores a flow, and has the server read it.
func (d *server) knowFlow(t testing.TB, document, deployment string) {
	t.Helper()
	putFlow(t, d, document)
	if _, err := d.runs.flows.Program(t.Context(), project, deployment); err != nil {
		t.Fatal(err)
	}
}

// startFlow starts a run of a version of a flow.
func (d *server) startFlow(t testing.TB, name, input string) entities.RunID {
	t.Helper()
	return d.startRun(t, input, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = name+"@1", name
	})
}

// TestFlowOfThreeStepsTakesFourTransactions: the creation of the run, and three results. Each brings what follows, and
// is one statement, since one process handles the whole run. Only the last has another statement before it, which locks
// the run to end it. There are three calls.
func TestFlowOfThreeStepsTakesFourTransactions(t *testing.T) {
	t.Parallel()
	s := statementCounter{parts: map[string]int{
		"FOR NO KEY UPDATE": 0, "INTO runs": 0, "UPDATE runs": 0, "INTO events": 0, "INTO steps": 0, "UPDATE steps": 0,
		"INTO messages AS m": 0, "COMMIT": 0,
	}}
	r := newReplica(t, testdb.New(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = &s })
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	d := &server{r, log, New(r.Queue, log)}
	calls := make(chan string, 10)
	d.register(t, deployment, serve(t, func(c *functionCall) {
		calls <- fmt.Sprintf("%s %s", c.Step.ID, c.Step.Input)
		_, _ = fmt.Fprintf(c.w, `%q`, c.Step.ID)
	}).URL)
	d.knowFlow(t, lineFlow, "line@1")
	w := d.newWorker(t, d.works)
	d.onRecord(t, w.ProcessID()) // the worker does not run, so that only the run's statements are counted
	d.Attach(w)
	s.mu.Lock()
	for part := range s.parts {
		s.parts[part] = 0 // the flow was stored too
	}
	s.mu.Unlock()
	id := d.startFlow(t, "line", `7`)
	d.wantEnd(t, id, entities.RunCompleted, `{"c":"c"}`)
	for _, want := range []string{`a 7`, `b "a"`, `c "b"`} {
		if got := testdb.Receive(t, "a call", calls); got != want {
			t.Errorf("call %s, want %s", got, want)
		}
	}
	if len(calls) > 0 {
		t.Errorf("%d more calls", len(calls))
	}
	if n := d.Count(t, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1`, id); n != 4 {
		t.Errorf("%d transactions wrote the events, want 4:\n%s", n, d.describe(t, id))
	}
	want := map[string]int{
		"FOR NO KEY UPDATE": 4, "INTO runs": 1, "UPDATE runs": 3, "INTO events": 4, "INTO steps": 3, "UPDATE steps": 3,
		"INTO messages AS m": 3, "COMMIT": 0,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for part, n := range want {
		if s.parts[part] != n {
			t.Errorf("%d statements contain %q, want %d", s.parts[part], part, n)
		}
	}
}

// randomLine draws a flow whose steps follow each other, so that its log has one order.
func randomLine(r *rand.Rand, name string) string {
	kinds := []string{
		"call: work", "call: work, undo: {call: undo}", `call: work, input: {a: "<${input.n}>", b: "${run.id.size() > 0}"}`,
		"call: fails, catch: [{codes: [x]}]", "call: fails", "set: {n: '${input.n + 1}'}", "wait: 1ms",
		"map: 'input.list', concurrency: 1, do: {call: work}", "call: work, when: input.n > 3",
		"loop: {do: {call: work}, until: iteration.index == 2, max: 3}",
	}
	document := "flow: " + name + "\ndeployment: dpl_test\ndefaults: {retry: {maxAttempts: 1}}\nsteps:\n"
	for i := range 2 + r.IntN(5) {
		fields := kinds[r.IntN(len(kinds))]
		if i > 0 {
			fields += fmt.Sprintf(", needs: s%d, join: always", i-1)
		}
		document += fmt.Sprintf("  s%d: {%s}\n", i, fields)
	}
	return document
}

// randomGraph draws a flow with steps side by side. Its values do not depend on which one ends first.
func randomGraph(r *rand.Rand, name string) string {
	kinds := []string{
		"call: work", "call: work, undo: {call: undo}", "call: fails, catch: [{}]", "set: '${input.n}'", "wait: 1ms",
		"map: 'input.list', concurrency: 2, do: {call: work}", "call: work, when: input.n > 3", "flow: line",
	}
	document := "flow: " + name + "\ndeployment: dpl_test\ndefaults: {retry: {maxAttempts: 1}}\nsteps:\n"
	for i := range 4 + r.IntN(6) {
		fields := kinds[r.IntN(len(kinds))]
		if i > 1 {
			fields += fmt.Sprintf(", needs: [s%d, s%d], join: always", r.IntN(i/2), i/2+r.IntN(i-i/2))
		}
		document += fmt.Sprintf("  s%d: {%s}\n", i, fields)
	}
	return document
}

// TestLogsAreTheSameWithoutInlineDecisions runs random flows on a server where decisions are written inline, and on one
// where none does. The second run of a flow may have outputs of the first.
func TestLogsAreTheSameWithoutInlineDecisions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs many flows")
	}
	function := serve(t, func(c *functionCall) {
		if c.Step.Name == "fails" {
			c.w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(c.w, `{"error":{"message":"<no>","code":"x"}}`)
			return
		}
		_, _ = fmt.Fprintf(c.w, `{ "of": "<%s & %s>" }`, c.Step.ID, c.Step.Name)
	})
	var servers []*server
	for _, inline := range []bool{true, false} {
		d := newServer(t, testdb.New(t))
		d.register(t, deployment, function.URL)
		if !inline {
			d.runs.follows = nil
		}
		d.worker(t, d.works)
		d.knowFlow(t, lineFlow, "line@1")
		servers = append(servers, d)
	}
	var transactions [2]int
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		name := fmt.Sprint("flow", seed)
		document, sorted := randomLine(r, name), seed%2 == 0
		if sorted {
			document = randomGraph(r, name)
		}
		input := fmt.Sprintf(`{"n":%d,"list":[1,"<2>"]}`, r.IntN(6))
		var logs [2][]string
		for i, d := range servers {
			d.knowFlow(t, document, name+"@1")
			for range 2 {
				id := d.startFlow(t, name, input)
				d.waitForEnd(t, id)
				logs[i] = append(logs[i], d.decisions(t, id)...)
				transactions[i] += d.Count(t, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1`, id)
			}
			if sorted {
				slices.Sort(logs[i])
			}
		}
		if diff := cmp.Diff(logs[1], logs[0]); diff != "" {
			t.Errorf("the log without (-) and with inline decisions (+):\n%s\nof\n%s", diff, document)
		}
	}
	if transactions[0] >= transactions[1] {
		t.Errorf("%d transactions with, and %d without inline decisions", transactions[0], transactions[1])
	}
	t.Logf("%d of %d transactions", transactions[0], transactions[1])
}

// decisions returns the log of a run without the attempts of steps, whose starts may be written later.
func (d *server) decisions(t *testing.T, id entities.RunID) (list []string) {
	t.Helper()
	page, err := d.log.Events(t.Context(), project, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if e.Type != entities.EventStepStarted {
			list = append(list, fmt.Sprintf("%s %s %s", e.Type, e.CorrelationID, e.Payload))
		}
	}
	return list
}

// TestAnInlineDecisionSurvivesACrashAtAnyStatement is TestInlineStartSurvivesACrashAtAnyStatement for what is decided
// inline.
func TestAnInlineDecisionSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, s *inlineStartTest, by *server) {
		t.Helper()
		s.Exec(t, `DELETE FROM runs`)
		s.Exec(t, `DELETE FROM messages`)
		by.runs.Handlers()
		by.knowFlow(t, lineFlow, "line@1")
	}
	for name, tt := range map[string]inlineStartCase{
		"a start": {
			prepare: func(t *testing.T, s *inlineStartTest, by *server) startingAction {
				t.Helper()
				start(t, s, by)
				return func(t *testing.T, s *inlineStartTest, broken *server) error {
					t.Helper()
					_, _, err := broken.log.Start(t.Context(), project, eventlog.Request{
						RunID: s.run, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte(`7`),
						Data: entities.EventData{DeploymentID: "line@1", WorkflowName: "line", Driver: entities.DriverServer},
					})
					return err
				}
			},
			work: message.WorkStep, subject: "a", lastEvent: "step_started a", optimistic: true,
		},
		"a result": {
			prepare: func(t *testing.T, s *inlineStartTest, by *server) startingAction {
				t.Helper()
				start(t, s, by)
				s.run = by.startFlow(t, "line", `7`)
				work := s.claim(t, message.WorkStep, "a")
				return func(t *testing.T, _ *inlineStartTest, broken *server) error {
					t.Helper()
					w := broken.newWorker(t, broken.works)
					return broken.runs.finish(t.Context(), w.Bind(work), eventlog.Request{
						Type: entities.EventStepCompleted, CorrelationID: "a", SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
					})
				}
			},
			work: message.WorkStep, subject: "b", lastEvent: "step_started b", optimistic: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.crashAtAnyStatement(t, true)
		})
	}
}

// TestTheLastInlineDecisionSurvivesACrashAtAnyStatement: the result that ends a run is there with the end and without
// work, or not at all. Repeating it ends the run.
func TestTheLastInlineDecisionSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	session := gate.Open(t, dsn, home.pool, nil)
	b := cachingServerOn(t, session, home)
	status := func() (text string) {
		home.Scan(t, `SELECT status || (SELECT count(*) FROM messages WHERE work = 'step') FROM runs`, nil, &text)
		return text
	}
	attempt := func(n int, crash gate.Crash) (m *runUnderWay, statements []string, err error) {
		m = b.prepareLast(t, home)
		if err := completeStep("a", "1")(t.Context(), b, m); err != nil {
			t.Fatal(err)
		}
		m.steps["c"] = home.claim(t, message.WorkStep, "c")
		statements = session.Run(t, n, crash, func() { err = completeStep("c", "3")(t.Context(), b, m) })
		return m, statements, err
	}
	_, statements, err := attempt(-1, gate.None)
	if err != nil || status() != "completed0" {
		t.Fatalf("the run is %s (%v)", status(), err)
	}
	for n, sql := range statements {
		for _, how := range gate.Crashes(sql) {
			what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
			m, _, err := attempt(n, how)
			want := "running1"
			if n == len(statements)-1 && how == gate.AnswerLost {
				want = "completed0"
			}
			if got := status(); got != want || err == nil {
				t.Errorf("%s: the run is %s (%v), want %s and an error", what, got, err, want)
			}
			again := completeStep("c", "3")(t.Context(), b, m)
			if status() == "running0" { // what follows is left to an invocation
				err := b.runs.invoke(t.Context(), b.worker.Bind(home.claim(t, message.WorkRun, "")))
				again = errors.Join(again, err)
			}
			if got := status(); got != "completed0" || again != nil && !queue.IsOver(again) {
				t.Errorf("%s: after the repetition the run is %s (%v)", what, got, again)
			}
		}
	}
}

// TestARidingStepWaitsForItsLimit: the result brings the step, and the step waits for a slot, whether the policy or the
// document says that it needs one.
func TestARidingStepWaitsForItsLimit(t *testing.T) {
	t.Parallel()
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		decidesLimited(t, "", map[string][]limit.PolicyUse{"limited": {{Name: "one"}}})
	})
	t.Run("document", func(t *testing.T) {
		t.Parallel()
		decidesLimited(t, ", limits: one", map[string][]limit.PolicyUse{"other": {{Name: "one"}}})
	})
}

func decidesLimited(t *testing.T, inDocument string, inPolicy map[string][]limit.PolicyUse) {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.Step.ID == "b" {
			hold.Do(func() {
				close(held)
				<-release
			})
		}
		_, _ = fmt.Fprintf(c.w, `%q`, c.Step.ID)
	}))
	d.knowFlow(t, strings.Replace(lineFlow, "b: {needs: a, call: work", "b: {needs: a, call: limited"+inDocument, 1), "line@1")
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.putPolicy(t, limit.Policy{Workflow: "line", Steps: inPolicy})
	first := d.startFlow(t, "line", `7`)
	testdb.Receive(t, "the call of the first", held)
	second := d.startFlow(t, "line", `7`)
	d.waitForEvent(t, second, "step_created b")
	d.reason(t, second, why.LimitFull)
	if d.countEvents(t, second, "step_started b") > 0 {
		t.Error("the step has begun without a slot")
	}
	d.Want(t, "transactions of the result and the step that it brings", 1, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1 AND correlation_id IN ('a', 'b')
		AND type IN ('step_completed', 'step_created') AND seq > 3`, second)
	close(release)
	for _, id := range []entities.RunID{first, second} {
		d.wantEnd(t, id, entities.RunCompleted, `{"c":"c"}`)
	}
	d.wantNoPermits(t)
}

// TestEventsOfFlowsAreThoseOfCalls: a flow reads the same bytes, whether it is called or asked before a write.
func TestEventsOfFlowsAreThoseOfCalls(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 1, 2, 3, 4e6, time.FixedZone("", 3600))
	events := []entities.Event{
		{Seq: 1, Type: entities.EventRunCreated, CreatedAt: at, Payload: []byte(`{"a": ["<b>", 1.50], "e": "\u00e9 é"}`)},
		{Seq: 2, Type: entities.EventRunStarted, CreatedAt: at},
		{Seq: 3, Type: entities.EventStepCompleted, CorrelationID: "s", CreatedAt: at, Payload: []byte(`null`),
			Data: entities.EventData{StepName: "s", Skipped: "it is not <needed>"}},
		{Seq: 4, Type: entities.EventStepFailed, CorrelationID: "s", CreatedAt: at, Payload: []byte(` {"message":"m","code":"c"} `)},
	}
	var want []flow.Event
	for _, e := range events {
		text, err := json.Marshal(view.Of(&e))
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := decodeEvent(text)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, decoded)
	}
	got, err := flowEvents(events)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("events (-of a call +got): %v\n%s", err, diff)
	}
}

// TestAResponseIsNotDecidedInline: what a flow answers to a request is no event, so an invocation writes it.
func TestAResponseIsNotDecidedInline(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) { _, _ = fmt.Fprintf(c.w, `%q`, c.Step.ID) }))
	d.knowFlow(t, `{flow: web, deployment: dpl_test, steps: {ask: {hook: {webhook: {respond: 10s}}},
		work: {needs: ask, call: work}, answer: {needs: work, respond: {to: ask, body: "${steps.work.output}"}}}}`, "web@1")
	id := d.startFlow(t, "web", `7`)
	d.waitForEvent(t, id, "hook_created ask")
	d.receive(t, id, "ask", `{"request":"r1"}`)
	d.wantEnd(t, id, entities.RunCompleted, `{"answer":null}`)
	var answer string
	d.Scan(t, `SELECT convert_from(data, 'UTF8') FROM streams JOIN stream_chunks ON stream_id = id WHERE run_id = $1`,
		[]any{id}, &answer)
	if want := `{"status":200,"headers":{"Content-Type":"application/json"},"body":"Indvcmsi"}`; answer != want {
		t.Errorf("answered %s, want %s", answer, want)
	}
}
