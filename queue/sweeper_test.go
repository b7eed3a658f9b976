package queue

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/continuation"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const workflow = "workflow//./src/order//order"

func hourAgo() time.Time { return time.Now().Add(-time.Hour) }

// testRun is a run whose events a test appends. Its clock shows an hour ago.
type testRun struct {
	*replica
	entities.RunID
}

// created creates a run.
func (r *replica) created(t testing.TB) testRun {
	t.Helper()
	run := testRun{r, entities.RunID("wrun_" + ulid.MustNewDefault(hourAgo()).String())}
	run.happens(t, entities.EventRunCreated, "", func(e *eventlog.Request) {
		e.Data = entities.EventData{DeploymentID: deployment, WorkflowName: workflow}
	})
	return run
}

func (r *replica) started(t testing.TB) testRun {
	t.Helper()
	run := r.created(t)
	run.happens(t, entities.EventRunStarted, "")
	return run
}

// happens appends an event.
func (r testRun) happens(t testing.TB, typ entities.EventType, about string, options ...func(*eventlog.Request)) {
	t.Helper()
	e := eventlog.Request{RunID: r.RunID, Type: typ, CorrelationID: about, SpecVersion: 3}
	switch typ {
	case entities.EventStepCreated:
		e.Data.StepName = "step//./src/order//charge"
	case entities.EventHookCreated:
		e.Data.Token = about
	default:
	}
	for _, o := range options {
		o(&e)
	}
	log := eventlog.New(r.pool, r.hub, r.Queue, hourAgo)
	if _, err := log.Append(t.Context(), project, e); err != nil {
		t.Fatal(err)
	}
}

// in sets the time of a request to d from now: when a wait ends or a step is retried.
func in(d time.Duration) func(*eventlog.Request) {
	at := time.Now().Add(d)
	return func(e *eventlog.Request) { e.Data.ResumeAt, e.Data.RetryAfter = &at, &at }
}

func about(run testRun) func(*message.Message) {
	return func(m *message.Message) { m.RunID = run.RunID }
}

// delivered sends a message of the run and acknowledges it. Meanwhile is called between claim and acknowledgement.
func (r testRun) delivered(t testing.TB, topic string, meanwhile ...func()) {
	t.Helper()
	r.registerProcess(t, "proc_1")
	id := r.send(t, about(r), func(m *message.Message) { m.Topic = topic })
	d, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Number: firstTicket}, "rh_"+id, "proc_1", leaseTime)
	if err != nil || !ok {
		t.Fatalf("claim: got %v, %v", ok, err)
	}
	for _, f := range meanwhile {
		f()
	}
	if err := r.Acknowledge(t.Context(), project, topic, d.Lease); err != nil {
		t.Fatal(err)
	}
}

// sweep runs a due pass of a new sweeper.
func (r *replica) sweep(t testing.TB, configure ...func(*cluster.Sweeper)) []cluster.Stranded {
	t.Helper()
	s := r.newWorker(t).sweeper
	s.Interval = 0
	for _, c := range configure {
		c(s)
	}
	woken, err := s.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return woken
}

// TestWokenRunIsContinuedByItsClient: the app gets the message that its own client would have sent.
func TestWokenRunIsContinuedByItsClient(t *testing.T) {
	t.Parallel()
	var r *replica
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(t, c) })
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	run := r.created(t)
	w := r.newWorker(t)
	w.sweeper.Interval = 50 * time.Millisecond
	r.Exec(t, `UPDATE sweeper SET due_at = now()`)
	startWorker(t, w)
	c := a.next(t)
	want := map[string]any{
		"payload": map[any]any{"runId": string(run.RunID)}, "queueName": "__wkf_workflow_" + workflow, "deploymentId": deployment,
	}
	var got map[string]any
	if err := cbor.Unmarshal(c.Body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if c.topic() != "__wkf_workflow_workflow----src-order--order" || c.Header.Get("Content-Type") != "application/cbor" {
		t.Errorf("got topic %s and content type %s", c.topic(), c.Header.Get("Content-Type"))
	}
	if c.Path != "POST /.well-known/workflow/v1/flow" {
		t.Errorf("got %s", c.Path)
	}
}

