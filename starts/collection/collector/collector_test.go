package collector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

func TestDebounceStartsOneRunUnderItsFirstID(t *testing.T) {
	t.Parallel()
	for keep, want := range map[collection.Keep]string{
		collection.KeepLast: "run 3", collection.KeepFirst: "run 1", collection.KeepAll: "run [1,2,3]",
	} {
		t.Run(string(keep), func(t *testing.T) {
			t.Parallel()
			s := registered(t)
			first := s.add(t, debounced(keep), start("1"))
			s.At(8 * time.Second)
			if id := s.add(t, debounced(keep), start("2")); id != first {
				t.Errorf("the second start is for run %s, the first for %s", id, first)
			}
			s.At(10 * time.Second)
			s.deliver(t, first) // puts it off
			s.want(t, "2 until 18s")
			s.At(17 * time.Second)
			s.add(t, debounced(keep), start("3"))
			s.At(18 * time.Second)
			s.deliver(t, first)
			s.want(t, "3 until 27s")
			s.At(27 * time.Second)
			s.deliver(t, first)
			s.want(t, want)
			run, err := store.RunByID(t.Context(), pg.NewPool(s.pool), project, first)
			if err != nil || run.DeploymentID != "dpl" || !run.CreatedAt.Equal(noon.Add(27*time.Second)) {
				t.Errorf("got run %+v, %v", run, err)
			}
			if next := s.add(t, debounced(keep), start("4")); next == first {
				t.Errorf("a start after the run's is for run %s as well", next)
			}
		})
	}
}

func TestDebounceStartsAtItsMaximum(t *testing.T) {
	t.Parallel()
	s := registered(t)
	var id entities.RunID
	for i := range 12 {
		s.At(time.Duration(i) * 9 * time.Second / 2)
		id = s.add(t, debounced(collection.KeepLast), start(fmt.Sprint(i)))
	}
	s.want(t, "12 until 59.5s")
	s.At(55 * time.Second)
	s.add(t, debounced(collection.KeepLast), start("12"))
	s.want(t, "13 until 1m0s")
	s.At(time.Minute)
	s.deliver(t, id)
	s.want(t, "run 12")
}

// TestRunHasTheStartsOptions has all that a start says about its run, and an ID that was made days ago.
func TestRunHasTheStartsOptions(t *testing.T) {
	t.Parallel()
	s := registered(t)
	rule, err := collection.NewDebounce("k", 48*time.Hour, 0, collection.KeepLast)
	if err != nil {
		t.Fatal(err)
	}
	s.add(t, rule, start("1"))
	id := s.add(t, rule, start("", uniqueKey, func(s *collection.Start) {
		s.Data.Attributes, s.Timeout, s.Data.TimeoutGraceMS = map[string]string{"k": "v"}, time.Hour, 1000
		s.Deployment = "dpl"
	}))
	s.At(48 * time.Hour)
	s.deliver(t, id)
	run, err := store.RunByID(t.Context(), pg.NewPool(s.pool), project, id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Attributes["k"] != "v" || run.UniqueKey != "u" || run.IdempotencyKey != "" || !run.Deadline.Equal(noon.Add(49*time.Hour)) {
		t.Errorf("got run %+v", run)
	}
	event, err := s.log.Event(t.Context(), project, id, 1)
	if err != nil || len(event.Payload) != 0 || event.Data.TimeoutGraceMS != 1000 {
		t.Errorf("the run began with %+v, %v", event, err)
	}
}

func TestBatchStartsWhenItIsFull(t *testing.T) {
	t.Parallel()
	s := registered(t)
	rule := batches(3)
	first := s.add(t, rule, start(`{"a":1}`))
	s.add(t, rule, start(""))
	s.want(t, "2 until 1m0s")
	done, err := s.Add(t.Context(), project, rule, start("3"))
	if err != nil || !done.Created || done.Run.ID != first {
		t.Errorf("the last start: got %+v, %v", done, err)
	}
	s.want(t, `run [{"a":1},null,3]`)
	s.At(30 * time.Second)
	second := s.add(t, rule, start("4"))
	s.add(t, rule, start("5"))
	s.want(t, `run [{"a":1},null,3], 2 until 1m30s`)
	s.At(90 * time.Second)
	s.deliver(t, second)
	s.want(t, `run [{"a":1},null,3], run [4,5]`)
}

func TestBatchThatOverflowsStartsWithoutTheItem(t *testing.T) {
	t.Parallel()
	s := registered(t)
	rule, err := collection.NewBatch("k", 10, time.Minute, 10)
	if err != nil {
		t.Fatal(err)
	}
	s.add(t, rule, start("1111"))
	s.add(t, rule, start("222")) // [1111,222]
	s.add(t, rule, start("3", once("i")))
	s.want(t, "run [1111,222], 1 until 1m0s")
	if _, err := s.Add(t.Context(), project, rule, start("123456789")); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("an item beyond the limit: got %v", err)
	}
	s.want(t, "run [1111,222], 1 until 1m0s")
}

