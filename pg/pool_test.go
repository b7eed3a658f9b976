package pg

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// staleSQL adds a row to the table grown and returns a column whose type the test changes.
const staleSQL = `INSERT INTO grown (name) VALUES ($1) RETURNING name`

// growth is [staleSQL] as a statement of a group.
type growth struct{ name, got string }

func (g *growth) Order() LockOrder { return LockOrder{LockRun, g.name} }

func (*growth) Size() int { return 0 }

func (g *growth) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	return pool.QueryRow(ctx, staleSQL, g.name).Scan(&g.got)
}

func (g *growth) Queue(b *pgx.Batch) {
	b.Queue(staleSQL, g.name).QueryRow(func(row pgx.Row) error { return row.Scan(&g.got) })
}

// writeGrown executes [staleSQL] in each way that must survive a stale plan.
var writeGrown = map[string]func(ctx context.Context, pool *pgxpool.Pool, name string) error{
	"query": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		rows, err := NewPool(pool).Query(ctx, staleSQL, name)
		if err != nil {
			return err
		}
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		return errors.Join(err, wantName(got, name))
	},
	"row": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		var got string
		err := NewPool(pool).QueryRow(ctx, staleSQL, name).Scan(&got)
		return errors.Join(err, wantName(got, name))
	},
	"execution": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		_, err := NewPool(pool).Exec(ctx, staleSQL, name)
		return err
	},
	"batch": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		var b pgx.Batch
		g := growth{name: name}
		b.Queue(`SELECT $1::int`, 1)
		g.Queue(&b)
		return errors.Join(NewPool(pool).Run(ctx, &b), wantName(g.got, name))
	},
	"transaction": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		return InTx(ctx, pool, func(tx pgx.Tx) error {
			var got string
			return tx.QueryRow(ctx, staleSQL, name).Scan(&got)
		})
	},
	"pipelined transaction": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		return Pipelined{
			First: func(b *pgx.Batch) { b.Queue(`SELECT name FROM grown WHERE name = $1`, name) },
			Then: func(_ context.Context, _ pgx.Tx, last *pgx.Batch) (func(error), error) {
				last.Queue(staleSQL, name)
				return nil, nil
			},
		}.Run(ctx, pool)
	},
	"statement of a group": func(ctx context.Context, pool *pgxpool.Pool, name string) error {
		g := growth{name: name}
		return errors.Join(NewGroupCommit(pool).Do(ctx, &g), wantName(g.got, name))
	},
}

func wantName(got, want string) error {
	if got != want {
		return errors.New("returned " + got + ", want " + want)
	}
	return nil
}

// openGrown returns a pool whose five connections have all prepared the statement of the given way.
func openGrown(t *testing.T, prepare func(ctx context.Context, pool *pgxpool.Pool, name string) error) *pgxpool.Pool {
	t.Helper()
	pool := check.Value(migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema, func(c *pgxpool.Config) {
		c.MaxConns = 5
	}))(t)
	t.Cleanup(pool.Close)
	testdb.Exec(t, pool, `CREATE TABLE grown (name text COLLATE "C")`)
	var taken []*pgxpool.Conn
	for range pool.Config().MaxConns { // each connection is the only free one once
		check.NoError(t, prepare(t.Context(), pool, "before"))
		conn := check.Value(pool.Acquire(t.Context()))(t)
		taken = append(taken, conn)
	}
	for _, conn := range taken {
		conn.Release()
	}
	return pool
}

// TestStalePlansAreReplaced changes the type of a column between two executions of a statement on each connection.
func TestStalePlansAreReplaced(t *testing.T) {
	t.Parallel()
	for name, write := range writeGrown {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openGrown(t, write)
			testdb.Exec(t, pool, `ALTER TABLE grown ALTER COLUMN name TYPE varchar`)
			const writers = 20
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					if err := write(t.Context(), pool, "after"); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			var rows int
			check.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM grown WHERE name = 'after'`).Scan(&rows))
			check.Equal(t, "rows", rows, writers)
		})
	}
}

func TestStalePlansOfASharedTransactionAreReplaced(t *testing.T) {
	t.Parallel()
	pool := openGrown(t, writeGrown["statement of a group"])
	testdb.Exec(t, pool, `ALTER TABLE grown ALTER COLUMN name TYPE varchar`)
	g := NewGroupCommit(pool)
	errs := meet(t, g, 3, func(ctx context.Context, _ int) error {
		s := growth{name: "after"}
		return errors.Join(g.Do(ctx, &s), wantName(s.got, "after"))
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestOnlyStalePlansAreReplaced(t *testing.T) {
	t.Parallel()
	const unsupported = "0A000"
	for routine, want := range map[string]bool{"RevalidateCachedQuery": true, "CheckSelectLocking": false} {
		check.Equal(t, routine, isStalePlan(&pgconn.PgError{Code: unsupported, Routine: routine}), want)
	}
	pool := testdb.Pool(t)
	var n int
	if err := NewPool(pool).QueryRow(t.Context(), `SELECT 1 WHERE false`).Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("got error %v, want pgx.ErrNoRows", err)
	}
	if err := NewPool(pool).QueryRow(t.Context(), `SELECT 1 / $1::int`, 0).Scan(&n); err == nil {
		t.Error("got no error, want a division by zero")
	}
	check.Equal(t, "opened connections", pool.Stat().NewConnsCount(), 1)
}
