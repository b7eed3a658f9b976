package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// fixture is a database, with a table of probes once [fixture.probes] has created it.
type fixture struct{ pool *pgxpool.Pool }

// meet calls execute for n statements while all transactions of the group are running, so that the statements share the
// next one. It returns their errors.
func meet(t *testing.T, g *GroupCommit, n int, execute func(ctx context.Context, i int) error) []error {
	t.Helper()
	resume := g.Pause()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = execute(t.Context(), i) })
	}
	eventually(t, "all statements wait", func() bool {
		_, waiting := g.Load()
		return waiting == n
	})
	resume()
	all.Wait()
	return errs
}

// probe is a statement that inserts its name into the table of probes.
type probe struct {
	order LockOrder
	sql   string
	size  int

	rows          int64
	alone, queued int // how often it was executed alone, and queued
}

// insertIgnoring returns a probe that changes no row if its name exists.
func insertIgnoring(class LockClass, name string) *probe {
	return &probe{order: LockOrder{class, name}, sql: `INSERT INTO probes (name) VALUES ($1) ON CONFLICT DO NOTHING`}
}

// insertStrictly returns a probe that fails if its name exists.
func insertStrictly(class LockClass, name string) *probe {
	return &probe{order: LockOrder{class, name}, sql: `INSERT INTO probes (name) VALUES ($1)`}
}

func (p *probe) Order() LockOrder { return p.order }

func (p *probe) Size() int { return p.size }

func (p *probe) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	p.alone++
	tag, err := pool.Exec(ctx, p.sql, p.order.Name)
	p.rows = tag.RowsAffected()
	return err
}

func (p *probe) Queue(b *pgx.Batch) {
	p.queued++
	b.Queue(p.sql, p.order.Name).Exec(func(tag pgconn.CommandTag) error {
		p.rows = tag.RowsAffected()
		return nil
	})
}

// probes creates the table of probes with the given rows.
func (f fixture) probes(t *testing.T, names ...string) {
	t.Helper()
	for _, sql := range []string{
		`CREATE TABLE probes (name text PRIMARY KEY, n serial, xid xid8 NOT NULL DEFAULT pg_current_xact_id())`,
		`INSERT INTO probes (name) SELECT unnest($1::text[])`,
	} {
		var args []any
		if sql[0] == 'I' {
			args = []any{names}
		}
		testdb.Exec(t, f.pool, sql, args...)
	}
}

// written returns the names in the order in which they were inserted, and the number of transactions that did so.
func (f fixture) written(t *testing.T) (names []string, transactions int) {
	t.Helper()
	check.NoError(t, f.pool.QueryRow(t.Context(), `
		SELECT coalesce(array_agg(name ORDER BY n), '{}'), count(DISTINCT xid) FROM probes`,
	).Scan(&names, &transactions))
	return names, transactions
}

// doTogether executes the statements in one transaction of the group.
func doTogether(t *testing.T, g *GroupCommit, statements []*probe) []error {
	t.Helper()
	return meet(t, g, len(statements), func(ctx context.Context, i int) error { return g.Do(ctx, statements[i]) })
}

// TestStatementsShareATransactionInLockOrder: the order of arrival does not matter.
func TestStatementsShareATransactionInLockOrder(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t)
	statements := []*probe{
		insertIgnoring(LockKey, "a"), insertIgnoring(LockRun, "c"), insertIgnoring(LockLease, "z"),
		insertIgnoring(LockRun, "b"), insertIgnoring(LockLease, "y"), insertIgnoring(LockKey, "0"),
	}
	g := NewGroupCommit(f.pool)
	for i, err := range doTogether(t, g, statements) {
		if p := statements[i]; err != nil || p.rows != 1 || p.alone > 0 {
			t.Errorf("%s: got %d rows and error %v, executed %d times alone; want 1 row", p.order.Name, p.rows, err, p.alone)
		}
	}
	names, transactions := f.written(t)
	if diff := cmp.Diff([]string{"y", "z", "b", "c", "0", "a"}, names); diff != "" || transactions != 1 {
		t.Errorf("%d transactions, want 1, which wrote (-want +got):\n%s", transactions, diff)
	}
}

