package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// noQueue accepts all messages and drops them.
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

// sealing stands for encryption: what it seals for one place opens at no other.
type sealing struct{ atrest.Identity }

func (sealing) Seal(p atrest.Payload) ([]byte, error) {
	return append(fmt.Appendf(atrest.Begin(atrest.Sealed), "%v\n", p.Place), p.Bytes...), nil
}

func (sealing) Open(list []atrest.Item) error {
	for _, item := range list {
		form, rest := atrest.Split(item.Get())
		place, payload, _ := bytes.Cut(rest, []byte("\n"))
		if form != atrest.Sealed || string(place) != fmt.Sprint(item.Place) {
			return fmt.Errorf("form %d, sealed for %s, is at %v", form, place, item.Place)
		}
		item.Set(payload)
	}
	return nil
}

// logged is a log with a store of payloads of more than 1000 bytes.
type logged struct {
	*eventlog.Log

	objects place
	store   *blob.Store
	pool    *pgxpool.Pool
}

func newLogged(t *testing.T, p place, c atrest.Codec) *logged {
	t.Helper()
	codec := blob.NewCodec(c, p.Objects)
	pool := testdb.Pool(t, pg.InstallPayloads(codec))
	store := blob.New(pool, codec, 1000)
	return &logged{logOf(pool, codec, store), p, store, pool}
}

func logOf(pool *pgxpool.Pool, codec atrest.Codec, store *blob.Store) *eventlog.Log {
	hub := pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler))
	return eventlog.New(pool, hub, noQueue{}, time.Now, eventlog.WithPayloads(codec), eventlog.WithBlobs(store))
}

func large() []byte { return payloads(1, 2000)[0] }

func request(t entities.EventType, id string, payload []byte) eventlog.Request {
	return eventlog.Request{
		Type: t, CorrelationID: id, SpecVersion: entities.SpecDriven, Payload: payload,
		Data: entities.EventData{StepName: map[bool]string{true: "charge"}[t == entities.EventStepCreated]},
	}
}

// start creates a run.
func (l *logged) start(t *testing.T, payload []byte, more ...eventlog.Request) entities.RunID {
	t.Helper()
	r := eventlog.NewRun(l.Now(), payload, entities.EventData{DeploymentID: "d", WorkflowName: "w"})
	l.must(t, r.RunID, append([]eventlog.Request{r, request(entities.EventRunStarted, "", nil)}, more...)...)
	return r.RunID
}

// must appends each request alone.
func (l *logged) must(t *testing.T, id entities.RunID, requests ...eventlog.Request) {
	t.Helper()
	for _, r := range requests {
		r.RunID = id
		if _, err := l.Append(t.Context(), project, r); err != nil {
			t.Fatalf("append %s %s: %v", r.Type, r.CorrelationID, err)
		}
	}
}

func (l *logged) events(t *testing.T, id entities.RunID) []entities.Event {
	t.Helper()
	page, err := l.Events(t.Context(), project, id, pg.Page{Limit: pg.MaxPage}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	return page.Events
}

// wantPayloads fails the test unless the payloads of a run's log are these, wherever they are.
func (l *logged) wantPayloads(t *testing.T, id entities.RunID, want ...[]byte) {
	t.Helper()
	var got [][]byte
	for _, e := range l.events(t, id) {
		got = append(got, e.Payload)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("other payloads came back: %.20q", got)
	}
}

// wantObjects fails the test unless so many objects exist, each with a row of a run.
func (l *logged) wantObjects(t *testing.T, want int) {
	t.Helper()
	if n := len(l.objects.files(t)); n != want {
		t.Errorf("there are %d objects, want %d", n, want)
	}
	testdb.In(l.pool).Want(t, "rows of blobs", want, `SELECT count(*) FROM blobs WHERE run_id IS NOT NULL`)
}

// TestLargePayloadsOfTheLogAreObjects, however they are appended and read. The database has their sizes.
func TestLargePayloadsOfTheLogAreObjects(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		l := newLogged(t, p, sealing{})
		in, out, note := large(), large(), bytes.Repeat([]byte("x"), 1000)
		id := l.start(t, in, request(entities.EventStepCreated, "s", note))
		l.must(t, id, request(entities.EventStepStarted, "s", nil))
		other := logOf(l.pool, l.store.Codec, l.store) // has nothing cached: it locks the run
		r := request(entities.EventStepCompleted, "s", out)
		r.RunID = id
		if _, err := other.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
		l.wantObjects(t, 2)
		l.wantPayloads(t, id, in, nil, note, nil, out)
		step, err := l.Step(t.Context(), project, id, "s")
		if err != nil || !bytes.Equal(step.Created.Payload, note) {
			t.Errorf("got another input of the step, error %v", err)
		}
		at := read.Position{RunID: id, Seq: 5}
		found, err := l.EventsAt(t.Context(), []read.Position{at, {RunID: id, Seq: 1}}, read.WithPayloads)
		if err != nil || !bytes.Equal(found[at].Payload, out) {
			t.Errorf("got another output, error %v", err)
		}
		list, err := l.RunEvents(t.Context(), project, id, read.EventQuery{}, pg.Page{Limit: 9}, read.WithPayloads)
		if err != nil || list.Entries[0].Size != 2000 || !bytes.Equal(list.Entries[0].Payload, in) {
			t.Errorf("the list of the run's events differs, error %v", err)
		}
		rows := testdb.In(l.pool)
		rows.Want(t, "large payloads in events", 0, `SELECT count(*) FROM events WHERE octet_length(payload) > 1100`)
		rows.Want(t, "sizes", 4000, `SELECT sum(blob_size)::int FROM events`)
		err = upkeep.NewMaintainer(l.pool, time.Now).Verify(t.Context(), id, func(d upkeep.Difference) { t.Error(d) })
		if err != nil {
			t.Error(err)
		}
	})
}

