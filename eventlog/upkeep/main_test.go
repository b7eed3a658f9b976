package upkeep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"

	// testTimeout limits each wait of a test. Only a failing test reaches it.
	testTimeout = time.Minute
	// racers is the number of concurrent callers in a race.
	racers = 16
)

var (
	// day is the time at which the tests take place.
	day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	// theRun stands for the run under test in requests; [fixture.run] replaces it.
	theRun = newRunID()

	errBroken = errors.New("broken on purpose")
)

func ptr[T any](v T) *T { return &v }

// clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// noQueue discards messages.
type noQueue struct{}

func (noQueue) Enqueue(
	context.Context, pgx.Tx, *pgx.Batch, []message.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	return nil, func(error) {}, nil
}

func (noQueue) EnqueueOptimistic(
	*pg.Conditional, []message.Message,
) ([]*eventlog.InlineStart, func(error), bool) {
	return nil, func(error) {}, true
}

// fixture is a log and its maintenance on a database of their own.
type fixture struct {
	*eventlog.Log
	*Maintainer
	hub   *pg.Hub
	clock *clock
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool := testdb.Pool(t)
	c := &clock{at: day}
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	return &fixture{
		Log: eventlog.New(pool, hub, noQueue{}, c.now), Maintainer: NewMaintainer(pool, c.now), hub: hub, clock: c,
	}
}

func newRunID() entities.RunID {
	return entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(day), rand.Reader).String())
}

func runCreated(id entities.RunID) eventlog.Request {
	return eventlog.Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: 3, Payload: []byte("input"),
		Data: entities.EventData{DeploymentID: "dpl_1", WorkflowName: "order"},
	}
}

func onRun(id entities.RunID, event entities.EventType) eventlog.Request {
	return eventlog.Request{RunID: id, Type: event, SpecVersion: 3}
}

// on is the smallest valid request for an event of a step, hook or wait, or for an attr_set with an ID.
func on(id entities.RunID, event entities.EventType, correlationID string) eventlog.Request {
	r := onRun(id, event)
	r.CorrelationID = correlationID
	switch event {
	case entities.EventStepCreated:
		r.Data.StepName, r.Payload = "charge", []byte("step input")
	case entities.EventHookCreated:
		r.Data.Token = "token of " + string(id) + " " + correlationID
	case entities.EventWaitCreated:
		r.Data.ResumeAt = ptr(day.Add(time.Hour))
	case entities.EventAttrSet:
		r.Data.Changes = []entities.AttributeChange{{Key: "k", Value: ptr("v")}}
	default: // the others need nothing
	}
	return r
}

func hookCreated(id entities.RunID, hookID, token string) eventlog.Request {
	r := on(id, entities.EventHookCreated, hookID)
	r.Data.Token = token
	return r
}

// must appends and fails the test if that is refused.
func (f *fixture) must(t testing.TB, r eventlog.Request) {
	t.Helper()
	if _, err := f.Append(t.Context(), home, r); err != nil {
		t.Fatalf("append %s %s: %v", r.Type, r.CorrelationID, err)
	}
}

// run creates a run and appends requests that were made for theRun.
func (f *fixture) run(t testing.TB, requests ...eventlog.Request) entities.RunID {
	t.Helper()
	id := newRunID()
	f.must(t, runCreated(id))
	for _, r := range requests {
		if r.Data.Token == on(theRun, r.Type, r.CorrelationID).Data.Token {
			r.Data.Token = on(id, r.Type, r.CorrelationID).Data.Token // tokens are unique in a project
		}
		r.RunID = id
		f.must(t, r)
	}
	return id
}

// full creates a live run that has one of everything.
func (f *fixture) full(t *testing.T) entities.RunID {
	t.Helper()
	retry := on(theRun, entities.EventStepRetrying, "s3")
	retry.Data.RetryAfter = ptr(day.Add(-1))
	return f.run(t, onRun(theRun, entities.EventRunStarted), on(theRun, entities.EventAttrSet, "a1"),
		on(theRun, entities.EventStepCreated, "s1"), on(theRun, entities.EventStepCreated, "s2"),
		on(theRun, entities.EventStepCreated, "s3"), on(theRun, entities.EventStepStarted, "s1"),
		on(theRun, entities.EventStepStarted, "s2"), on(theRun, entities.EventStepCompleted, "s1"), retry,
		on(theRun, entities.EventHookCreated, "h1"), on(theRun, entities.EventHookReceived, "h1"),
		on(theRun, entities.EventWaitCreated, "w1"), on(theRun, entities.EventWaitCreated, "w2"),
		on(theRun, entities.EventWaitCompleted, "w2"))
}