func TestContinuationOfOldClientsIsJSON(t *testing.T) {
	t.Parallel()
	m, err := continuation.Of(entities.Run{ID: "wrun_1", Project: "p", DeploymentID: "d", WorkflowName: `w"`, SpecVersion: 2})
	const want = `{"deploymentId":"d","payload":{"runId":"wrun_1"},"queueName":"__wkf_workflow_w\""}`
	if err != nil || string(m.Body) != want || m.ContentType != "application/json" || m.Project != "p" {
		t.Errorf("got %s as %s, %v", m.Body, m.ContentType, err)
	}
}

func TestContinuationIsCBORForAllLengths(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 5, 8, 9, 23, 24, 100, 240, 255, 256, 300, 65_535, 65_536, 70_000} {
		name := strings.Repeat("w", n)
		m, err := continuation.Of(entities.Run{ID: "wrun_1", DeploymentID: name, WorkflowName: name, SpecVersion: 3})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Payload      map[string]string `cbor:"payload"`
			QueueName    string            `cbor:"queueName"`
			DeploymentID string            `cbor:"deploymentId"`
		}
		if err := cbor.Unmarshal(m.Body, &got); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if got.Payload["runId"] != "wrun_1" || got.QueueName != "__wkf_workflow_"+name || got.DeploymentID != name {
			t.Errorf("%d: got %+v", n, got)
		}
	}
}

// TestRepeatedWakeUpsBackOff: a run that stays stranded is woken at growing intervals, until it makes progress.
func TestRepeatedWakeUpsBackOff(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	run := r.started(t)
	later := func(d time.Duration) {
		r.Exec(t, `UPDATE run_wakes SET repaired_at = repaired_at - $1::interval`, d)
		r.Exec(t, `DELETE FROM messages`) // acknowledged without effect
	}
	r.sweep(t)
	for i, backoff := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		later(backoff*time.Minute - 5*time.Second)
		if woken := r.sweep(t); len(woken) != 0 {
			t.Errorf("wake-up %d came in less than %d minutes", i+2, backoff)
		}
		if g, err := r.Gauges(t.Context()); err != nil || g.StrandedRuns != 1 {
			t.Errorf("got a gauge of %d (%v) for a run that stays stranded, want 1", g.StrandedRuns, err)
		}
		later(6 * time.Second)
		if woken := r.sweep(t); len(woken) != 1 {
			t.Errorf("wake-up %d did not come after %d minutes", i+2, backoff)
		}
	}
	run.happens(t, entities.EventAttrSet, "", func(e *eventlog.Request) {
		value := "v"
		e.Data.Changes = []entities.AttributeChange{{Key: "k", Value: &value}}
	})
	later(0)
	if woken := r.sweep(t); len(woken) != 1 {
		t.Error("a run that made progress and is stranded again was not woken")
	}
	run.happens(t, entities.EventRunCompleted, "")
	later(time.Hour)
	if woken := r.sweep(t); len(woken) != 0 {
		t.Error("a run that has ended was woken")
	}
	if g, err := r.Gauges(t.Context()); err != nil || g.StrandedRuns != 0 {
		t.Errorf("got a gauge of %d (%v) after the end, want 0", g.StrandedRuns, err)
	}
}

// TestLostStepMessageCanBeSentAgain: otherwise the message that the woken client sends would be a duplicate by its key.
func TestLostStepMessageCanBeSentAgain(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	run, sibling := r.started(t), r.started(t)
	run.happens(t, entities.EventStepCreated, "step_1")
	run.happens(t, entities.EventWaitCreated, "wait_1", in(-time.Minute))
	sibling.send(t, about(sibling))
	flow, step := continuation.Topic("__wkf_workflow_"+workflow), continuation.Topic("__wkf_step_step//./src/order//charge")
	on := func(topic, key string) func(*message.Message) {
		return func(m *message.Message) { m.Topic, m.Key, m.RunID = topic, key, run.RunID }
	}
	lost := []func(*message.Message){
		on(step, "step_1"), on(flow, "step_1:43b660d1"), on(flow, "wait_1"), on(flow, "wait_1:hop-1"),
	}
	others := []func(*message.Message){
		on(step, "step_10"), on(flow, "step_2"), on(flow, "hook-1"), on("other", "step_1"), on(flow, "step_0"),
	}
	ids := map[int]string{}
	for i, m := range slices.Concat(lost, others) {
		ids[i] = r.send(t, m)
	}
	alive := r.send(t, on(flow, "step_1:alive"), func(m *message.Message) { m.RunID = "" })
	r.Exec(t, `DELETE FROM messages WHERE run_id = $1`, run.RunID)
	if woken := r.sweep(t); len(woken) != 1 || woken[0].ID != run.RunID {
		t.Fatalf("got %+v, want the run woken", woken)
	}
	for i, m := range slices.Concat(lost, others) {
		if again := r.send(t, m); (again == ids[i]) == (i < len(lost)) {
			t.Errorf("message %d is sent again: %v, want %v", i, again != ids[i], i < len(lost))
		}
	}
	if again := r.send(t, on(flow, "step_1:alive")); again != alive {
		t.Error("a message that is on its way can be sent again")
	}
}