// TestEventsKeepTheirOrder when some of one append have references.
func TestEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	l := newLogged(t, inFolder(t), atrest.Identity{})
	id := l.start(t, large())
	requests, want := []eventlog.Request{}, [][]byte{l.events(t, id)[0].Payload, nil}
	for i := range 150 {
		payload := []byte("small")
		if i%3 == 1 {
			payload = large()
		}
		requests, want = append(requests, request(entities.EventStepCreated, fmt.Sprint("s", i), payload)), append(want, payload)
	}
	if _, err := l.AppendAll(t.Context(), project, id, requests, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	l.wantPayloads(t, id, want...)
	l.wantObjects(t, 51)
	testdb.In(l.pool).Want(t, "events out of order", 0,
		`SELECT count(*) FROM events a JOIN events b ON b.run_id = a.run_id AND b.seq = a.seq + 1 WHERE b.xid < a.xid`)
}

// TestAppendsThatWriteNothingLeaveNothing: refused, repeated, and those that lose a race.
func TestAppendsThatWriteNothingLeaveNothing(t *testing.T) {
	t.Parallel()
	l := newLogged(t, inFolder(t), atrest.Identity{})
	id := l.start(t, large(), request(entities.EventStepCreated, "s", large()), request(entities.EventStepStarted, "s", nil))
	var all sync.WaitGroup
	for i := range 16 {
		log := []*eventlog.Log{l.Log, logOf(l.pool, l.store.Codec, l.store)}[i%2]
		all.Go(func() {
			r := request(entities.EventStepCompleted, "s", large())
			r.RunID = id
			if _, err := log.Append(t.Context(), project, r); err != nil && !errors.Is(err, entities.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.wantObjects(t, 3)
	again := request(entities.EventStepCreated, "s", large())
	again.RunID = id
	_, err := l.Append(t.Context(), project, again)
	testdb.WantError(t, "a second creation", err, entities.ErrConflict)
	r := request(entities.EventRunCreated, "", large())
	r.RunID, r.Data = id, entities.EventData{DeploymentID: "d", WorkflowName: "w"}
	_, err = l.Append(t.Context(), "other", r)
	testdb.WantError(t, "another project's run", err, entities.ErrConflict)
	l.wantObjects(t, 3)
	testdb.In(l.pool).Want(t, "rows of blobs", 3, `SELECT count(*) FROM blobs`)
	if len(l.events(t, id)) != 5 {
		t.Error("the log has other events")
	}
}

// TestSweptAppendWritesNothing: an append that takes longer than an hour fails, whichever way it is written.
func TestSweptAppendWritesNothing(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]bool{"from the cache": false, "under the lock": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogged(t, inFolder(t), atrest.Identity{})
			id := l.start(t, []byte("in"))
			slow := companion{sync.OnceFunc(func() { age(t, l.pool); sweep(t, l.store, 1) }), locked}
			_, err := l.AppendAll(t.Context(), project, id, []eventlog.Request{
				request(entities.EventStepCreated, "s", large()),
			}, eventlog.AppendOptions{With: slow})
			testdb.WantError(t, "append", err, blob.ErrUnavailable)
			l.wantPayloads(t, id, []byte("in"), nil)
			l.wantObjects(t, 0)
		})
	}
}

// companion does something before what an append decided is written: before the run is locked, or else before the
// statement is executed that needs no lock.
type companion struct {
	before func()
	locks  bool
}

func (c companion) Lock(*pgx.Batch) func([]eventlog.Request) error {
	c.before()
	return func([]eventlog.Request) error { return nil }
}

func (c companion) AddTo(s *pg.Conditional, _ eventlog.Outlook) {
	if c.locks {
		s.UnderLock(func(*pgx.Batch) {})
	} else {
		c.before()
	}
}

// TestStoreThatIsAwayStopsLargePayloadsOnly: nothing of what needs it is written.
func TestStoreThatIsAwayStopsLargePayloadsOnly(t *testing.T) {
	t.Parallel()
	p, server := inBucket(t)
	l := newLogged(t, p, atrest.Identity{})
	in := large()
	id := l.start(t, in)
	server.Stop()
	r := request(entities.EventStepCreated, "s", large())
	r.RunID = id
	_, err := l.Append(t.Context(), project, r)
	testdb.WantError(t, "append", err, blob.ErrUnavailable)
	_, err = l.Event(t.Context(), project, id, 1)
	testdb.WantError(t, "read", err, blob.ErrUnavailable)
	l.must(t, id, request(entities.EventStepCreated, "s", []byte("small")))
	server.Start(t)
	l.wantPayloads(t, id, in, nil, []byte("small"))
}

// TestRetentionDeletesObjects, and an archive that was made before has the payloads.
func TestRetentionDeletesObjects(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		l := newLogged(t, p, sealing{})
		id := l.start(t, large(), request(entities.EventRunCompleted, "", large()))
		kept := l.start(t, large())
		before := l.events(t, id)
		maintainer := upkeep.NewMaintainer(l.pool, time.Now)
		var records []upkeep.Record
		retention := upkeep.NewRetention(l.pool, upkeep.RetentionOptions{
			Keep: time.Nanosecond,
			Archive: func(ctx context.Context, _ entities.Project, id entities.RunID) (upkeep.RunSize, error) {
				return maintainer.Export(ctx, id, func(r upkeep.Record) error { records = append(records, r); return nil })
			},
			DeleteRelated: func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error { return nil },
		})
		if done, err := retention.Pass(t.Context()); err != nil || done.Runs != 1 {
			t.Fatalf("removed %+v, error %v", done, err)
		}
		age(t, l.pool)
		sweep(t, l.store, 2)
		l.wantObjects(t, 1)
		if n := len(l.events(t, kept)); n != 2 {
			t.Errorf("the other run has %d events", n)
		}

		// Into a database without objects.
		codec := blob.NewCodec(sealing{}, nil)
		elsewhere := testdb.Pool(t, pg.InstallPayloads(codec))
		_, err := upkeep.NewMaintainer(elsewhere, time.Now).Import(t.Context(), func() (r upkeep.Record, err error) {
			if len(records) == 0 {
				return r, io.EOF
			}
			r, records = records[0], records[1:]
			return r, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		imported := &logged{Log: logOf(elsewhere, codec, nil)}
		if diff := cmp.Diff(before, imported.events(t, id)); diff != "" {
			t.Errorf("the imported run differs (-before +imported):\n%s", diff)
		}
	})
}

// TestRunsOfOthersHaveTheirOwnObjects: forks, children, and runs that go on. Messages of inboxes stay in the database.
func TestRunsOfOthersHaveTheirOwnObjects(t *testing.T) {
	t.Parallel()
	l := newLogged(t, inFolder(t), sealing{})
	in, note := large(), large()
	hook := request(entities.EventHookCreated, string(inbox.HookID("mail")), nil)
	hook.Data.Token, hook.Data.StepName = "token", ""
	received := request(entities.EventHookReceived, string(inbox.HookID("mail")), note)
	received.Data.ResumeID = "m1"
	id := l.start(t, in, hook, received)
	l.wantObjects(t, 1)
	next := eventlog.NewRun(l.Now(), in, entities.EventData{DeploymentID: "d", WorkflowName: "w"})
	ends := request(entities.EventRunCompleted, "", nil)
	ends.RunID, ends.Continue = id, &eventlog.Continuation{Next: next}
	if _, err := l.Append(t.Context(), project, ends); err != nil {
		t.Fatal(err)
	}
	l.wantObjects(t, 2)
	l.wantPayloads(t, next.RunID, in, nil, note)

	fork := eventlog.NewRun(l.Now(), in, entities.EventData{DeploymentID: "d", WorkflowName: "w", Fork: &entities.Fork{RunID: id, Seed: id}})
	fork.Kept = l.events(t, id)[:2]
	if _, err := l.AppendAll(t.Context(), project, fork.RunID, []eventlog.Request{fork}, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	parent := request(entities.EventStepCreated, "child", in)
	child := eventlog.NewRun(l.Now(), in, entities.EventData{DeploymentID: "d", WorkflowName: "w", ParentID: next.RunID})
	parent.Child = &child
	l.must(t, next.RunID, parent)
	testdb.In(l.pool).Exec(t, `DELETE FROM runs WHERE id = ANY ($1)`, []entities.RunID{id, next.RunID})
	age(t, l.pool)
	sweep(t, l.store, 3)
	l.wantPayloads(t, fork.RunID, in, nil)
	l.wantPayloads(t, child.RunID, in)
	if diff := cmp.Diff(2, len(l.objects.files(t))); diff != "" {
		t.Error(diff)
	}
}
