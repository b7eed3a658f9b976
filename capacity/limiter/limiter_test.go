package limiter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project = entities.DefaultProject

var errExpire = errors.New("expire")

// newLimiter returns a limiter whose expire fails, and which writes into granted what it grants.
func newLimiter(t *testing.T, granted *[]entities.RunID) (*Limiter, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t)
	admit := func(_ *pgx.Batch, _ entities.Project, list []limit.Granted) func(error) {
		for _, g := range list {
			*granted = append(*granted, g.RunID)
		}
		return func(error) {}
	}
	return New(pool, nil, admit, func(context.Context) error { return errExpire }), pool
}

// roundOf makes a round, waits for its passes, and returns all errors.
func roundOf(ctx context.Context, l *Limiter) error {
	var passes sync.WaitGroup
	failed := make(chan error, 10)
	l.round(ctx, &passes, func(err error) { failed <- err })
	passes.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// awaitSlot makes a run of the project wait for a slot that is free.
func awaitSlot(t *testing.T, pool *pgxpool.Pool, p entities.Project) {
	t.Helper()
	if _, err := limit.NewStore(pool, time.Now).Put(t.Context(), p, "one", limit.Spec{PerKey: 1}); err != nil {
		t.Fatal(err)
	}
	err := pg.InTxBatch(t.Context(), pool, func(b *pgx.Batch) {
		b.Queue(`
			INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
				updated_at)
			VALUES ('wrun_' || $1, $1, 'd', 'w', 'pending', 2, '{}', 1, now(), now())`, p)
		b.Queue(`
			INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at)
			VALUES ('wrun_' || $1, 'wrun_' || $1, $1, 'one', '', '', 1, now(), now())`, p)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRoundGoesOnAfterAnError of its first part.
func TestRoundGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	var granted []entities.RunID
	l, pool := newLimiter(t, &granted)
	awaitSlot(t, pool, project)
	l.CheckAll()
	if err := roundOf(t.Context(), l); !errors.Is(err, errExpire) {
		t.Errorf("got error %v, want that of expire", err)
	}
	if len(granted) != 1 {
		t.Errorf("granted to %v, want the run that waits", granted)
	}
}

// TestFailedPassIsRepeated by the next round.
func TestFailedPassIsRepeated(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, nil)
	bucket, freed := limit.Bucket{Name: "one", Key: "k"}, limit.Bucket{Name: "one", Key: "freed"}
	l.keep(func() {
		l.todo.awaited.add(project, []limit.Bucket{bucket})
		l.todo.freed.add(project, []limit.Bucket{freed})
	})
	l.CheckAll()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := roundOf(ctx, l); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that the context ended", err)
	}
	if left := l.take(); !left.awaited[project][bucket] || !left.freed[project][freed] || !left.all {
		t.Errorf("left to the next round: %+v; want the buckets, and all", left)
	}
}

// TestPassOfOneProjectDelaysNoOther: a project whose pass does not end keeps no other from its slots. What it needs
// meanwhile is done by one pass after that.
func TestPassOfOneProjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	store := limit.NewStore(pool, time.Now)
	for _, p := range []string{"a", "b"} {
		if _, err := store.Put(t.Context(), entities.Project(p), "one", limit.Spec{PerKey: 1}); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(p, run string) {
		err := pg.InTxBatch(t.Context(), pool, func(b *pgx.Batch) {
			b.Queue(`
				INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
					updated_at)
				VALUES ($1, $2, 'd', 'w', 'pending', 2, '{}', 1, now(), now())`, run, p)
			b.Queue(`
				INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at)
				VALUES ($1, $1, $2, 'one', $1, '', 1, now(), now())`, run, p)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	began, goOn, granted := make(chan struct{}), make(chan struct{}), make(chan entities.RunID, 10)
	l := New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)),
		func(_ *pgx.Batch, p entities.Project, decided []limit.Granted) func(error) {
			if decided[0].RunID == "wrun_a0" {
				close(began)
				<-goOn
			}
			return func(error) {
				for _, g := range decided {
					granted <- g.RunID
				}
			}
		}, func(context.Context) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, slog.New(slog.DiscardHandler)) })
	await := func(p, run string) {
		waits(p, run)
		l.plan(func() { l.todo.awaited.add(entities.Project(p), []limit.Bucket{{Name: "one", Key: run}}) })
	}
	await("a", "wrun_a0")
	<-began
	await("a", "wrun_a1")
	await("b", "wrun_b")
	if got := <-granted; got != "wrun_b" {
		t.Errorf("granted to %s first, want the run of the other project", got)
	}
	close(goOn)
	if first, second := <-granted, <-granted; first != "wrun_a0" || second != "wrun_a1" {
		t.Errorf("granted to %s and %s, want the runs of the project in their order", first, second)
	}
	cancel()
	running.Wait()
	if len(l.passing) != 0 {
		t.Errorf("passes under way: %v, want none", l.passing)
	}
}

