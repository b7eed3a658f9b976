package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// until is a preparation that leaves the run waiting until its wait is over.
func until(prepare preparation) preparation {
	return func(b *cachingServer, t *testing.T, home *server) *runUnderWay {
		t.Helper()
		m := prepare(b, t, home)
		m.due = home.awaitDue(t, m.run.ID)
		return m
	}
}

// awaitDue waits until the message of a run is due, and returns when that was.
func (d *server) awaitDue(t *testing.T, id entities.RunID) (due time.Time) {
	t.Helper()
	d.Scan(t, `SELECT due_at FROM (
		SELECT due_at, pg_sleep_until(due_at) FROM messages WHERE run_id = $1 AND work = 'run' OFFSET 0) AS m`,
		[]any{id}, &due)
	return due
}

// wake wakes a run whose wait is over.
func wake(ctx context.Context, b *cachingServer, m *runUnderWay) error {
	return b.wake(ctx, m.run.ID, m.due)
}

func (d *server) wake(ctx context.Context, id entities.RunID, due time.Time) error {
	_, err := d.log.Wake(ctx, message.Message{
		Project: project, DeploymentID: deployment, RunID: id, Topic: "order", Work: message.WorkRun,
	}, due, shortWaitOver{queue.Delivery{RunID: id}, shortWait{due: due}})
	return err
}

// waitsShortly serves a run that waits shortly, twice, and returns when its waits ended.
func waitsShortly(c *functionCall) {
	for _, id := range []string{"w0", "w1"} {
		if !c.has("wait_completed", id) {
			c.reply(object{"type": "wait", "id": id, "for": "20ms"})
			return
		}
	}
	c.reply(object{"type": "complete"})
}

// TestShortWaitIsEndedByItsProcess: without tickets, which nobody issues here, and by one statement.
func TestShortWaitIsEndedByItsProcess(t *testing.T) {
	t.Parallel()
	s := statementCounter{parts: map[string]int{
		"UPDATE runs": 0, "INTO events": 0, "INTO waits": 0, "UPDATE waits": 0, "FROM messages": 0, "COMMIT": 0,
		"river_job": 0,
	}}
	r := newReplica(t, testdb.New(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = &s })
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	d := &server{r, log, New(r.Queue, log)}
	d.register(t, deployment, serve(t, waitsShortly).URL)
	w := d.newWorker(t, d.works)
	d.onRecord(t, w.ProcessID()) // the worker does not run
	d.Attach(w)
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	d.Want(t, "transactions", 6, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1`, id)
	d.Want(t, "waits that ended early", 0, `
		SELECT count(*) FROM events e JOIN events w USING (run_id, correlation_id)
		WHERE e.type = 'wait_completed' AND w.type = 'wait_created' AND e.created_at < (w.data ->> 'resumeAt')::timestamptz`)
	s.mu.Lock()
	defer s.mu.Unlock()
	for part, n := range map[string]int{
		"UPDATE runs": 5, "INTO events": 6, "INTO waits": 2, "UPDATE waits": 2, "COMMIT": 0, "river_job": 0,
	} {
		if s.parts[part] != n {
			t.Errorf("%d statements contain %q, want %d", s.parts[part], part, n)
		}
	}
}

// TestShortWaitOutlivesItsProcess: another server wakes the run.
func TestShortWaitOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	dead, live := idleServer(t, dsn), newServer(t, dsn)
	w := dead.newWorker(t)
	dead.onRecord(t, w.ProcessID())
	live.register(t, deployment, serve(t, waitsShortly).URL)
	id := dead.startRun(t, `null`)
	work := dead.claim(t, message.WorkRun, "")
	run, _, err := dead.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	forgotten := make(chan entities.RunID, 1)
	dead.runs.shortWaits.wake = func(d queue.Delivery, _ shortWait) { forgotten <- d.RunID } // it has died
	dead.Attach(w)
	err = dead.runs.answer(t.Context(), work, run, []byte(`{"commands":[{"type":"wait","id":"w0","for":"20ms"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	testdb.Receive(t, "the end of the wait", forgotten)
	live.worker(t, live.works)
	live.wantEnd(t, id, entities.RunCompleted, `null`)
}

// TestWaitIsNotEndedEarly: a process whose clock is wrong is refused.
func TestWaitIsNotEndedEarly(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	s.register(t, deployment, serve(t, func(c *functionCall) {
		c.reply(object{"type": "wait", "id": "w0", "for": "1h"})
	}).URL)
	s.worker(t, s.works)
	id := s.startRun(t, `null`)
	testdb.Eventually(t, "the run waits", func() (waits bool) {
		s.Scan(t, `SELECT count(*) = 1 FROM messages WHERE run_id = $1 AND lease = ''`, []any{id}, &waits)
		return waits
	})
	var due time.Time
	s.Scan(t, `SELECT due_at FROM messages WHERE run_id = $1`, []any{id}, &due)
	testdb.WantError(t, "an early end", s.wake(t.Context(), id, due), message.ErrStale)
	s.Want(t, "waits that have ended", 0, `SELECT count(*) FROM waits WHERE run_id = $1 AND status <> 'waiting'`, id)
}

// TestShortWaitsAreBounded: for the process and for each project, and one that has ended gives its place back.
func TestShortWaitsAreBounded(t *testing.T) {
	t.Parallel()
	woken := make(chan entities.RunID, maxShortWaits)
	n := newShortWaits(time.Now, func(d queue.Delivery, _ shortWait) { woken <- d.RunID })
	begin := func(p entities.Project, id int, wait time.Duration) bool {
		return n.begin(queue.Delivery{Project: p, RunID: entities.RunID(fmt.Sprint(id))}, shortWait{wait: wait})
	}
	kept := 0
	for begin("a", kept, time.Hour) {
		kept++
	}
	if kept < maxShortWaits/2 || kept >= maxShortWaits {
		t.Errorf("a project has %d, want some of %d left", kept, maxShortWaits)
	}
	if !begin("b", maxShortWaits, time.Nanosecond) {
		t.Error("another project has none")
	}
	if id := testdb.Receive(t, "the run that wakes", woken); id != entities.RunID(fmt.Sprint(maxShortWaits)) {
		t.Errorf("run %s wakes", id)
	}
	for id := range kept {
		for range 2 { // the second does nothing
			n.end(queue.Delivery{Project: "a", RunID: entities.RunID(fmt.Sprint(id))})
		}
	}
	testdb.Eventually(t, "all places are free", func() bool { return n.slots.Room("a", shortWaitsFactor) == int64(kept) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.timers) > 0 {
		t.Errorf("%d are left", len(n.timers))
	}
}