func TestSweepersShareOneRound(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	var runs []testRun
	for range 21 {
		runs = append(runs, r.started(t))
	}
	// A round is in the order of the IDs, which is not that of the creation within a millisecond.
	slices.SortFunc(runs, func(a, b testRun) int { return strings.Compare(string(a.RunID), string(b.RunID)) })
	strandedRun := runs[20]
	for _, run := range runs[:20] {
		run.send(t, about(run))
	}
	small := func(s *cluster.Sweeper) { s.Batch = 4 }
	for pass := 1; ; pass++ {
		if woken := r.sweep(t, small); len(woken) == 1 && woken[0].ID == strandedRun.RunID {
			if pass != 6 {
				t.Errorf("it was found in pass %d, want 6: each pass reads 4 runs", pass)
			}
			break
		}
		if pass > 6 {
			t.Fatal("it was never found")
		}
	}
	r.Exec(t, `DELETE FROM messages WHERE run_id = $1`, runs[0].RunID)
	if woken := r.sweep(t, small); len(woken) != 1 || woken[0].ID != runs[0].RunID {
		t.Errorf("got %+v, want the round to start again", woken)
	}
	// A sweeper whose pass is not due does nothing.
	r.Exec(t, `UPDATE sweeper SET due_at = now() + interval '1 h'`)
	r.Exec(t, `DELETE FROM messages`)
	if woken := r.sweep(t, small); len(woken) != 0 {
		t.Errorf("got %+v of a pass that was not due", woken)
	}
}

func TestRacersWakeARunOnce(t *testing.T) {
	t.Parallel()
	const runs = 120 // more than one pass wakes
	r := withoutHints(t, testdb.New(t))
	for range runs {
		r.started(t)
	}
	var sweepers []*cluster.Sweeper
	for range 8 {
		s := r.newWorker(t).sweeper
		s.Interval = 0 // always due
		sweepers = append(sweepers, s)
	}
	total := 0
	for range 4 {
		for _, n := range race(len(sweepers), func(i int) int {
			woken, err := sweepers[i].Sweep(context.Background())
			if err != nil {
				t.Error(err)
			}
			return len(woken)
		}) {
			total += n
		}
	}
	for r.Count(t, `SELECT count(*) FROM messages`) < runs {
		total += len(r.sweep(t))
	}
	doubled := r.Count(t, `SELECT count(*) FROM (SELECT FROM messages GROUP BY run_id HAVING count(*) <> 1) d`)
	if total != runs || doubled != 0 {
		t.Errorf("%d were woken, %d of them more than once; want each of %d once", total, doubled, runs)
	}
}

func TestSweepIsAtomic(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.started(t)
	var due time.Time
	r.Scan(t, `SELECT due_at FROM sweeper`, nil, &due)
	r.Exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE OF cursor ON sweeper FOR EACH ROW EXECUTE FUNCTION refuse()`)
	sweeper := r.newWorker(t).sweeper
	sweeper.Batch = 1 // so that the pass ends elsewhere than it began
	if woken, err := sweeper.Sweep(t.Context()); err == nil || len(woken) > 0 {
		t.Errorf("got %+v, %v; want an error", woken, err)
	}
	left := r.Count(t, `
		SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM run_wakes) + (SELECT count(*) FROM river_job)
			+ (SELECT count(*) FROM sweeper WHERE due_at <> $1)`, due)
	if left != 0 {
		t.Errorf("the failed pass left %d rows", left)
	}
}
