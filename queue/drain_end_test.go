package queue

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestDrainsEndWithinBudgetAndGrace: a call that takes longer than the budget and the grace period is canceled, but the
// function keeps its lease and can still acknowledge the message.
func TestDrainsEndWithinBudgetAndGrace(t *testing.T) {
	t.Parallel()
	for budget := time.Second; !endsWithin(t, budget); budget *= 4 { // on a busy machine, a drain ends before its call
		if budget > testdb.Timeout {
			t.Fatal("no drain made a call")
		}
	}
}

// endsWithin drains with a budget, and reports whether that sufficed to make a call.
func endsWithin(t *testing.T, budget time.Duration) bool {
	t.Helper()
	r := minimal(t, testdb.New(t))
	a := newApp(t, func(_ http.ResponseWriter, req *http.Request, _ call) { <-req.Context().Done() })
	r.register(t, deployment, a.URL)
	id := r.send(t)
	waiting := r.send(t)
	d := r.drainer(t, func(o *WorkerOptions) { o.Grace, o.Deliveries = 2*time.Second, 1 })
	got := drainFor(t, d, budget, 0)
	if len(a.calls) == 0 {
		return false
	}
	if got.Delivered != 1 || got.Failed != 0 || got.Due != 1 || got.NextDueAt != nil {
		t.Errorf("got %+v, want one delivery, which did not fail, and one due", got)
	}
	if err := r.Discard(t.Context(), project, waiting); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `DELETE FROM river_job`)
	s := r.stored(t, id)
	if s.Lease == "" || s.Wait > leftLease {
		t.Errorf("got %+v, want it leased for at most %s", s, leftLease)
	}
	if err := r.Acknowledge(t.Context(), project, topic, s.Lease); err != nil {
		t.Errorf("acknowledge afterwards: %v", err)
	}
	r.wantNothingLeft(t)
	return true
}

// runDrain runs a started drain in the background.
func runDrain(t *testing.T, started *Drain, budget time.Duration) <-chan Drained {
	t.Helper()
	ended := make(chan Drained, 1)
	go func() {
		done, err := started.Run(context.WithoutCancel(t.Context()), budget, 0)
		if err != nil {
			t.Error(err)
		}
		ended <- done
	}()
	return ended
}

// waitForLastDrain waits until the last drain is about to end the session.
func waitForLastDrain(t *testing.T, d *Drainer) {
	t.Helper()
	testdb.Eventually(t, "the drain leaves", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.users == 0
	})
}

// TestDrainDeliversMessagesSentWhileItsSessionEnds checks that the drain starts another session for such a message.
func TestDrainDeliversMessagesSentWhileItsSessionEnds(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	d := r.drainer(t)
	started, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM processes FOR UPDATE`); err != nil { // it cannot deregister
		t.Fatal(err)
	}
	ended := runDrain(t, started, testdb.Timeout)
	waitForLastDrain(t, d)
	r.send(t)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := testdb.Receive(t, "the drain's end", ended); got.Delivered != 1 || got.Due != 0 {
		t.Errorf("got %+v, want one delivered", got)
	}
}

// TestDrainUsesTheTicketsItTook covers the tickets of a poll that was in progress when the budget ended.
func TestDrainUsesTheTicketsItTook(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	r.send(t)
	r.issue(t)
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE river_job IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	d := r.drainer(t)
	started, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testdb.Eventually(t, "it reads", func() bool {
		return r.Count(t, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%taken%'`) == 1
	})
	ended := runDrain(t, started, 0)
	waitForLastDrain(t, d)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := testdb.Receive(t, "the drain's end", ended); got.Delivered != 1 || got.Due != 0 {
		t.Errorf("got %+v, want one delivered", got)
	}
}

// TestDrainCancelsTheSweeperAtItsEnd: a sweep in progress, which may include a long retention pass, keeps a drain
// waiting no longer than its grace period.
func TestDrainCancelsTheSweeperAtItsEnd(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	d := r.drainer(t, func(o *WorkerOptions) { o.Grace = 50 * time.Millisecond })
	started := make(chan struct{}, 1)
	d.worker.sweeper.AfterPass = func(ctx context.Context) {
		started <- struct{}{}
		select {
		case <-ctx.Done():
		case <-time.After(testdb.Timeout):
			t.Error("the drain waited for the sweep")
		}
	}
	for deadline := time.Now().Add(testdb.Timeout); len(started) == 0; { // on a busy machine, a drain ends before its sweep
		if time.Now().After(deadline) {
			t.Fatal("no sweep began")
		}
		drainFor(t, d, time.Second, time.Second)
	}
}