func TestKeysSeparateCollections(t *testing.T) {
	t.Parallel()
	s := registered(t)
	ids := map[entities.RunID]bool{}
	other := debounced(collection.KeepLast)
	other.Key = "other"
	for _, rule := range []collection.Rule{debounced(collection.KeepLast), other, batches(5)} {
		for _, workflow := range []string{"w", "v"} {
			ids[s.add(t, rule, start("1", func(s *collection.Start) { s.Workflow = workflow }))] = true
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d collections, want one for each kind, key and workflow", len(ids))
	}
}

// TestIdempotencyKeyCountsOnce repeats starts while they are collected, and after their run has started.
func TestIdempotencyKeyCountsOnce(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]collection.Rule{"debounce": debounced(collection.KeepLast), "batch": batches(3)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registered(t)
			first := s.add(t, rule, start("1", once("a")))
			s.add(t, rule, start("2", once("b")))
			s.At(5 * time.Second)
			if id := s.add(t, rule, start("1", once("a"))); id != first {
				t.Errorf("repeated: got run %s, want %s", id, first)
			}
			if n := s.Count(t, `SELECT count FROM collections`); n != 2 {
				t.Errorf("%d starts were collected, want 2", n)
			}
			if _, err := s.Add(t.Context(), project, rule, start("9", once("a"))); !errors.Is(err, entities.ErrKeyReused) {
				t.Errorf("another start with the same key: got %v", err)
			}
			s.add(t, rule, start("3", once("c"))) // fills the batch
			if rule.Kind == collection.Debounce {
				s.At(time.Minute)
				s.deliver(t, first)
			}
			for _, st := range []collection.Start{start("1", once("a")), start("3", once("c"))} {
				if done, err := s.Add(t.Context(), project, rule, st); err != nil || done.Created || done.Run.ID != first {
					t.Errorf("repeated after the start: got %+v, %v", done, err)
				}
			}
			if s.want(t, map[string]string{"debounce": "run 3", "batch": "run [1,2,3]"}[name]); t.Failed() {
				return
			}
			s.Exec(t, `DELETE FROM messages`)
			err := pg.InTxBatch(t.Context(), s.pool, func(b *pgx.Batch) { store.DeleteRuns(b, []entities.RunID{first}) })
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Count(t, `SELECT count(*) FROM collected`); n != 0 {
				t.Errorf("%d keys are left of a run that was deleted", n)
			}
		})
	}
}

// TestRefusedRunIsTriedAgain has a key that another run has, a deployment that is gone, and a quota that is used up.
func TestRefusedRunIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.add(t, debounced(collection.KeepLast), start("1", uniqueKey))
	holder := s.flush(t)
	id := s.add(t, debounced(collection.KeepLast), start("2", uniqueKey))
	s.At(time.Minute)
	refused := func(part string) {
		t.Helper()
		s.deliver(t, id)
		c, err := collection.ByID(t.Context(), pg.NewPool(s.pool), project, id)
		if err != nil || !strings.Contains(c.Refusal, part) {
			t.Fatalf("got %q, %v, want a refusal about %q", c.Refusal, err, part)
		}
		if n := s.Count(t, `
			SELECT count(*) FROM messages WHERE subject = $1 AND lease = '' AND due_at BETWEEN $2 AND $3`, id,
			s.log.Now().Add(time.Second), s.log.Now().Add(time.Minute)); n != 1 {
			t.Error("it is not tried again in time")
		}
	}
	refused(string(holder))
	if _, err := s.Flush(t.Context(), project, id); !errors.Is(err, entities.ErrKeyTaken) {
		t.Errorf("flush: got %v, want that the key is taken", err)
	}
	_, err := s.log.Append(t.Context(), project, eventlog.Request{
		RunID: holder, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.queue.RemoveDeployment(t.Context(), project, "dpl"); err != nil {
		t.Fatal(err)
	}
	refused(`"w"`)
	s.Register(t)
	s.Exec(t, `INSERT INTO projects (name, daily_starts) VALUES ($1, 0) ON CONFLICT (name) DO UPDATE SET daily_starts = 0`, project)
	s.At(2 * time.Minute) // what is known of the quota is old
	refused("dailyStarts")
	if _, err := s.Add(t.Context(), project, batches(2), start("1")); !errors.Is(err, admin.ErrStartQuota) {
		t.Errorf("opening another collection: got %v, want the quota's error", err)
	}
	s.Exec(t, `UPDATE projects SET daily_starts = 5`)
	s.At(3 * time.Minute)
	s.deliver(t, id)
	if got := s.state(t); got != "run 1, run 2" {
		t.Errorf("got %s", got)
	}
}

// TestStartThatFillsIsNotCollectedIfTheRunIsRefused leaves the batch as it was.
func TestStartThatFillsIsNotCollectedIfTheRunIsRefused(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.add(t, batches(2), start("0", uniqueKey))
	s.flush(t)
	s.add(t, batches(2), start("1", uniqueKey))
	if _, err := s.Add(t.Context(), project, batches(2), start("2", once("i"))); !errors.Is(err, entities.ErrKeyTaken) {
		t.Errorf("got %v, want that the key is taken", err)
	}
	s.want(t, "run [0], 1 until 1m0s")
}

func TestStartsWithoutAnAppAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	if _, err := s.Add(t.Context(), project, batches(2), start("1")); !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Errorf("got %v", err)
	}
	s.want(t, "")
}

