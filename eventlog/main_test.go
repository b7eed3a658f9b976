package eventlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// Verify and Rebuild are those of package upkeep, which tests of this package cannot import: it imports this package.
// The external test package sets them. Verify returns the differences between the rows of a run and its log.
var (
	Verify  func(context.Context, *pgxpool.Pool, func() time.Time, entities.RunID) ([]string, error)
	Rebuild func(context.Context, *pgxpool.Pool, func() time.Time, entities.RunID) error
)

// tb is the part of testing.TB that the helpers use. *rapid.T implements it too.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

// day is the tests' time.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }

// clock shows the same time until it is moved.
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

// noQueue is an Enqueuer that accepts all messages and drops them.
type noQueue struct{}

func (noQueue) Enqueue(context.Context, pgx.Tx, *pgx.Batch, []message.Message) ([]*InlineStart, func(error), error) {
	return nil, func(error) {}, nil
}

func (noQueue) EnqueueOptimistic(*pg.Conditional, []message.Message) ([]*InlineStart, func(error), bool) {
	return nil, func(error) {}, true
}

// queueFunc is an Enqueuer that calls a function after the statements queued before it were executed.
type queueFunc func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error)

func (f queueFunc) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) ([]*InlineStart, func(error), error) {
	if err := pg.SendQueued(ctx, tx, before); err != nil {
		return nil, nil, err
	}
	ended, err := f(ctx, tx, before, messages)
	return nil, ended, err
}

func (queueFunc) EnqueueOptimistic(*pg.Conditional, []message.Message) ([]*InlineStart, func(error), bool) {
	return nil, nil, false
}

// fixture is a log on its own database.
type fixture struct {
	*Log
	clock *clock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := &clock{at: day}
	pool := testdb.Pool(t)
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)) // does not run: notifications stay in this process
	return &fixture{Log: New(pool, hub, noQueue{}, c.now), clock: c}
}

// with returns a log on the same database with another queue.
func (f *fixture) with(q Enqueuer) *Log { return New(f.pool, f.hub, q, f.clock.now) }

// newRunID returns the ID of a run that is created on the tests' day.
func newRunID() entities.RunID {
	return entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(day), rand.Reader).String())
}

// The requests of the tests. Each has only what its type requires.

func runCreated(id entities.RunID) Request {
	return Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: 3, Payload: []byte("input"),
		Data: entities.EventData{DeploymentID: "dpl_1", WorkflowName: "order"},
	}
}

// runRepaired returns a run_started that can create its run.
func runRepaired(id entities.RunID) Request {
	r := runCreated(id)
	r.Type = entities.EventRunStarted
	return r
}

func onRun(id entities.RunID, event entities.EventType) Request {
	return on(id, event, "")
}

func on(id entities.RunID, event entities.EventType, correlationID string) Request {
	r := Request{RunID: id, Type: event, CorrelationID: correlationID, SpecVersion: 3}
	switch event {
	case entities.EventStepCreated:
		r.Data.StepName, r.Payload = "charge", []byte("step input")
	case entities.EventHookCreated:
		r.Data.Token = "token of " + string(id) + " " + correlationID
	case entities.EventWaitCreated:
		r.Data.ResumeAt = ptr(day.Add(time.Hour))
	case entities.EventAttrSet:
		r.Data.Changes = []entities.AttributeChange{{Key: "k", Value: ptr("v")}}
	case entities.EventCancelRequested:
		r.Grace = time.Minute
	case entities.EventStoreSet:
		r.Payload = []byte(`{"k":1}`)
	default: // the others need no data
	}
	return r
}

func hookCreated(id entities.RunID, hookID, token string) Request {
	r := on(id, entities.EventHookCreated, hookID)
	r.Data.Token = token
	return r
}

// must appends the request, and fails the test if it is refused.
func (f *fixture) must(t tb, r Request) Result {
	t.Helper()
	result, err := f.Append(t.Context(), home, r)
	if err != nil {
		t.Fatalf("append %s %s: %v", r.Type, r.CorrelationID, err)
	}
	return result
}

// run creates a run and appends the requests to it.
func (f *fixture) run(t tb, events ...Request) entities.RunID {
	t.Helper()
	id := newRunID()
	f.must(t, runCreated(id))
	for _, r := range events {
		r = forRun(r, id)
		if got := f.must(t, r); got.Event == nil || got.Event.Type != r.Type {
			t.Fatalf("%s became %+v", r.Type, got.Event)
		}
	}
	return id
}

