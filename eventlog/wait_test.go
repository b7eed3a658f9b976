package eventlog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// newLogOn returns the log of a new process.
func newLogOn(t *testing.T, dsn string) *fixture {
	t.Helper()
	pool := testdb.Connect(t, dsn)
	c := &clock{at: day}
	log := New(pool, newReplica(t, pool).hub, noQueue{}, c.now)
	log.EndPoll = time.Hour // so that only notifications are noticed
	return &fixture{Log: log, clock: c}
}

// waitFor starts WaitForEnd. It returns, once that is waiting, a channel for the result.
func (f *fixture) waitFor(ctx context.Context, t *testing.T, id entities.RunID) <-chan entities.Run {
	t.Helper()
	ended := make(chan entities.Run, 1)
	go func() {
		run, err := f.WaitForEnd(t.Context(), ctx, home, id)
		if err != nil {
			t.Error(err)
		}
		ended <- run
	}()
	waitForSubscribers(t, f.hub, read.EndTopic(home, id), 1)
	return ended
}

// receiveRun returns the result of a wait. It fails the test if there is none for longer than a notification takes.
func receiveRun(t *testing.T, ended <-chan entities.Run) entities.Run {
	t.Helper()
	select {
	case run := <-ended:
		return run
	case <-time.After(testTimeout):
		t.Fatal("the end was not noticed")
		return entities.Run{}
	}
}

// wantHint fails the test unless a notification comes.
func wantHint(t *testing.T, hints <-chan struct{}) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(testTimeout):
		t.Fatal("no notification came")
	}
}

// waitForSubscribers returns when the topic has that many subscribers.
func waitForSubscribers(t *testing.T, h *pg.Hub, topic string, want int) {
	t.Helper()
	tick, deadline := time.NewTicker(time.Millisecond), time.After(testTimeout)
	defer tick.Stop()
	for got := -1; got != want; {
		got = h.Subscribers(topic)
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d subscribers of %q, want %d", got, topic, want)
		}
	}
}

func TestWaitForEndSeesEndFromOtherReplica(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	here, there := newLogOn(t, dsn), newLogOn(t, dsn)
	listening, cancel := here.hub.Subscribe("listening")
	defer cancel()
	wantHint(t, listening) // it gets notifications of other processes from now on
	ends := map[string]func(entities.RunID) error{
		"run_completed": nil, "run_failed": nil, "run_cancelled": nil,
		"a batch": func(id entities.RunID) error {
			_, err := there.AppendBatch(t.Context(), home, id, []Request{step("step_completed"), completed})
			return err
		},
	}
	for name, end := range ends {
		if end == nil {
			end = func(id entities.RunID) error {
				_, err := there.Append(t.Context(), home, onRun(id, entities.EventType(name)))
				return err
			}
		}
		id := there.run(t, started, step("step_created"))
		ended := here.waitFor(t.Context(), t, id)
		// Other notifications do not end the wait.
		there.must(t, on(id, "step_started", "step_1"))
		if err := end(id); err != nil {
			t.Fatal(err)
		}
		run := receiveRun(t, ended)
		if !run.Status.Ended() || run.CompletedAt == nil {
			t.Errorf("%s: got a run that is %s", name, run.Status)
		}
		waitForSubscribers(t, here.hub, read.EndTopic(home, id), 0)
	}
}

func TestManyWaitersSeeOneEnd(t *testing.T) {
	t.Parallel()
	f := newLogOn(t, testdb.New(t))
	id := f.run(t, started)
	var waits []<-chan entities.Run
	for i := range racers {
		ended := make(chan entities.Run, 1)
		go func() {
			run, err := f.WaitForEnd(t.Context(), t.Context(), home, id)
			if err != nil {
				t.Error(err)
			}
			ended <- run
		}()
		waitForSubscribers(t, f.hub, read.EndTopic(home, id), i+1)
		waits = append(waits, ended)
	}
	f.must(t, onRun(id, "run_completed"))
	for i, ended := range waits {
		if run := receiveRun(t, ended); run.Status != entities.RunCompleted {
			t.Errorf("waiter %d got a run that is %s", i, run.Status)
		}
	}
}

