package queue

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// minimal opens a replica in which nothing runs on its own: it has few connections, and its hub does not run.
func minimal(t *testing.T, dsn string) *replica {
	t.Helper()
	r := withoutHints(t, dsn)
	hub := pg.NewLocalHub()
	q, err := New(r.pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{pool: r.pool, hub: hub, Rows: testdb.In(r.pool), Queue: q}
}

func (r *replica) drainer(t *testing.T, configure ...func(*WorkerOptions)) *Drainer {
	t.Helper()
	o := WorkerOptions{
		Deliveries: 100, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: testdb.Timeout, Logger: slog.New(slog.DiscardHandler),
		Allowed: loopback(t),
	}
	for _, c := range configure {
		c(&o)
	}
	d := r.NewDrainer(o)
	t.Cleanup(d.Stop)
	return d
}

// drain drains until nothing is due.
func drain(t *testing.T, d *Drainer) Drained {
	t.Helper()
	return drainFor(t, d, testdb.Timeout, 0)
}

func drainFor(t *testing.T, d *Drainer, budget, linger time.Duration) Drained {
	t.Helper()
	started, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, err := started.Run(t.Context(), budget, linger)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// acknowledgingApp starts an app that acknowledges each message.
func acknowledgingApp(t *testing.T, r *replica) *app {
	t.Helper()
	return newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(t, c) })
}

// wantNothingLeft checks that no process is registered and no ticket is left.
func (r *replica) wantNothingLeft(t *testing.T) {
	t.Helper()
	for _, table := range []string{"messages", "processes", "river_job"} {
		if n := r.Count(t, `SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%s has %d rows, want none", table, n)
		}
	}
}

func TestDrainDeliversWhatIsDue(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	for range 3 {
		r.send(t)
	}
	d := r.drainer(t)
	if got := drain(t, d); got.Delivered != 3 || got.Failed != 0 || got.Due != 0 || got.NextDueAt != nil {
		t.Errorf("got %+v, want 3 delivered and nothing left", got)
	}
	r.wantNothingLeft(t)
	if got := drain(t, d); got.Delivered != 0 {
		t.Errorf("again: got %+v, want nothing delivered", got)
	}
}

func TestDrainDeliversWhatIsSentMeanwhile(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	left := 5
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		if left--; left > 0 { // each is sent after the previous one is acknowledged
			if _, err := r.Send(context.Background(), newMessage()); err != nil {
				t.Error(err)
			}
		}
		r.ack(t, c)
	})
	r.register(t, deployment, a.URL)
	r.send(t)
	if got := drain(t, r.drainer(t)); got.Delivered != 5 || got.Due != 0 {
		t.Errorf("got %+v, want 5 delivered", got)
	}
	r.wantNothingLeft(t)
}

func TestDrainReportsTheBacklog(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := newApp(t, status(http.StatusInternalServerError))
	r.register(t, deployment, a.URL)
	failing := r.send(t)
	r.send(t, delayed(time.Hour))
	got := drain(t, r.drainer(t))
	if got.Delivered != 1 || got.Failed != 1 || got.Due != 0 {
		t.Errorf("got %+v, want one delivery that failed", got)
	}
	var due time.Time
	r.Scan(t, `SELECT due_at FROM messages WHERE id = $1`, []any{failing}, &due)
	if got.NextDueAt == nil || !got.NextDueAt.Equal(due) {
		t.Errorf("next is due at %v, want %s: the end of the backoff", got.NextDueAt, due)
	}
}

func TestDrainLingers(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	r.send(t, delayed(time.Hour))
	d := r.drainer(t)
	if got := drain(t, d); got.Delivered != 0 || got.NextDueAt == nil {
		t.Errorf("got %+v, want nothing delivered yet", got)
	}
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '1 s'`)
	if got := drainFor(t, d, testdb.Timeout, 2*time.Second); got.Delivered != 1 {
		t.Errorf("lingering: got %+v, want one delivered", got)
	}
}

func TestDrainsShareOneSession(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	const racers = 16
	all, most := make(chan struct{}), 0
	var once sync.Once
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		<-all
		once.Do(func() { most = r.Count(t, `SELECT count(*) FROM processes`) })
		r.ack(t, c)
	})
	r.register(t, deployment, a.URL)
	for range racers {
		r.send(t)
	}
	d := r.drainer(t)
	var started, done sync.WaitGroup
	started.Add(racers)
	for range racers {
		done.Go(func() {
			drain, err := d.StartDrain(context.Background())
			started.Done()
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := drain.Run(context.Background(), testdb.Timeout, 0); err != nil || got.Due != 0 {
				t.Errorf("got %+v and %v, want nothing due", got, err)
			}
		})
	}
	started.Wait()
	close(all)
	done.Wait()
	if most != 1 {
		t.Errorf("%d processes were registered at once, want 1", most)
	}
	if n := len(a.calls); n != racers {
		t.Errorf("%d calls, want %d: each message once", n, racers)
	}
	r.wantNothingLeft(t)
}

