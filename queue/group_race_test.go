package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// shares is a tracer that records which statements share transactions, and deadlocks.
type shares struct {
	mu        sync.Mutex
	mixed     int
	deadlocks []error
}

func (s *shares) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	kinds := map[string]bool{}
	for _, q := range d.Batch.QueuedQueries {
		for _, kind := range []string{"DELETE FROM messages m", "INTO message_keys", "INTO events"} {
			if strings.Contains(q.SQL, kind) {
				kinds[kind] = true
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(kinds) == 3 {
		s.mixed++
	}
	return ctx
}

func (s *shares) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s.note(d.Err)
}
func (s *shares) TraceBatchEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	s.note(d.Err)
}
func (s *shares) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	s.note(d.Err)
}
func (s *shares) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (s *shares) note(err error) {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "40P01" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deadlocks = append(s.deadlocks, err)
	}
}

// acknowledgeTwice acknowledges a call through both replicas, of which exactly one succeeds.
func acknowledgeTwice(t *testing.T, replicas [2]*replica, c call) {
	t.Helper()
	errs := race(2, func(i int) error {
		return replicas[i].Acknowledge(context.Background(), project, c.topic(), c.handle())
	})
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), message.ErrLeaseNotFound) {
		t.Errorf("%s: the acknowledgements got %v, want one success", c.id(), errs)
	}
}

// raceEvent returns the request that creates a run or one of its steps.
func raceEvent(id entities.RunID, step int) eventlog.Request {
	r := eventlog.Request{RunID: id, Type: entities.EventRunCreated, SpecVersion: 3, Payload: []byte("input")}
	r.Data = entities.EventData{DeploymentID: deployment, WorkflowName: "order"}
	if step > 0 {
		r.Type, r.CorrelationID = entities.EventStepCreated, fmt.Sprint("step_", step)
		r.Data = entities.EventData{StepName: "charge"}
	}
	return r
}

// contest has the operations of many racers in two processes, and their results.
type contest struct {
	replicas [2]*replica
	logs     [2]*eventlog.Log
	// runs are the runs that racers create: one for each round and group of four racers, two of each process.
	runs [][]entities.RunID
	// calls are the deliveries.
	calls *overlaps

	mu sync.Mutex
	// sent has the message ID by key, created the number of times each run was created.
	sent    map[string]string
	created map[entities.RunID]int
}

const raceRounds, raceKeys, racers = 10, 12, 48

// newContest starts the processes with an app that acknowledges each call twice.
func newContest(t *testing.T, tracer pgx.QueryTracer) *contest {
	t.Helper()
	c := &contest{
		calls: &overlaps{active: map[string]bool{}, seen: map[string]int{}},
		sent:  map[string]string{}, created: map[entities.RunID]int{},
	}
	for range raceRounds {
		var runs []entities.RunID
		for range racers / 4 {
			runs = append(runs, entities.NewRunID(time.Now()))
		}
		c.runs = append(c.runs, runs)
	}
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, call call) {
		c.calls.enter(t, call.id())
		defer c.calls.leave(call.id())
		acknowledgeTwice(t, c.replicas, call)
	})
	dsn := testdb.New(t)
	for i := range c.replicas {
		r := open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
		c.replicas[i] = r
		c.logs[i] = eventlog.New(r.pool, r.hub, r.Queue, time.Now, eventlog.WithGroup(r.Group()))
	}
	c.replicas[0].register(t, deployment, a.URL)
	for n := range raceKeys / 2 {
		c.replicas[0].hooked(t, hookedRun(n))
	}
	for _, r := range c.replicas {
		r.worker(t, func(o *WorkerOptions) { o.Deliveries = 1000 })
	}
	return c
}

func hookedRun(n int) entities.RunID { return entities.RunID(fmt.Sprint("wrun_hooked_", n)) }

// send sends messages with one of the round's keys, and with one of four keys that all rounds share. Half of the
// round's messages belong to runs with hooks.
func (c *contest) send(t *testing.T, racer, round int) {
	n := racer % raceKeys
	for key, run := range map[string]entities.RunID{
		fmt.Sprint("key_", (racer/2+round)%4): "", fmt.Sprint("key_", round, "_", n): hookedRun(n),
	} {
		id, err := c.replicas[racer%2].Send(context.Background(), newMessage(keyed(key), ofRun(run)))
		c.mu.Lock()
		if first, ok := c.sent[key]; err != nil || ok && first != id {
			t.Errorf("key %s stands for %s and %s; %v", key, first, id, err)
		}
		c.sent[key] = id
		c.mu.Unlock()
	}
}

// append creates a run that other racers also create, and adds an event of its own.
func (c *contest) append(t *testing.T, racer, round int) {
	log, run := c.logs[racer%2], c.runs[round][racer/4]
	_, err := log.Append(context.Background(), project, raceEvent(run, 0))
	if err != nil && !errors.Is(err, entities.ErrConflict) {
		t.Errorf("create %s: %v", run, err)
	}
	if err == nil {
		c.mu.Lock()
		c.created[run]++
		c.mu.Unlock()
	}
	if _, err := log.Append(context.Background(), project, raceEvent(run, 1+racer)); err != nil {
		t.Errorf("append to %s: %v", run, err)
	}
}

// TestGroupCommitUnderContention runs many senders with few keys, acknowledgements and appends in two processes
// concurrently. Each key gets one message, each message is delivered and acknowledged once, each run is created once,
// and no deadlock happens.
func TestGroupCommitUnderContention(t *testing.T) {
	t.Parallel()
	var watch shares
	c := newContest(t, &watch)
	race(racers, func(i int) any {
		for round := range raceRounds {
			c.send(t, i, round)
			c.append(t, i, round)
		}
		return nil
	})
	home := c.replicas[0]
	testdb.Eventually(t, "all messages are acknowledged", func() bool { return home.Count(t, `SELECT count(*) FROM messages`) == 0 })
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	for key, id := range c.sent {
		if n := c.calls.seen[id]; n != 1 {
			t.Errorf("message %s of key %s was delivered %d times, want once", id, key, n)
		}
	}
	if len(c.calls.seen) != len(c.sent) {
		t.Errorf("%d messages were delivered, and %d sent", len(c.calls.seen), len(c.sent))
	}
	for _, run := range slices.Concat(c.runs...) {
		got := home.Count(t, `SELECT coalesce(max(last_seq), 0) FROM runs WHERE id = $1`, run)
		if n := c.created[run]; n != 1 || got != 5 {
			t.Errorf("run %s was created %d times and has %d events, want once and 5", run, n, got)
		}
	}
	home.Want(t, "notes of seen events for runs", raceKeys/2, `SELECT count(*) FROM run_wakes WHERE acked_seq = 1`)
	watch.want(t)
}

// want checks that statements of all kinds shared a transaction, and that no deadlock happened.
func (s *shares) want(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d transactions had members of all kinds", s.mixed)
	if s.mixed == 0 {
		t.Error("no transaction had statements of all kinds")
	}
	for _, err := range s.deadlocks {
		t.Errorf("Postgres found %v", err)
	}
}