func TestFlushAndDrop(t *testing.T) {
	t.Parallel()
	s := registered(t)
	ctx := admin.WithSource(t.Context(), admin.Source{Actor: "key_1"})
	for i, keep := range []collection.Keep{collection.KeepLast, collection.KeepAll} {
		s.At(time.Duration(i) * time.Millisecond) // the runs are in the order of their starts
		s.add(t, debounced(keep), start("1"))
		id := s.add(t, debounced(keep), start("2", once("i"+string(keep))))
		if _, err := s.Flush(ctx, project, id); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Flush(ctx, project, id); !errors.Is(err, collection.ErrNotFound) {
			t.Errorf("flush again: got %v", err)
		}
	}
	s.want(t, "run 2, run [1,2]")
	id := s.add(t, batches(3), start("1", once("i")))
	if err := s.Drop(ctx, project, id); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(ctx, project, id); !errors.Is(err, collection.ErrNotFound) {
		t.Errorf("drop again: got %v", err)
	}
	s.want(t, "run 2, run [1,2]")
	if n := s.Count(t, `SELECT count(*) FROM audit WHERE actor = 'key_1' AND action IN ('collection.flush', 'collection.drop')`); n != 3 {
		t.Errorf("the audit has %d entries, want 3", n)
	}
	if again := s.add(t, batches(3), start("1", once("i"))); again == id {
		t.Error("the key of a start that was dropped still counts")
	}
}

func TestProjectsAreIsolated(t *testing.T) {
	t.Parallel()
	s := registered(t)
	id := s.add(t, batches(3), start("1", once("i")))
	const other = entities.Project("other")
	for what, do := range map[string]func(context.Context) error{
		"flush": func(ctx context.Context) error { _, err := s.Flush(ctx, other, id); return err },
		"drop":  func(ctx context.Context) error { return s.Drop(ctx, other, id) },
		"read": func(ctx context.Context) error {
			_, err := collection.ByID(ctx, pg.NewPool(s.pool), other, id)
			return err
		},
	} {
		if err := do(t.Context()); !errors.Is(err, collection.ErrNotFound) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if list, _, err := collection.List(t.Context(), pg.NewPool(s.pool), other, pg.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("the other project has %v, %v", list, err)
	}
	if _, err := s.queue.PutDeployment(t.Context(), other, "dpl", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	done, err := s.Add(t.Context(), other, batches(3), start("2", once("i")))
	if err != nil || runOf(done) == id || done.Collection.Count != 1 {
		t.Errorf("a start of the other project: got %+v, %v", done, err)
	}
}

func TestTooManyCollectionsAreRefused(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.add(t, batches(3), start("1"))
	s.Exec(t, `
		INSERT INTO collections SELECT (json_populate_record(c, json_build_object('run_id', 'wrun_' || n, 'key', n))).*
		FROM collections c, generate_series(2, $1) AS n`, collection.MaxCollections)
	rule := batches(3)
	rule.Key = "another"
	if _, err := s.Add(t.Context(), project, rule, start("1")); !errors.Is(err, collection.ErrTooMany) {
		t.Errorf("got %v", err)
	}
	s.add(t, batches(3), start("2")) // one that is open goes on
}