// TestEachMessageIsWantedOrDrained: a message made due while no drain runs is reported as wanted; any other is
// delivered by the drain that runs.
func TestEachMessageIsWantedOrDrained(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	d := r.drainer(t)
	drain(t, d) // registering the deployment has signaled, too
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 12 {
				if _, err := r.Send(context.Background(), newMessage()); err != nil {
					t.Error(err)
				}
				if !d.Wanted() {
					continue
				}
				drain, err := d.StartDrain(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := drain.Run(context.Background(), testdb.Timeout, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.wantNothingLeft(t)
	if n := len(a.calls); n != 96 {
		t.Errorf("%d calls, want 96", n)
	}
	if d.Wanted() {
		t.Error("a drain is wanted although nothing is left")
	}
}

func TestWantedReportsMessagesNoDrainWillSee(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	d := r.drainer(t)
	id := r.send(t)
	if !d.Wanted() {
		t.Error("after a message: not wanted")
	}
	if d.Wanted() {
		t.Error("wanted twice for one message")
	}
	r.send(t, delayed(time.Hour))
	if d.Wanted() {
		t.Error("wanted for a message that is not due")
	}
	r.Exec(t, `UPDATE messages SET last_error = 'x' WHERE id = $1`, id)
	if _, err := r.Retry(t.Context(), project, id); err != nil {
		t.Fatal(err)
	}
	if !d.Wanted() {
		t.Error("after a retry: not wanted")
	}
	r.register(t, deployment, "http://127.0.0.1:1")
	if !d.Wanted() {
		t.Error("after a deployment was registered: not wanted")
	}
}

// TestDrainTakesOverFromTheDead: the drain stays until it can decide that the process is dead.
func TestDrainTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	id := r.send(t)
	r.Exec(t, `INSERT INTO processes (id, host, session_key, beat_at) VALUES ('dead', 'h', 1, now() - interval '3 s')`)
	r.Exec(t, `DELETE FROM river_job`)
	r.Exec(t, `
		UPDATE messages SET lease = 'rh', holder = 'dead', ticket = 2, delivery_count = 1, due_at = now() + interval '5 min'
		WHERE id = $1`, id)
	if got := drain(t, r.drainer(t)); got.Delivered != 1 {
		t.Errorf("got %+v, want one delivered", got)
	}
	if count := a.next(t).count(); count != "1" {
		t.Errorf("it was delivery %s, want 1: the lost one does not count", count)
	}
	r.wantNothingLeft(t)
}

// TestStopEndsDrains: when the server stops, running drains end and new ones are refused.
func TestStopEndsDrains(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	d := r.drainer(t)
	started, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := started.Run(t.Context(), time.Hour, time.Hour); err != nil {
			t.Error(err)
		}
	}()
	d.Stop()
	testdb.Receive(t, "the drain's end", ended)
	_, err = d.StartDrain(t.Context())
	testdb.WantError(t, "another one", err, ErrStopping)
	r.wantNothingLeft(t)
}

// TestStartDrainFailsWithoutDatabase also checks that later drains do not wait for the failed one.
func TestStartDrainFailsWithoutDatabase(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	d := r.drainer(t)
	r.Exec(t, `ALTER TABLE processes RENAME TO away`)
	for range 2 {
		if _, err := d.StartDrain(t.Context()); err == nil {
			t.Fatal("the drain started")
		}
	}
	r.Exec(t, `ALTER TABLE away RENAME TO processes`)
	drain(t, d)
	r.wantNothingLeft(t)
}

// TestDrainDeletesExpiredRows: drains run the periodic tasks for which workers have timers.
func TestDrainDeletesExpiredRows(t *testing.T) {
	t.Parallel()
	r := minimal(t, testdb.New(t))
	id := r.send(t, keyed("k"))
	if err := r.Discard(t.Context(), project, id); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		VALUES ('p', 'd', 't', 'k', 'm', now() - interval '1 h')`)
	r.Exec(t, `UPDATE sweeper SET due_at = now()`)
	drain(t, r.drainer(t))
	r.Want(t, "keys are left", 0, `SELECT count(*) FROM message_keys`)
	r.Want(t, "passes of the sweeper", 1, `SELECT count(*) FROM sweeper WHERE due_at > now()`)
}
