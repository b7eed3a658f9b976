package queue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

const pausedRun entities.RunID = "wrun_paused"

// subjects are what can be paused of a message of the run.
var subjects = []hold.Subject{
	{Kind: hold.Run, Name: string(pausedRun)}, {Kind: hold.Workflow, Name: "order"},
	{Kind: hold.Deployment, Name: deployment},
}

func aboutRun(id entities.RunID) func(*message.Message) {
	return func(m *message.Message) { m.RunID = id }
}

// insertRun creates an open run of the workflow.
func (r *replica) insertRun(t testing.TB, id entities.RunID, workflow string) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 'running', 3, 1, now(), now())`, id, project, deployment, workflow)
}

// pauses pauses, and waits until the replicas know.
func (r *replica) pausesPart(t testing.TB, s hold.Subject, others ...*replica) {
	t.Helper()
	if _, err := r.Pause(t.Context(), project, s, ""); err != nil {
		t.Fatal(err)
	}
	for _, o := range append(others, r) {
		testdb.Eventually(t, "the pause is known", func() bool { return o.pauses.known().parts[project] })
	}
}

func (r *replica) resumes(t testing.TB, s hold.Subject) {
	t.Helper()
	if err := r.EndPause(t.Context(), project, s); err != nil {
		t.Fatal(err)
	}
}

// held waits until so many messages are held, none of which is searched for again.
func (r *replica) held(t testing.TB, n int) {
	t.Helper()
	testdb.Eventually(t, fmt.Sprint(n, " messages are held"), func() bool {
		return r.Count(t, `SELECT count(*) FROM messages
			WHERE held_by IS NOT NULL AND lease = '' AND due_at = `+hold.Until+` AND delivery_count = 0`) == n
	})
}

// acknowledging answers calls with an acknowledgement.
func acknowledging(t testing.TB, r **replica) *app {
	t.Helper()
	return newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { (*r).ack(t, c) })
}

// TestPausedPartsAreNotCalled by the process that accepts a message, by another one, or by one that had put it off,
// until they are resumed. What is not paused is called.
func TestPausedPartsAreNotCalled(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		t.Run(string(s.Kind), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			r, other := open(t, dsn), open(t, dsn)
			a := acknowledging(t, &r)
			r.register(t, deployment, a.URL)
			r.register(t, "other", a.URL)
			r.insertRun(t, pausedRun, "order")
			r.insertRun(t, "wrun_other", "refund")
			r.worker(t)
			other.worker(t)
			r.pausesPart(t, s, other)
			ids := []string{r.send(t, aboutRun(pausedRun)), other.send(t, aboutRun(pausedRun)), r.send(t, aboutRun(pausedRun), delayed(1))}
			free := r.send(t, aboutRun("wrun_other"), func(m *message.Message) { m.DeploymentID = "other" })
			r.held(t, len(ids))
			r.gone(t, free)
			if c := a.next(t); c.id() != free || len(a.calls) > 0 {
				t.Fatalf("called for %s and %d others, want only for %s", c.id(), len(a.calls), free)
			}
			r.resumes(t, s)
			for _, id := range ids {
				r.gone(t, id)
			}
			if n := len(a.calls); n != len(ids) {
				t.Errorf("%d calls after the pause, want %d", n, len(ids))
			}
			testdb.Eventually(t, "the pause is forgotten", func() bool { return r.Count(t, `SELECT count(*) FROM pauses`) == 0 })
		})
	}
}

// TestCallsUnderWayOutliveAPause: their app may acknowledge them, and what they send waits.
func TestCallsUnderWayOutliveAPause(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	paused := make(chan struct{})
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		<-paused
		r.send(t, aboutRun(pausedRun))
		r.ack(t, c)
	})
	r.register(t, deployment, a.URL)
	r.insertRun(t, pausedRun, "order")
	r.worker(t)
	first := r.send(t, aboutRun(pausedRun))
	a.next(t)
	r.pausesPart(t, subjects[0])
	close(paused)
	r.gone(t, first)
	r.held(t, 1)
}

// TestPausesHoldOnlyCalls: whatever records what has happened, starts a run or ends one goes on.
func TestPausesHoldOnlyCalls(t *testing.T) {
	t.Parallel()
	calls := []message.Work{message.WorkNone, message.WorkRun, message.WorkStep}
	for _, w := range []message.Work{
		message.WorkNone, message.WorkRun, message.WorkStep, message.WorkDeadline, message.WorkCancel, message.WorkReport,
		message.WorkEnd, message.WorkSignal, message.WorkEmit, message.WorkLookBack, message.WorkSchedule,
		message.WorkCollection, message.WorkTrigger, message.WorkProbe, message.WorkRequest,
	} {
		if got, want := hold.Holds(w), slices.Contains(calls, w); got != want {
			t.Errorf("work %q: held is %v, want %v", w, got, want)
		}
	}
}

// TestPausesOfPulledApps: an app that asks gets nothing that is paused, neither handed over nor given back before, and
// a client that asks for a message by its ID is refused.
func TestPausesOfPulledApps(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.insertRun(t, pausedRun, "order")
	if err := r.noteAsked(t.Context(), testApp); err != nil {
		t.Fatal(err)
	}
	before := r.send(t, aboutRun(pausedRun))
	r.Exec(t, `UPDATE messages SET unreached_count = 1`) // given back
	asked := r.send(t, aboutRun(pausedRun), keyed("asked"))
	r.worker(t)
	r.pausesPart(t, subjects[1])
	if _, err := r.Receive(t.Context(), project, topic, asked, leaseTime); err == nil {
		t.Error("a client got a paused message")
	}
	got := r.pulls(t)
	r.send(t, aboutRun(pausedRun))
	r.held(t, 3)
	if len(got) > 0 {
		t.Fatal("the app got a paused message")
	}
	r.resumes(t, subjects[1])
	for n := 0; n < 3; {
		for _, d := range testdb.Receive(t, "deliveries", got) {
			r.ackPulled(t, d)
			n++
		}
	}
	r.gone(t, before)
}

// TestRacesOfPauses: racers pause and resume the same things while messages are sent, claimed and held by two
// processes, one of which learns of pauses late. In the end, each message was delivered, and nothing is held.
func TestRacesOfPauses(t *testing.T) {
	t.Parallel()
	const racers, rounds = 6, 25
	dsn := testdb.New(t)
	r, late := open(t, dsn), withoutHints(t, dsn)
	a := acknowledging(t, &r)
	r.register(t, deployment, a.URL)
	r.insertRun(t, pausedRun, "order")
	r.worker(t)
	late.worker(t)
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			s := subjects[i%len(subjects)]
			for range rounds {
				if _, err := r.Pause(t.Context(), project, s, ""); err != nil {
					t.Errorf("pause: %v", err)
				}
				if _, err := late.Send(t.Context(), newMessage(aboutRun(pausedRun))); err != nil {
					t.Errorf("send: %v", err)
				}
				if _, err := r.Send(t.Context(), newMessage(aboutRun(pausedRun))); err != nil {
					t.Errorf("send: %v", err)
				}
				_ = r.EndPause(t.Context(), project, s) // unless another racer has
			}
		})
	}
	all.Wait()
	if n := r.Count(t, `SELECT count(*) FROM pauses WHERE resumed_at IS NULL`); n != 0 {
		t.Fatalf("%d pauses go on", n)
	}
	testdb.Eventually(t, "all messages are delivered", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if n := len(a.calls); n != 2*racers*rounds {
		t.Errorf("%d calls, want %d", n, 2*racers*rounds)
	}
	testdb.Eventually(t, "the pauses are forgotten", func() bool { return r.Count(t, `SELECT count(*) FROM pauses`) == 0 })
}

// TestPauseThatEndsMissesNoDelivery: one that begins to be held while the pause ends is either let go or delivered.
func TestPauseThatEndsMissesNoDelivery(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.insertRun(t, pausedRun, "order")
	if _, err := r.Pause(t.Context(), project, subjects[0], ""); err != nil {
		t.Fatal(err)
	}
	r.send(t, aboutRun(pausedRun))
	r.Exec(t, `UPDATE messages SET lease = 'rh_1', delivery_count = 1`)
	d := Delivery{Project: project, RunID: pausedRun, DeploymentID: deployment, Lease: "rh_1"}
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var held bool
	if err := tx.QueryRow(t.Context(), holdSQL, d.Lease, d.Project, d.RunID, d.DeploymentID).Scan(&held); err != nil || !held {
		t.Fatalf("held is %v, %v", held, err)
	}
	ended := make(chan error)
	go func() { ended <- r.EndPause(context.Background(), project, subjects[0]) }()
	testdb.Eventually(t, "the end of the pause waits for the delivery", func() bool {
		return r.Count(t, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE pauses%'`) == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// As if the process had died: another one lets go what the pause holds.
	other := open(t, r.pool.Config().ConnString())
	if held, err := other.putAside(t.Context(), d); held || err != nil {
		t.Errorf("held is %v, %v after the pause", held, err)
	}
	over, err := other.pauses.read(t.Context())
	if err != nil || len(over) != 1 {
		t.Fatalf("pauses that are over: %v, %v, want one", over, err)
	}
	if err := other.letGo(t.Context(), over[0]); err != nil {
		t.Fatal(err)
	}
	r.Want(t, "due messages", 1, `SELECT count(*) FROM messages WHERE held_by IS NULL AND due_at <= now()`)
	r.Want(t, "pauses", 0, `SELECT count(*) FROM pauses`)
}

