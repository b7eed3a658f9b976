package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is a pool whose single statements survive a change of the schema. Connections keep the plans of their
// statements. If a column's type changes, Postgres refuses to execute the plans that return it ("cached plan must not
// change result type"). Such a statement has had no effect, so a Pool executes it again on a new connection.
//
// [InTx], [Pipelined] and [GroupCommit] do the same with whole transactions. Everything else of the pool is unchanged:
// a batch that it sends itself fails; see [Pool.Run].
type Pool struct{ *pgxpool.Pool }

// NewPool returns a Pool with the pool's connections.
func NewPool(p *pgxpool.Pool) Pool { return Pool{p} }

// Query is [pgxpool.Pool.Query], and waits for the first row.
func (p Pool) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	p = p.in(ctx)
	_ = replan(p.Pool, func() error {
		if rows, err = p.Pool.Query(ctx, sql, args...); err != nil {
			return err
		}
		// Postgres reports a stale plan in place of the first row.
		rows = &firstRow{Rows: rows, pending: rows.Next()}
		return rows.Err()
	})
	return rows, err
}

// QueryRow is [pgxpool.Pool.QueryRow].
func (p Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...)
	return onlyRow{rows, err}
}

// Exec is [pgxpool.Pool.Exec].
func (p Pool) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = replan(p.Pool, func() error {
		tag, err = p.Pool.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// Run sends a batch as one transaction and reads its results. The functions that read them may be called twice: the
// last results count.
func (p Pool) Run(ctx context.Context, b *pgx.Batch) error {
	p = p.in(ctx)
	return p.run(b, func(again *pgx.Batch) error { return p.SendBatch(ctx, again).Close() })
}

// runExecuted is [Pool.Run], and reads the results before the commit if [InstallExecuted] is installed.
func (p Pool) runExecuted(ctx context.Context, b *pgx.Batch) error {
	return p.run(b, func(again *pgx.Batch) error {
		return p.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			defer flush(conn.Conn())()
			return conn.SendBatch(ctx, again).Close()
		})
	})
}

func (p Pool) run(b *pgx.Batch, send func(again *pgx.Batch) error) error {
	return replan(p.Pool, func() error {
		var again pgx.Batch // pgx remembers the plans in the batch that it has sent
		for _, q := range b.QueuedQueries {
			again.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		}
		return send(&again)
	})
}

// Snapshot is [InSnapshot] that calls fn again if a plan is stale.
func (p Pool) Snapshot(ctx context.Context, fn func(pgx.Tx) error) error {
	p = p.in(ctx)
	return replan(p.Pool, func() error { return InSnapshot(ctx, p.Pool, fn) })
}

// replan calls fn again if it fails because of a plan that the schema's change made stale.
func replan(pool *pgxpool.Pool, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !isStalePlan(err) || try == maxTries {
			return err
		}
		// All other connections have stale plans too. Those in use are closed when they are released.
		pool.Reset()
	}
}

// isStalePlan reports whether Postgres refused to execute a prepared statement because its result would have other
// types than before. Nothing was executed, and the transaction is rolled back.
func isStalePlan(err error) bool {
	const featureNotSupported = "0A000"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	// The code is too general, and the text is translated.
	return ok && pg.Code == featureNotSupported && pg.Routine == "RevalidateCachedQuery"
}

// firstRow is rows whose first call of Next has already happened.
type firstRow struct {
	pgx.Rows

	pending bool // the first row is there, and the caller does not know of it
}

func (r *firstRow) Next() bool {
	if r.pending {
		r.pending = false
		return true
	}
	return r.Rows.Next()
}

// onlyRow is the result of [Pool.QueryRow].
type onlyRow struct {
	rows pgx.Rows
	err  error
}

func (r onlyRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	_, err := pgx.CollectOneRow(r.rows, func(row pgx.CollectableRow) (any, error) { return nil, row.Scan(dest...) })
	return err
}
