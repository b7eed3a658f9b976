package pg

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// wantHint fails the test unless an item arrives.
func wantHint(t *testing.T, hints <-chan struct{}) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(deadline):
		t.Fatal("no item arrived")
	}
}

func TestHintsReachOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	here, there := runHub(t, testdb.Connect(t, dsn)), runHub(t, testdb.Connect(t, dsn))
	hints, cancel := there.Subscribe("topic")
	defer cancel()
	wantHint(t, hints) // the hub listens from now on
	here.Publish("topic")
	wantHint(t, hints)
}

// TestOverlongTopicDoesNotFailOtherHints: Postgres would refuse the whole batch. The topic still reaches its own
// process.
func TestOverlongTopicDoesNotFailOtherHints(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	here, there := runHub(t, testdb.Connect(t, dsn)), runHub(t, testdb.Connect(t, dsn))
	longest := strings.Repeat("x", maxTopic)
	hints, cancel := there.Subscribe("topic")
	defer cancel()
	longTopic, cancelLong := there.Subscribe(longest)
	defer cancelLong()
	wantHint(t, hints)
	wantHint(t, longTopic)
	overlong, cancelOverlong := here.Subscribe(longest + "x")
	defer cancelOverlong()
	here.Publish(longest + "x")
	here.Publish(longest)
	here.Publish("topic")
	wantHint(t, hints)
	wantHint(t, longTopic)
	wantHint(t, overlong) // in its own process
}

func TestHintsWithinAProcessNeedNoDatabase(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, "stepwell_test", nil)
	hints, cancel := hub.Subscribe("topic")
	hub.Publish("other")
	if len(hints) != 0 {
		t.Error("got an item for another topic")
	}
	hub.Publish("topic")
	hub.Publish("topic")
	check.Equal(t, "items", len(hints), 1)
	<-hints
	cancel()
	cancel() // a second call does nothing
	hub.Publish("topic")
	if len(hints) != 0 {
		t.Error("got an item after the end of the subscription")
	}
}

func TestSubscribersOfATopicAreIndependent(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, "stepwell_test", nil)
	one, cancelOne := hub.Subscribe("topic")
	two, cancelTwo := hub.Subscribe("topic")
	defer cancelTwo()
	cancelOne()
	hub.Publish("topic")
	if len(one) != 0 || len(two) != 1 {
		t.Errorf("got %d and %d items, want 0 and 1", len(one), len(two))
	}
}

// listen listens on a channel, as another program would, and returns a function that waits for the next payload.
func listen(t *testing.T, dsn, channel string) func() string {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), dsn))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	check.Value(conn.Exec(t.Context(), "LISTEN "+channel))(t)
	return func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		notification := check.Value(conn.WaitForNotification(ctx))(t)
		return notification.Payload
	}
}

func TestRepeatedHintsAreSentOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	pool := testdb.Connect(t, dsn)
	hub := NewHub(pool, "stepwell_test", nil) // not run: the test calls flush
	receive := listen(t, dsn, "stepwell_test")
	for range 1000 {
		hub.Publish("a")
		hub.Send(Hint{Channel: "stepwell_test", Topic: "b"})
		hub.Send(Hint{Channel: "elsewhere", Topic: "c"})
	}
	check.NoError(t, hub.flush(t.Context()))
	hub.Publish("last")
	check.NoError(t, hub.flush(t.Context()))
	var got []string
	for len(got) == 0 || got[len(got)-1] != "last" {
		got = append(got, receive())
	}
	slices.Sort(got[:len(got)-1])
	check.Equal(t, "notifications", got, []string{"a", "b", "last"})
}

func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, "stepwell_test", nil)
	for i := range maxTopics + 10 {
		hub.Send(Hint{Channel: "c", Topic: fmt.Sprint(i)})
	}
	check.Equal(t, "the outbox", len(hub.outbox), maxTopics)
}

func TestReconnectedHubWakesAllSubscribers(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	pool := testdb.Connect(t, dsn)
	hub := runHub(t, pool)
	hints, cancel := hub.Subscribe("topic")
	defer cancel()
	wantHint(t, hints) // the hub listens
	var killed int
	err := pool.QueryRow(t.Context(), `
		SELECT count(*) FROM (
			SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()
		) killed`).Scan(&killed)
	if err != nil || killed != 1 {
		t.Fatalf("ended %d listeners, error %v; want 1", killed, err)
	}
	wantHint(t, hints) // because the hub listens again
	other := runHub(t, pool)
	other.Publish("topic")
	wantHint(t, hints)
}

func TestFailedFlushReturnsAnErrorAndTheNextOneSucceeds(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	hub := NewHub(testdb.Connect(t, dsn), "stepwell_test", slog.New(slog.DiscardHandler))
	hub.Send(Hint{Channel: strings.Repeat("x", 100), Topic: "topic"}) // too long for Postgres
	if err := hub.flush(t.Context()); err == nil {
		t.Error("got no error for a channel that is too long")
	}
	receive := listen(t, dsn, "stepwell_test")
	hub.Publish("next")
	check.NoError(t, hub.flush(t.Context()))
	check.Equal(t, "received", receive(), "next")
}

func TestRunReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	hub := NewHub(pool, "stepwell_test", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	hints, unsubscribe := hub.Subscribe("topic")
	defer unsubscribe()
	done := make(chan struct{})
	go func() {
		hub.Run(ctx)
		close(done)
	}()
	wantHint(t, hints)
	cancel()
	select {
	case <-done:
	case <-time.After(deadline):
		t.Fatal("Run did not return")
	}
	check.Equal(t, "connections were not released", pool.Stat().AcquiredConns(), 0)
}

// TestLocalHubReachesOnlyItsOwnProcess: nothing is queued for other processes.
func TestLocalHubReachesOnlyItsOwnProcess(t *testing.T) {
	t.Parallel()
	hub := NewLocalHub()
	hints, cancel := hub.Subscribe("topic")
	defer cancel()
	for _, send := range []func(){
		func() { hub.Publish("topic") },
		func() { hub.Send(Hint{Channel: "another", Topic: "topic"}) },
	} {
		send()
		select {
		case <-hints:
		default:
			t.Error("got no hint")
		}
	}
	check.Equal(t, "hints in the outbox", len(hub.outbox), 0)
}
