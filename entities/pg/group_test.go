package pg

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// fixture is a database with a table of probes.
type fixture struct{ pool *pgxpool.Pool }

// meet executes n statements at once while all transactions of the group are under way, and returns their errors.
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

// probe is a member that writes its name into the table of probes.
type probe struct {
	rank LockOrder
	sql  string

	rows         int64
	alone, queue int
}

// enters is a probe that finds nothing to do if its name is there.
func enters(rank LockOrder) *probe {
	return &probe{rank: rank, sql: `INSERT INTO probes (name) VALUES ($1) ON CONFLICT DO NOTHING`}
}

// insists is a probe that Postgres refuses if its name is there.
func insists(rank LockOrder) *probe {
	return &probe{rank: rank, sql: `INSERT INTO probes (name) VALUES ($1)`}
}

func (p *probe) Order() LockOrder { return p.rank }

func (p *probe) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	p.alone++
	tag, err := pool.Exec(ctx, p.sql, p.rank.Name)
	p.rows = tag.RowsAffected()
	return err
}

func (p *probe) Queue(b *pgx.Batch) {
	p.queue++
	b.Queue(p.sql, p.rank.Name).Exec(func(tag pgconn.CommandTag) error {
		p.rows = tag.RowsAffected()
		return nil
	})
}

// probes makes the table of probes, with those that are there at first.
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
		if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// entered are the names in the order in which they were written, and how many transactions did.
func (f fixture) entered(t *testing.T) (names []string, transactions int) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(),
		`SELECT coalesce(array_agg(name ORDER BY n), '{}'), count(DISTINCT xid) FROM probes`).Scan(&names, &transactions); err != nil {
		t.Fatal(err)
	}
	return names, transactions
}

// do has the group do them all in one transaction.
func do(t *testing.T, g *GroupCommit, members []*probe) []error {
	t.Helper()
	return meet(t, g, len(members), func(ctx context.Context, i int) error { return g.Do(ctx, members[i]) })
}

// TestMembersOfAllKindsShareATransaction, in the order of their ranks, whoever came first.
func TestMembersOfAllKindsShareATransaction(t *testing.T) {
	t.Parallel()
	f := fixture{openPool(t, testdb.New(t))}
	f.probes(t)
	members := []*probe{
		enters(LockOrder{LockKey, "a"}), enters(LockOrder{LockRun, "c"}), enters(LockOrder{LockLease, "z"}), enters(LockOrder{LockRun, "b"}),
		enters(LockOrder{LockLease, "y"}), enters(LockOrder{LockKey, "0"}),
	}
	g := NewGroupCommit(f.pool)
	for i, err := range do(t, g, members) {
		if p := members[i]; err != nil || p.rows != 1 || p.alone > 0 {
			t.Errorf("%s: got %d rows and error %v, executed %d times alone; want 1 row", p.rank.Name, p.rows, err, p.alone)
		}
	}
	names, transactions := f.entered(t)
	if diff := cmp.Diff([]string{"y", "z", "b", "c", "0", "a"}, names); diff != "" || transactions != 1 {
		t.Errorf("%d transactions, want 1, which wrote (-want +got):\n%s", transactions, diff)
	}
}

// TestAMemberThatFindsNothingToDo is told so, and the others feel nothing of it.
func TestAMemberThatFindsNothingToDo(t *testing.T) {
	t.Parallel()
	f := fixture{openPool(t, testdb.New(t))}
	f.probes(t, "b")
	members := []*probe{enters(LockOrder{LockKey, "a"}), enters(LockOrder{LockKey, "b"}), enters(LockOrder{LockKey, "c"})}
	for i, err := range do(t, NewGroupCommit(f.pool), members) {
		if p, want := members[i], []int64{1, 0, 1}[i]; err != nil || p.rows != want || p.alone > 0 {
			t.Errorf("%s: got %d rows and error %v, executed %d times alone; want %d rows", p.rank.Name, p.rows, err, p.alone, want)
		}
	}
	if names, transactions := f.entered(t); len(names) != 3 || transactions != 2 {
		t.Errorf("got %v in %d transactions, want a and c in one", names, transactions)
	}
}

// TestAMemberThatIsRefusedLeavesTheOthersAlone: each is executed by itself then, for the one that comes first as well as
// for those behind it.
func TestAMemberThatIsRefusedLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	f := fixture{openPool(t, testdb.New(t))}
	f.probes(t, "b")
	members := []*probe{enters(LockOrder{LockRun, "a"}), insists(LockOrder{LockRun, "b"}), enters(LockOrder{LockKey, "c"})}
	for i, err := range do(t, NewGroupCommit(f.pool), members) {
		p, wrong := members[i], ViolatedConstraint(err) == "probes_pkey"
		if wrong != (i == 1) || !wrong && (err != nil || p.rows != 1) || p.queue != 1 || p.alone != 1 {
			t.Errorf("%s: got %d rows and error %v, queued %d times, executed %d times alone",
				p.rank.Name, p.rows, err, p.queue, p.alone)
		}
	}
	if names, transactions := f.entered(t); len(names) != 3 || transactions != 3 {
		t.Errorf("got %v in %d transactions, want each in its own", names, transactions)
	}
}

// TestWhoAsksForWhatIsUnderWayHearsOfItsEnd, also if nobody waits for him any more.
func TestWhoAsksForWhatIsUnderWayHearsOfItsEnd(t *testing.T) {
	t.Parallel()
	f := fixture{openPool(t, testdb.New(t))}
	f.probes(t)
	rival, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rival.Exec(t.Context(), `INSERT INTO probes (name) VALUES ('a')`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, p, other := NewGroupCommit(f.pool), enters(LockOrder{LockKey, "a"}), enters(LockOrder{LockKey, "b"})
	errs := meet(t, g, 2, func(_ context.Context, i int) error {
		if i == 1 {
			return g.Do(t.Context(), other)
		}
		go func() {
			eventually(t, "somebody waits for a lock", func() (waits bool) {
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
			t.Errorf("member %d: %v", i, err)
		}
	}
	if p.rows != 1 || p.alone != 0 || other.rows != 1 {
		t.Errorf("got %d and %d rows, want one each", p.rows, other.rows)
	}
}

// TestTwoGroupsWaitInOneOrder: of whatever kind the rows are that their members contend for, and however those came.
func TestTwoGroupsWaitInOneOrder(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixture{openPool(t, dsn)}
	f.probes(t)
	sessions := [2]*gate.Session{gate.Open(t, dsn, f.pool, nil), gate.Open(t, dsn, f.pool, nil)}
	ranks := []LockOrder{{LockKey, "a"}, {LockLease, "b"}, {LockRun, "c"}, {LockKey, "d"}}
	waits := 0
	schedules := gate.Explore(t, sessions[0], sessions[1], func(s *gate.Schedule) {
		if _, err := f.pool.Exec(t.Context(), `DELETE FROM probes`); err != nil {
			t.Fatal(err)
		}
		var groups [2][]*waiter
		for _, r := range ranks {
			groups[0] = append(groups[0], &waiter{Statement: enters(r), done: make(chan struct{})})
			groups[1] = append(groups[1], &waiter{Statement: enters(r), done: make(chan struct{})})
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
		if names, transactions := f.entered(t); len(names) != len(ranks) || transactions != 1 {
			t.Errorf("got %v in %d transactions, want all of them in one", names, transactions)
		}
	})
	if waits == 0 {
		t.Errorf("in %d schedules nobody waited", schedules)
	}
}