func TestWaitForEndReturnsOpenRunAtDeadline(t *testing.T) {
	t.Parallel()
	f := newLogOn(t, testdb.New(t))
	id := f.run(t)
	t.Run("returns the open run at the deadline", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := f.waitFor(ctx, t, id)
		f.must(t, onRun(id, "run_started"))
		cancel()
		if run := <-ended; run.Status != entities.RunRunning {
			t.Errorf("got a run that is %s, want running", run.Status)
		}
		waitForSubscribers(t, f.hub, read.EndTopic(home, id), 0)
	})
	t.Run("does not wait after the deadline", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		run, err := f.WaitForEnd(t.Context(), ctx, home, id)
		if err != nil || run.Status != entities.RunRunning {
			t.Errorf("got %s and error %v, want a running run", run.Status, err)
		}
	})
	t.Run("fails at once if the run is missing", func(t *testing.T) {
		for project, missing := range map[entities.Project]entities.RunID{home: newRunID(), stranger: id} {
			if _, err := f.WaitForEnd(t.Context(), t.Context(), project, missing); !errors.Is(err, entities.ErrRunNotFound) {
				t.Errorf("%s: got error %v, want ErrRunNotFound", project, err)
			}
			waitForSubscribers(t, f.hub, read.EndTopic(project, missing), 0)
		}
	})
	t.Run("fails if the database fails", func(t *testing.T) {
		pool := testdb.Pool(t)
		log := New(pool, f.hub, noQueue{}, f.clock.now)
		pool.Close()
		if _, err := log.WaitForEnd(t.Context(), t.Context(), home, id); err == nil {
			t.Error("got no error from a closed pool")
		}
		waitForSubscribers(t, f.hub, read.EndTopic(home, id), 0)
	})
}

func TestWaitForEndReturnsEndedRunAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // its hub does not run
	id := f.run(t, started, failed)
	run, err := f.WaitForEnd(t.Context(), t.Context(), home, id)
	if err != nil || run.Status != entities.RunFailed {
		t.Errorf("got %s and error %v, want a failed run", run.Status, err)
	}
}

// TestWaitForEndPollsWithoutNotifications ends a run in a process whose notifications get lost.
func TestWaitForEndPollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	here := newLogOn(t, dsn)
	here.EndPoll = 50 * time.Millisecond
	listening, cancel := here.hub.Subscribe("listening")
	defer cancel()
	wantHint(t, listening) // the initial notification, which covers all before, has come
	mute := &fixture{Log: New(here.pool, pg.NewHub(nil, "mute", nil), noQueue{}, here.clock.now), clock: here.clock}
	id := mute.run(t, started)
	ended := here.waitFor(t.Context(), t, id)
	mute.must(t, onRun(id, "run_completed"))
	if run := receiveRun(t, ended); run.Status != entities.RunCompleted {
		t.Errorf("got a run that is %s", run.Status)
	}
}

// TestWaitForEndSeesEndDuringFirstRead: subscribing before the first read misses nothing. The notification comes before
// the wait.
func TestWaitForEndSeesEndDuringFirstRead(t *testing.T) {
	t.Parallel()
	f := newLogOn(t, testdb.New(t))
	for range 20 {
		id := f.run(t, started)
		var both sync.WaitGroup
		both.Go(func() {
			if run, err := f.WaitForEnd(t.Context(), t.Context(), home, id); err != nil || !run.Status.Ended() {
				t.Errorf("got %s and error %v", run.Status, err)
			}
		})
		both.Go(func() { f.must(t, onRun(id, "run_cancelled")) })
		both.Wait()
	}
}

// TestWaitForEndStopsWaitingForConnection: a cancelled wait does not go on waiting for a connection.
func TestWaitForEndStopsWaitingForConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	config := f.pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := New(pool, f.hub, noQueue{}, f.clock.now).WaitForEnd(ctx, t.Context(), home, id)
		done <- err
	}()
	waitForSubscribers(t, f.hub, read.EndTopic(home, id), 1)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("it is still waiting")
	}
}

func TestWatchEndReturnsWhenRunEnds(t *testing.T) {
	t.Parallel()
	f := newLogOn(t, testdb.New(t))
	watch := func(ctx context.Context, id entities.RunID) <-chan error {
		over := make(chan error, 1)
		go func() { over <- f.WatchEnd(ctx, home, id) }()
		waitForSubscribers(t, f.hub, read.EndTopic(home, id), 1)
		return over
	}
	id := f.run(t, started)
	over := watch(t.Context(), id)
	f.must(t, on(id, "step_created", "step_1")) // does not notify of an end
	f.must(t, onRun(id, "run_completed"))
	if err := <-over; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over = watch(ctx, f.run(t, started))
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that of the context", err)
	}
	f.EndPoll = time.Millisecond
	for what, id := range map[string]entities.RunID{"has ended": id, "is not there": entities.NewRunID(day)} {
		if err := f.WatchEnd(t.Context(), home, id); err != nil { // no notification comes
			t.Errorf("a run that %s: got %v", what, err)
		}
	}
}