// TestStatementThatChangesNoRowDoesNotAffectTheOthers: that is a result of its own, not an error of the transaction.
func TestStatementThatChangesNoRowDoesNotAffectTheOthers(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t, "b")
	statements := []*probe{insertIgnoring(LockKey, "a"), insertIgnoring(LockKey, "b"), insertIgnoring(LockKey, "c")}
	for i, err := range doTogether(t, NewGroupCommit(f.pool), statements) {
		if p, want := statements[i], []int64{1, 0, 1}[i]; err != nil || p.rows != want || p.alone > 0 {
			t.Errorf("%s: got %d rows and error %v, executed %d times alone; want %d rows",
				p.order.Name, p.rows, err, p.alone, want)
		}
	}
	if names, transactions := f.written(t); len(names) != 3 || transactions != 2 {
		t.Errorf("got %v in %d transactions, want a and c in one", names, transactions)
	}
}

// TestFailedStatementDoesNotFailTheOthers: the transaction is rolled back, and each statement, before and after the
// failed one, is executed alone.
func TestFailedStatementDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t, "b")
	statements := []*probe{insertIgnoring(LockRun, "a"), insertStrictly(LockRun, "b"), insertIgnoring(LockKey, "c")}
	for i, err := range doTogether(t, NewGroupCommit(f.pool), statements) {
		p, wrong := statements[i], ViolatedConstraint(err) == "probes_pkey"
		if wrong != (i == 1) || !wrong && (err != nil || p.rows != 1) || p.queued != 1 || p.alone != 1 {
			t.Errorf("%s: got %d rows and error %v, queued %d times, executed %d times alone",
				p.order.Name, p.rows, err, p.queued, p.alone)
		}
	}
	if names, transactions := f.written(t); len(names) != 3 || transactions != 3 {
		t.Errorf("got %v in %d transactions, want each in its own", names, transactions)
	}
}