// ended creates a run that had one of everything, and whose running step reported after the end.
func (f *fixture) ended(t *testing.T) entities.RunID {
	t.Helper()
	id := f.full(t)
	failed := onRun(id, entities.EventRunFailed)
	failed.Data.ErrorCode = "USER_ERROR"
	f.must(t, failed)
	f.must(t, on(id, entities.EventStepCompleted, "s2"))
	return id
}

// refused appends and fails the test unless that is refused with the error.
func (f *fixture) refused(t *testing.T, r eventlog.Request, want error) {
	t.Helper()
	result, err := f.Append(t.Context(), home, r)
	if !errors.Is(err, want) || result.Event != nil {
		t.Errorf("append %s %s: got event %v, error %v; want only %v", r.Type, r.CorrelationID, result.Event, err, want)
	}
}

func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// events reads the log of a run. None has more events than two pages.
func (f *fixture) events(t *testing.T, id entities.RunID) []entities.Event {
	t.Helper()
	var all []entities.Event
	for page := (pg.Page{Limit: pg.MaxPage}); ; page.Cursor = read.EventCursor(all[len(all)-1]) {
		got, err := f.Events(t.Context(), home, id, page, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, got.Events...); !got.More {
			return all
		}
	}
}

// fold applies a log to an empty snapshot.
func fold(events []entities.Event) *eventlog.Snapshot {
	s := eventlog.NewSnapshot(home)
	for _, e := range events {
		s.Apply(&e)
	}
	return s
}

// rows reads the run and its entities from their tables. It fails the test unless the rows of the run's attributes
// equal the attributes in the run's own row.
func (f *fixture) rows(t *testing.T, id entities.RunID) *eventlog.Snapshot {
	t.Helper()
	s := eventlog.NewSnapshot(home)
	run, err := store.RunByID(t.Context(), f.pool, home, id)
	if err != nil {
		t.Fatal(err)
	}
	s.Run = &run
	var same bool
	if err := f.pool.QueryRow(t.Context(), `
		SELECT coalesce(jsonb_object_agg(a.key, a.value) FILTER (WHERE a.key IS NOT NULL), '{}') = r.attributes
			AND coalesce(bool_and((a.project, a.workflow_name, a.created_at) = (r.project, r.workflow_name, r.created_at)), true)
		FROM runs r LEFT JOIN run_attributes a ON a.run_id = r.id
		WHERE r.id = $1 GROUP BY r.id`, id).Scan(&same); err != nil {
		t.Fatal(err)
	}
	if !same {
		t.Fatalf("the attribute rows of %s differ from the run's: %v", id, run.Attributes)
	}
	for _, step := range entityRows[entities.Step](t, f.pool, "steps", id) {
		s.Steps[step.ID] = step
	}
	for _, hook := range entityRows[entities.Hook](t, f.pool, "hooks", id) {
		s.Hooks[hook.ID] = hook
	}
	for _, wait := range entityRows[entities.Wait](t, f.pool, "waits", id) {
		s.Waits[wait.ID] = wait
	}
	return s
}

func entityRows[T any](t *testing.T, pool *pgxpool.Pool, table string, id entities.RunID) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), fmt.Sprintf(`SELECT * FROM %s WHERE run_id = $1`, table), id)
	if err != nil {
		t.Fatal(err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// race calls fn at the same moment from n goroutines.
func race(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	running.Wait()
	return errs
}

// waitForLock returns when a session of the database waits for a lock. The call behind done must not end before that.
func (f *fixture) waitForLock(t *testing.T, done <-chan error) {
	t.Helper()
	deadline := time.After(testTimeout)
	for waiting := 0; waiting == 0; {
		select {
		case err := <-done:
			t.Fatalf("the call did not wait for a lock, and got error %v", err)
		case <-deadline:
			t.Fatal("the call neither waits nor ends")
		default:
		}
		if err := f.pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}
