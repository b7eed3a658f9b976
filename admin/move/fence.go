package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/pg"
)

// depart notes the departure, unless it is noted.
func (m *Mover) depart(ctx context.Context, d departure) (departure, error) {
	_, err := m.From.Exec(ctx, `
		INSERT INTO departures (project, here, cell, target) VALUES ($1, $2, $3, $4) ON CONFLICT (project) DO NOTHING`,
		d.Project, d.Here, d.Cell, d.Target)
	if err != nil {
		return d, err
	}
	noted, err := pg.CollectAll[departure](m.From.Query(ctx, `
		SELECT project, here, cell, target, fenced_at, moved_at, cleaned_at FROM departures
		WHERE project = $1 AND cell = $2 AND target = $3 AND moved_at IS NULL`, d.Project, d.Cell, d.Target))
	if err == nil && len(noted) == 0 {
		err = refuse("another command moves project %s to another database", d.Project)
	}
	if err != nil {
		return d, err
	}
	noted[0].returning = d.returning
	return noted[0], nil
}

// fence makes the triggers of all tables refuse the writes of exactly the projects in departures. When it returns, no
// transaction is open that has written to one of them before.
func fence(ctx context.Context, pool *pgxpool.Pool) error {
	for _, t := range tables {
		err := locking(ctx, pool, func(tx pgx.Tx) error { return t.fence(ctx, tx) })
		if err != nil {
			return fmt.Errorf("fence table %s: %w", t.name, err)
		}
	}
	return nil
}

// fence locks the table, which waits for those who have written to it, and replaces its triggers. The conditions of the
// triggers have the names of the projects, so that they cost others next to nothing, and no writer can have an old
// list: a writer that gets the lock of the table sees the new triggers. Tables whose rows do not name their project are
// fenced while there are such rows.
func (t table) fence(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `LOCK TABLE `+t.name+` IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	named := t.keyed() == "project" || t.keyed() == "name"
	projects, err := pg.CollectValue[string](tx.Query(ctx, `
		SELECT quote_literal(coalesce(array_agg(project ORDER BY project), '{}')::text) || '::text[]' FROM departures
		WHERE $1 OR cleaned_at IS NULL`, named))
	if err != nil {
		return err
	}
	for _, when := range [][3]string{{"written", "INSERT OR UPDATE", "NEW"}, {"deleted", "DELETE", "OLD"}} {
		leaves := projects + ` <> '{}'`
		if named {
			leaves = when[2] + `.` + t.keyed() + ` = ANY (` + projects + `)`
		}
		_, err := tx.Exec(ctx, `
			CREATE OR REPLACE TRIGGER leaving_`+when[0]+` BEFORE `+when[1]+` ON `+t.name+` FOR EACH ROW
			WHEN (`+leaves+` AND current_setting('stepwell.mover', true) IS DISTINCT FROM 'on')
			EXECUTE FUNCTION refuse_write('`+t.keyed()+`')`)
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// lockTimeout is how long the others wait who want a table that this command waits for, and lockPause is how long they
	// are left alone then.
	lockTimeout, lockPause = "1s", 200 * time.Millisecond
	// lockTries is how often a lock is tried to get: for about five minutes.
	lockTries = 250
)

// locking calls fn in a short transaction that gets locks of whole tables, and again if it does not get them soon.
func locking(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pg.InTxOnce(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, lockTimeout); err != nil {
				return err
			}
			return fn(tx)
		})
		const lockNotAvailable, deadlock = "55P03", "40P01"
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != lockNotAvailable && refused.Code != deadlock {
			return err
		}
		if try == lockTries {
			return fmt.Errorf("a transaction is open for too long: end it, and repeat the command: %w", err)
		}
		if err := wait(ctx, lockPause); err != nil {
			return err
		}
	}
}

// wait waits, or returns the error of the context if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
