package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// fence makes the triggers of the tables refuse the writes of exactly the projects in departures. When it returns, no
// transaction is open that has written to one of them before.
func fence(ctx context.Context, pool *pgxpool.Pool, of []table) error {
	for _, t := range of {
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
		err := t.trigger(ctx, tx, "leaving_"+when[0], "BEFORE "+when[1], leaves, `refuse_write('`+t.keyed()+`')`)
		if err != nil {
			return err
		}
	}
	return t.note(ctx, tx)
}

// noteChanges makes the triggers note the changes of exactly the projects in leaving. When it returns, no transaction
// is open that has changed something before.
func noteChanges(ctx context.Context, pool *pgxpool.Pool) error {
	for name := range noted {
		t := table{name: name}
		err := locking(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `LOCK TABLE `+name+` IN SHARE ROW EXCLUSIVE MODE`)
			if err == nil {
				err = t.note(ctx, tx)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("note changes of table %s: %w", name, err)
		}
	}
	return nil
}

// note replaces the triggers that note changes.
func (t table) note(ctx context.Context, tx pgx.Tx) error {
	of, ok := noted[t.name]
	if !ok {
		return nil
	}
	projects, err := pg.CollectValue[string](tx.Query(ctx, `
		SELECT quote_literal(coalesce(array_agg(project ORDER BY project), '{}')::text) || '::text[]' FROM leaving`))
	for _, when := range [][3]string{
		{"INSERT", "NEW", of.inserted}, {"UPDATE", "NEW", of.updated}, {"DELETE", "OLD", of.deleted},
	} {
		if err == nil {
			err = t.trigger(ctx, tx, "noting_"+strings.ToLower(when[0]), "AFTER "+when[0],
				when[1]+`.project = ANY (`+projects+`) AND `+when[2], `note_change('`+of.run+`')`)
		}
	}
	return err
}

// trigger creates or replaces a trigger that calls a function for rows, unless this command writes them.
func (t table) trigger(ctx context.Context, tx pgx.Tx, name, when, condition, function string) error {
	_, err := tx.Exec(ctx, `
		CREATE OR REPLACE TRIGGER `+name+` `+when+` ON `+t.name+` FOR EACH ROW
		WHEN (`+condition+` AND current_setting('stepwell.mover', true) IS DISTINCT FROM 'on')
		EXECUTE FUNCTION `+function)
	return err
}

const (
	// setLockTimeout bounds for how long the others wait who want a table that this command waits for: a little longer
	// than it takes until an autovacuum gives way. lockPause is how long they are left alone then.
	setLockTimeout = `
		SELECT set_config('lock_timeout', ceil(1000 * extract(
			epoch FROM current_setting('deadlock_timeout')::interval + '500 ms'))::text, true)`
	lockPause = 200 * time.Millisecond
	// lockTries is how often a lock is tried to get: for about five minutes.
	lockTries = 180
)

// locking calls fn in a short transaction that gets locks of whole tables, and again if it does not get them soon.
func locking(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pg.InTxOnce(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, setLockTimeout); err != nil {
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