// TestScanFindsASlotBehindManyKeys with one check: all keys but the last are full, and are more than a page. Another
// project has its slot as well.
func TestScanFindsASlotBehindManyKeys(t *testing.T) {
	t.Parallel()
	_, pool := newLimiter(t, nil)
	const big, other = entities.Project("big"), entities.Project("other")
	for _, p := range []entities.Project{big, other} {
		awaitSlot(t, pool, p)
	}
	const last = 2*keysPerScan + 1
	for _, sql := range []string{`
		INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
		SELECT 'held ' || i, 'wrun_big', 'big', 'one', to_char(i, 'FM0000'), '', 1, now(), now(), now()
		FROM generate_series(1, $1 - 1) i`, `
		INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at)
		SELECT 'waits ' || i, 'wrun_big', 'big', 'one', to_char(i, 'FM0000'), '', 1, now(), now()
		FROM generate_series(1, $1) i`} {
		if _, err := pool.Exec(t.Context(), sql, last); err != nil {
			t.Fatal(err)
		}
	}
	granted := make(chan entities.Project, 10)
	l := New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)),
		func(_ *pgx.Batch, p entities.Project, decided []limit.Granted) func(error) {
			return func(error) {
				for range decided {
					granted <- p
				}
			}
		}, func(context.Context) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, slog.New(slog.DiscardHandler)) })
	l.CheckAll()
	got := map[entities.Project]int{}
	for range 3 { // what awaitSlot lets wait has a key of its own
		got[<-granted]++
	}
	cancel()
	running.Wait()
	if got[big] != 2 || got[other] != 1 || len(l.scanning) != 0 {
		t.Errorf("granted %v, want 2 in one project and 1 in the other; under way are %v", got, l.scanning)
	}
}

// TestScanGoesOnWhereItWas: another check begins the scans of other projects, and another one of the same after it.
func TestScanGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	l, pool := newLimiter(t, nil)
	const other = entities.Project("other")
	for _, p := range []entities.Project{project, other} {
		awaitSlot(t, pool, p)
	}
	at := limit.Bucket{Name: "one", Key: "k"}
	l.scanning[project] = &scan{after: at}
	todo := newWork()
	if err := l.scanAll(t.Context(), todo); err != nil {
		t.Fatal(err)
	}
	if len(todo.scans) != 1 || !todo.scans[other] || l.scanning[project].after != at {
		t.Errorf("to be scanned are %v, want the other project; the scan under way is %+v", todo.scans, l.scanning[project])
	}
	page, err := l.page(t.Context(), project)
	if err != nil || len(page) != 0 || !l.take().scans[project] {
		t.Errorf("got %v and error %v after the last key, want nothing, and another scan planned", page, err)
	}
	page, err = l.page(t.Context(), project)
	if err != nil || len(page) != 1 || l.scanning[project] != nil || l.take().scans[project] {
		t.Errorf("got %v and error %v in the other scan, want the key that waits, and the end", page, err)
	}
}

// TestFailedScanBeginsAnew with the next check.
func TestFailedScanBeginsAnew(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, nil)
	l.scanning[project] = &scan{after: limit.Bucket{Name: "one", Key: "k"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.page(ctx, project)
	if _, ok := l.scanning[project]; !errors.Is(err, context.Canceled) || ok {
		t.Errorf("got error %v, want that the context ended, and that the scan is over", err)
	}
}

// TestLimiterGoesOnAfterRefusals: more steps are refused than one pass considers, and one check is enough for all.
func TestLimiterGoesOnAfterRefusals(t *testing.T) {
	t.Parallel()
	const steps, home = 600, entities.Project("home")
	pool := testdb.Pool(t)
	store := limit.NewStore(pool, time.Now)
	if _, err := store.Put(t.Context(), home, "full", limit.Spec{PerKey: 1, OnFull: limit.Reject, Paused: true}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at)
		VALUES ('wrun_1', 'home', 'd', 'w', 'running', 2, '{}', 1, now(), now())`, `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
		SELECT 'm' || i, 'home', 's', 'd', 'wrun_1', 'step', i, '', '', now() + interval '1 day', now() + interval '1 day'
		FROM generate_series(1, 600) AS i`, `
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at)
		SELECT id, id, 'wrun_1', 'home', 'full', '', '', 1, now(), now() FROM messages`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var refused atomic.Int64
	l := New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)), func(_ *pgx.Batch, _ entities.Project, decided []limit.Granted) func(error) {
		return func(error) {
			if refused.Add(int64(len(decided))) == steps {
				cancel()
			}
		}
	}, func(context.Context) error { return nil })
	l.CheckAll()
	l.Run(ctx, slog.New(slog.DiscardHandler))
	if n := refused.Load(); n != steps {
		t.Errorf("%d steps were refused after one check, want all %d", n, steps)
	}
}