// TestPausesOfEndedRunsEnd, so that what they hold is not held for ever.
func TestPausesOfEndedRunsEnd(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	for _, id := range []entities.RunID{pausedRun, "wrun_open"} {
		r.insertRun(t, id, "order")
		if _, err := r.Pause(t.Context(), project, hold.Subject{Kind: hold.Run, Name: string(id)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.Exec(t, `UPDATE runs SET status = 'cancelled', completed_at = now(), end_seq = 1 WHERE id = $1`, pausedRun)
	r.newWorker(t).deleteExpired(t.Context())
	list, err := hold.List(t.Context(), r.pool, project)
	if err != nil || len(list) != 1 || list[0].Name != "wrun_open" {
		t.Errorf("pauses: %v, %v, want that of the open run", list, err)
	}
}

// TestManyHeldMessagesCostNothing: no search for due messages reads those that are held, however many there are, nor
// does a search for pauses.
func TestManyHeldMessagesCostNothing(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.Exec(t, `INSERT INTO pauses (project, kind, name, paused_by) SELECT $1, 'run', i::text, '' FROM generate_series(1, $2) i`,
		project, hold.Max)
	r.Exec(t, `
		INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, held_by,
			unreached_count, last_error)
		SELECT 'msg_' || i, $1, 't', $2, '', '', now(), `+hold.Until+`, 1 + i % 1000, 1, 'failed'
		FROM generate_series(1, 30000) i`, project, deployment)
	r.Exec(t, `ANALYZE`)
	const few = 60
	for what, plan := range map[string]string{
		"due messages": r.explain(t, demandsSQL),
		"messages for an app that asks": r.explain(t, claimGivenBackSQL, project, deployment, promptDisconnects,
			make([]string, 10), PulledLease, PulledURL, maxPulledBytes),
		"messages for a deployment that registers": r.explain(t, `SELECT FROM messages WHERE project = $1 AND deployment_id = $2
			AND lease = '' AND parked_at IS NULL AND `+unreachedOnly+` AND due_at >= now() AND due_at < `+hold.Until+`
			ORDER BY due_at, id LIMIT 500`, project, deployment, promptDisconnects),
		"held messages": r.explain(t, `SELECT id FROM messages WHERE held_by = $1 ORDER BY id LIMIT $2`, 7, dueBatch),
	} {
		if n := blocks(t, plan); n > few {
			t.Errorf("%s: read %d blocks, want at most %d:\n%s", what, n, few, plan)
		}
	}
}