// TestDoReturnsTheOutcomeOfABegunTransactionAfterItsContextEnds: the transaction goes on, and Do waits for it.
func TestDoReturnsTheOutcomeOfABegunTransactionAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t)
	rival := check.Value(f.pool.Begin(t.Context()))(t)
	testdb.Exec(t, rival, `INSERT INTO probes (name) VALUES ('a')`)
	ctx, cancel := context.WithCancel(t.Context())
	g, p, other := NewGroupCommit(f.pool), insertIgnoring(LockKey, "a"), insertIgnoring(LockKey, "b")
	errs := meet(t, g, 2, func(_ context.Context, i int) error {
		if i == 1 {
			return g.Do(t.Context(), other)
		}
		go func() {
			eventually(t, "a session waits for a lock", func() (waits bool) {
				err := f.pool.QueryRow(context.WithoutCancel(ctx), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND
					pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))`).Scan(&waits)
				if err != nil {
					t.Error(err)
				}
				return waits
			})
			cancel()
			_ = rival.Rollback(context.WithoutCancel(ctx))
		}()
		return g.Do(ctx, p)
	})
	for i, err := range errs {
		if err != nil {
			t.Errorf("statement %d: %v", i, err)
		}
	}
	if p.rows != 1 || p.alone != 0 || other.rows != 1 {
		t.Errorf("got %d and %d rows, want one each", p.rows, other.rows)
	}
}

// TestTwoProcessesLockInTheSameOrder: two groups that contend for rows of all classes, and whose statements arrived in
// opposite orders, never deadlock.
func TestTwoProcessesLockInTheSameOrder(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixture{testdb.Connect(t, dsn)}
	f.probes(t)
	sessions := [2]*gate.Session{gate.Open(t, dsn, f.pool, nil), gate.Open(t, dsn, f.pool, nil)}
	orders := []LockOrder{{LockKey, "a"}, {LockLease, "b"}, {LockRun, "c"}, {LockKey, "d"}}
	waits := 0
	schedules := gate.Explore(t, sessions[0], sessions[1], func(s *gate.Schedule) {
		testdb.Exec(t, f.pool, `DELETE FROM probes`)
		var groups [2][]*waiter
		for _, o := range orders {
			groups[0] = append(groups[0], &waiter{Statement: insertIgnoring(o.Class, o.Name), done: make(chan struct{})})
			groups[1] = append(groups[1], &waiter{Statement: insertIgnoring(o.Class, o.Name), done: make(chan struct{})})
		}
		slices.Reverse(groups[1])
		commit := func(i int) func() {
			return func() { NewGroupCommit(sessions[i].Pool).commit(groups[i]) }
		}
		s.Run(t, commit(0), commit(1))
		if waits += s.Waits; s.Deadlocked {
			t.Errorf("deadlock:\n%s", s)
		}
		for _, w := range slices.Concat(groups[0], groups[1]) {
			if w.err != nil {
				t.Errorf("%v: %v", w.Order(), w.err)
			}
		}
		if names, transactions := f.written(t); len(names) != len(orders) || transactions != 1 {
			t.Errorf("got %v in %d transactions, want all of them in one", names, transactions)
		}
	})
	if waits == 0 {
		t.Errorf("no session waited for a lock in %d schedules", schedules)
	}
}

// TestProjectsTakeTurnsInTransactions: a statement is in the next transaction, however many of another project came
// before it.
func TestProjectsTakeTurnsInTransactions(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t)
	g := NewSerialCommit(f.pool)
	resume := g.Pause()
	var all sync.WaitGroup
	add := func(project string, n int) {
		_, before := g.Load()
		for i := range n {
			all.Go(func() {
				if err := g.Do(share.For(t.Context(), project), insertIgnoring(LockKey, fmt.Sprint(project, i))); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "the statements wait", func() bool {
			_, waiting := g.Load()
			return waiting == before+n
		})
	}
	add("a", 3*groupSize)
	add("b", 1)
	add("c", 2)
	if n := g.UnderWayOf("a"); n != 3*groupSize || g.UnderWay() != n+3 || g.UnderWayOf("d") != 0 {
		t.Errorf("%d statements of a, and %d in all, want %d and 3 more", n, g.UnderWay(), 3*groupSize)
	}
	resume()
	all.Wait()
	var first []string
	check.NoError(t, f.pool.QueryRow(t.Context(), `
		SELECT array_agg(left(name, 1)) FROM probes WHERE xid = (SELECT min(xid) FROM probes)`).Scan(&first))
	of := map[string]int{}
	for _, project := range first {
		of[project]++
	}
	check.Equal(t, "the first transaction has other statements", of, map[string]int{"a": groupSize - 3, "b": 1, "c": 2})
	if g.UnderWay() != 0 || len(g.lines) != 0 || len(g.order) != 0 {
		t.Errorf("%d are under way, in %d lines with %d in the order; want none", g.UnderWay(), len(g.lines), len(g.order))
	}
}

// TestGroupStaysBusy: when a transaction has just ended, a few statements count, since more follow.
func TestGroupStaysBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGroupCommit(nil)
		g.running = g.atOnce
		for n := range groupSize {
			check.Equal(t, fmt.Sprintf("busy with %d statements", n), g.Busy(), false)
			g.startOrWait("a", &waiter{})
		}
		check.Equal(t, "busy with those of a transaction", g.Busy(), true)
		time.Sleep(busyFor + time.Millisecond)
		check.Equal(t, "busy for as long as they take", g.Busy(), true)
		g.startOrWait("a", &waiter{})
		for n := groupSize; n >= leastBusy; n-- {
			g.leave("a")
			check.Equal(t, fmt.Sprintf("busy with %d just after", n), g.Busy(), true)
		}
		time.Sleep(busyFor + time.Millisecond)
		check.Equal(t, "busy with as many later", g.Busy(), false)
		for range groupSize - leastBusy {
			g.startOrWait("a", &waiter{})
		}
		for range groupSize - leastBusy + 1 {
			g.leave("a")
		}
		check.Equal(t, "busy just after, with fewer", g.Busy(), false)
	})
}

// TestTransactionsAreBounded: statements that write much share a transaction with few others.
func TestTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	g := NewGroupCommit(nil)
	g.running = g.atOnce
	for range groupSize {
		g.startOrWait("a", &waiter{size: groupBytes / 8})
	}
	for len(g.order) > 0 {
		check.Equal(t, "statements of an eighth of the limit share a transaction", len(g.take()), 8)
	}
}

// TestLargeStatementsDelayNoOthers: large statements of one project that get no further keep neither small statements
// nor large ones of another project from their execution.
func TestLargeStatementsDelayNoOthers(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t)}
	f.probes(t)
	rival := check.Value(f.pool.Begin(t.Context()))(t)
	defer rollback(t.Context(), rival)
	testdb.Exec(t, rival, `INSERT INTO probes (name) VALUES ('held')`)
	g := NewGroupCommit(f.pool)
	const fit, many = 4, 8
	large := func(name string) *probe {
		p := insertIgnoring(LockKey, name)
		p.size = largeBytes / 2 / fit
		return p
	}
	var stuck sync.WaitGroup
	for range many {
		stuck.Go(func() {
			if err := g.Do(share.For(t.Context(), "a"), large("held")); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "a project has its share", func() bool { return g.large.HeldBy("a") == largeBytes/2 })
	for _, p := range []*probe{insertIgnoring(LockKey, "small"), large("large")} {
		if err := g.Do(share.For(t.Context(), "b"), p); err != nil || p.rows != 1 || p.queued != 0 {
			t.Errorf("%s: got %d rows and error %v, want one", p.order.Name, p.rows, err)
		}
	}
	ctx, cancel := context.WithCancel(share.For(t.Context(), "a"))
	cancel()
	if err := g.Do(ctx, large("given up")); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	check.NoError(t, rival.Rollback(t.Context()))
	stuck.Wait()
	check.Equal(t, "bytes are still held", g.large.Held(), 0)
}

// TestTransactionBeginsWithTheCommitBeforeIt: statements wait while one transaction is being executed, unless there are
// enough of them, and not while its commit waits.
func TestTransactionBeginsWithTheCommitBeforeIt(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t, InstallExecuted)}
	f.probes(t)
	testdb.Exec(t, f.pool, `
		CREATE FUNCTION await() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN IF new.name = ''slow'' THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NULL; END'`)
	testdb.Exec(t, f.pool, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON probes INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION await()`)
	held := check.Value(f.pool.Begin(t.Context()))(t)
	defer rollback(t.Context(), held)
	testdb.Exec(t, held, `SELECT pg_advisory_xact_lock(1)`)
	rival := check.Value(f.pool.Begin(t.Context()))(t)
	defer rollback(t.Context(), rival)
	testdb.Exec(t, rival, `INSERT INTO probes (name) VALUES ('held'), ('slow')`)
	g := NewGroupCommit(f.pool)
	g.longest = time.Hour
	var first, slow, others sync.WaitGroup
	start := func(all *sync.WaitGroup, name string) {
		all.Go(func() {
			if err := g.Do(t.Context(), insertIgnoring(LockKey, name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wantLoad := func(what string, wantRunning, wantWaiting int) {
		eventually(t, what, func() bool {
			running, waiting := g.Load()
			return running == wantRunning && waiting == wantWaiting
		})
	}
	start(&first, "held")
	wantLoad("one is executed alone", 1, 0)
	start(&slow, "slow")
	wantLoad("another one is executed", 2, 0)
	for i := range g.beside - 1 {
		start(&others, fmt.Sprint("early ", i))
		wantLoad("statements wait", 2, i+1)
	}
	start(&others, "enough")
	others.Wait()
	start(&others, "late")
	wantLoad("a statement waits", 2, 1)
	check.NoError(t, rival.Rollback(t.Context()))
	others.Wait() // although the commit of the slow one waits
	first.Wait()
	names, transactions := f.written(t)
	if len(names) != g.beside+2 || transactions != 3 {
		t.Errorf("got %v in %d transactions, want the slow one not yet", names, transactions)
	}
	check.NoError(t, held.Rollback(t.Context()))
	slow.Wait()
}

// TestBlockedTransactionHoldsUpNoOthers for long: one that waits for a lock.
func TestBlockedTransactionHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	f := fixture{testdb.Pool(t, InstallExecuted)}
	f.probes(t)
	rival := check.Value(f.pool.Begin(t.Context()))(t)
	defer rollback(t.Context(), rival)
	testdb.Exec(t, rival, `INSERT INTO probes (name) VALUES ('held')`)
	g := NewGroupCommit(f.pool)
	var blocked sync.WaitGroup
	for n := range 3 {
		blocked.Go(func() {
			if err := g.Do(t.Context(), insertIgnoring(LockKey, "held")); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "a transaction is blocked", func() bool {
			running, waiting := g.Load()
			return running == n+1 && waiting == 0
		})
	}
	check.NoError(t, g.Do(t.Context(), insertIgnoring(LockKey, "other")))
	check.NoError(t, rival.Rollback(t.Context()))
	blocked.Wait()
}

// victim is a statement that Postgres chooses as the victim of a deadlock at first.
type victim struct{ tries int }

func (*victim) Order() LockOrder { return LockOrder{LockKey, "victim"} }

func (*victim) Size() int { return 0 }

func (v *victim) Execute(context.Context, *pgxpool.Pool) error {
	if v.tries++; v.tries == 1 {
		return &pgconn.PgError{Code: "40P01", SeverityUnlocalized: "ERROR"}
	}
	return nil
}

func (*victim) Queue(*pgx.Batch) {}

func TestVictimOfADeadlockIsRetried(t *testing.T) {
	t.Parallel()
	var v victim
	if err := NewGroupCommit(nil).Do(t.Context(), &v); err != nil || v.tries != 2 {
		t.Errorf("got error %v after %d tries, want none after 2", err, v.tries)
	}
}