// forRun returns the request for another run. Its token becomes unique to that run, unless the request has a token of
// its own.
func forRun(r Request, id entities.RunID) Request {
	if r.Data.Token == on(theRun, r.Type, r.CorrelationID).Data.Token {
		r.Data.Token = on(id, r.Type, r.CorrelationID).Data.Token
	}
	r.RunID = id
	return r
}

// refused appends the request, and fails the test unless it is refused with the error.
func (f *fixture) refused(t tb, r Request, want error) {
	t.Helper()
	result, err := f.Append(t.Context(), home, r)
	if !errors.Is(err, want) {
		t.Errorf("append %s %s: got error %v, want %v", r.Type, r.CorrelationID, err, want)
	}
	if result.Event != nil {
		t.Errorf("append %s %s: got event %s beside the error", r.Type, r.CorrelationID, result.Event.Type)
	}
}

// events reads the whole log of a run of the home project.
func (f *fixture) events(t tb, id entities.RunID) []entities.Event {
	t.Helper()
	var all []entities.Event
	page := pg.Page{Limit: pg.MaxPage}
	for {
		got, err := f.Events(t.Context(), home, id, page, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got.Events...)
		if !got.More {
			return all
		}
		page.Cursor = read.EventCursor(all[len(all)-1])
	}
}

// types reads the types of the events of a run.
func (f *fixture) types(t tb, id entities.RunID) []entities.EventType {
	t.Helper()
	var types []entities.EventType
	for _, e := range f.events(t, id) {
		types = append(types, e.Type)
	}
	return types
}

// rows reads the run with all its entities from the tables. The snapshot is empty if the run does not exist.
func (f *fixture) rows(t tb, id entities.RunID) *Snapshot {
	t.Helper()
	s := NewSnapshot(home)
	run, err := store.RunByID(t.Context(), f.pool, home, id)
	if errors.Is(err, entities.ErrRunNotFound) {
		return s
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Run = &run
	wantAttributeRows(t, f.pool, run)
	if run.StoreSeq > 0 {
		s.Store = map[string]kv.Value{}
	}
	for _, v := range entityRows[store.RunValue](t, f.pool, "run_store", id) {
		s.Store[v.Key] = kv.Value{Seq: v.Seq, Size: len(v.Value), JSON: []byte(v.Value)}
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

// wantAttributeRows fails the test unless the attribute rows of a run equal its attributes (I2).
func wantAttributeRows(t tb, pool *pgxpool.Pool, run entities.Run) {
	t.Helper()
	var same bool
	if err := pool.QueryRow(t.Context(), `
		SELECT coalesce(jsonb_object_agg(a.key, a.value) FILTER (WHERE a.key IS NOT NULL), '{}') = r.attributes
			AND coalesce(bool_and((a.project, a.workflow_name, a.created_at) = (r.project, r.workflow_name, r.created_at)), true)
		FROM runs r LEFT JOIN run_attributes a ON a.run_id = r.id
		WHERE r.id = $1 GROUP BY r.id`, run.ID).Scan(&same); err != nil {
		t.Fatal(err)
	}
	if !same {
		t.Fatalf("the rows of %s's attributes are not those of the run: %v", run.ID, run.Attributes)
	}
}

// entityRows reads all rows of the run from a table.
func entityRows[T any](t tb, pool *pgxpool.Pool, name string, id entities.RunID) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), fmt.Sprintf(`SELECT * FROM %s WHERE run_id = $1`, name), id)
	if err != nil {
		t.Fatal(err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// wantVerified fails the test unless the run's log is legal and the rows are its fold.
func (f *fixture) wantVerified(t tb, id entities.RunID) {
	t.Helper()
	f.wantVerifiedAt(t, id, f.clock.now)
}

func (f *fixture) wantVerifiedAt(t tb, id entities.RunID, now func() time.Time) {
	t.Helper()
	found, err := Verify(t.Context(), f.pool, now, id)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("verify found:\n%s", strings.Join(found, "\n"))
	}
}

func (f *fixture) exec(t tb, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// fold returns the fold of a log.
func fold(events []entities.Event) *Snapshot {
	s := NewSnapshot(home)
	for _, e := range events {
		s.Apply(&e)
	}
	return s
}
