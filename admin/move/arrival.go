package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// pass is what of a project is copied ahead.
type pass string

// The passes, in their order. Each copies all that belongs to its runs.
const (
	wiping       pass = "wiping"        // rows of an earlier move are deleted
	runs         pass = "runs"          // runs that have ended
	archivedRuns pass = "archived_runs" // runs that are only listed
	runKeys      pass = "run_keys"      // keys of others
	following    pass = "following"     // what has changed meanwhile
)

var passes = []pass{wiping, runs, archivedRuns, runKeys, following}

// arrival is a row of the target's table arriving: how far its project is copied ahead. It changes in the transactions
// that copy, so whatever becomes of a command or of either database, it is true of the rows that are there.
type arrival struct {
	Project  entities.Project
	Cell     entities.Cell
	BeganAt  time.Time
	Steps    int64
	Pass     pass
	At       time.Time
	RunID    entities.RunID
	Followed string
	Epoch    string
	Place    int64
}

const arrivalColumns = `project, cell, began_at, steps, pass, at, run_id, followed::text AS followed, epoch, place`

func readArrivals(ctx context.Context, q pg.Querier, project entities.Project) ([]arrival, error) {
	found, err := pg.CollectAll[arrival](q.Query(ctx, `
		SELECT `+arrivalColumns+` FROM arriving WHERE project = $1`, project))
	return found, pg.Wrap(err, "read what has been copied")
}

// prepare returns how far the project is copied ahead. It begins anew, with nothing of the project in the target,
// unless that was copied by this move and from a history that goes on.
func (m *Mover) prepare(ctx context.Context, d departure, began time.Time) (arrival, error) {
	found, err := readArrivals(ctx, m.To, d.Project)
	if err != nil {
		return arrival{}, err
	}
	if len(found) > 0 && found[0].Pass != wiping && found[0].BeganAt.Equal(began) {
		kept, err := pg.CollectValue[bool](m.From.Query(ctx, `
			SELECT EXISTS (SELECT FROM (
				SELECT id, cluster, lead(begins) OVER (ORDER BY number) AS ends,
					first_value(cluster) OVER (ORDER BY number DESC) AS last
				FROM feed_epochs) e
			WHERE id = $1 AND cluster = last AND (ends IS NULL OR ends >= $2))`, found[0].Epoch, found[0].Place))
		if err != nil || kept {
			return found[0], err
		}
	}
	var a arrival
	err = pg.InTxOnce(ctx, m.To, pgx.TxOptions{}, func(to pgx.Tx) error {
		// As of a project that has left, and of which nothing is here: nobody makes one, and nobody touches the rows.
		_, err := to.Exec(ctx, `
			INSERT INTO departures (project, here, cell, target, moved_at, cleaned_at) VALUES ($1, $2, $3, '', now(), now())
			ON CONFLICT (project) DO NOTHING`, d.Project, d.Cell, d.Here)
		if err != nil {
			return err
		}
		rows, err := to.Query(ctx, `
			INSERT INTO arriving AS a (project, cell, began_at, pass) VALUES ($1, $2, $3, $4)
			ON CONFLICT (project) DO UPDATE SET began_at = excluded.began_at, pass = excluded.pass, steps = a.steps + 1,
				at = excluded.at, run_id = '', followed = excluded.followed
			WHERE a.cell = excluded.cell
			RETURNING `+arrivalColumns, d.Project, d.Here, began, wiping)
		a, err = pg.CollectOne[arrival](rows, err, errOther)
		return err
	})
	if err != nil {
		return a, pg.Wrap(err, "prepare the other cell")
	}
	if err := fence(ctx, m.To, names); err != nil {
		return a, err
	}
	if err := m.wipe(ctx, a); err != nil {
		return a, err
	}
	next := a
	next.Pass = runs
	err = m.step(ctx, &a, next, func(pgx.Tx) error { return nil })
	return a, err
}

// readAt returns a with the place of the snapshot.
func (a arrival) readAt(ctx context.Context, from pgx.Tx) (arrival, error) {
	err := from.QueryRow(ctx, `
		SELECT id, (`+pg.FeedPosition(`pg_snapshot_xmax(pg_current_snapshot())`)+`)::text::bigint FROM feed_epochs
		ORDER BY number DESC LIMIT 1`).Scan(&a.Epoch, &a.Place)
	return a, pg.Wrap(err, "read the place")
}

// errOther is the error of a command that finds that another one goes on with its move, or has given it up.
var errOther = errors.New("another command goes on with the move, or has given it up")

// step commits what fn writes to the target, together with how far the project is then.
func (m *Mover) step(ctx context.Context, a *arrival, next arrival, fn func(to pgx.Tx) error) error {
	next.Steps = a.Steps + 1
	err := pg.InTxOnce(ctx, m.To, pgx.TxOptions{}, func(to pgx.Tx) error {
		tag, err := to.Exec(ctx, `
			UPDATE arriving SET steps = $4, pass = $5, at = $6, run_id = $7, followed = $8::text::xid8, epoch = $9, place = $10
			WHERE project = $1 AND began_at = $2 AND steps = $3`,
			a.Project, a.BeganAt, a.Steps, next.Steps, next.Pass, next.At, next.RunID, next.Followed, next.Epoch, next.Place)
		if err == nil && tag.RowsAffected() == 0 {
			err = errOther
		}
		if err == nil {
			_, err = to.Exec(ctx, asMover)
		}
		if err != nil {
			return fmt.Errorf("note how far the copy is: %w", err)
		}
		return fn(to)
	})
	if err == nil {
		*a = next
	}
	return err
}

// wipe deletes what of the project is copied ahead.
func (m *Mover) wipe(ctx context.Context, a arrival) error {
	unchanged := func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, `
			SELECT FROM arriving WHERE project = $1 AND began_at = $2 AND steps = $3 FOR SHARE`, a.Project, a.BeganAt, a.Steps)
		if err == nil && tag.RowsAffected() == 0 {
			err = errOther
		}
		return true, err
	}
	return deleter{m, m.To, a.Project, unchanged}.tables(ctx, func(t table) string {
		if !t.ahead {
			return ""
		}
		return t.ofProject()
	})
}

// forget gives up an arrival, with all that is copied of it.
func (m *Mover) forget(ctx context.Context, a arrival) error {
	err := m.wipe(ctx, a)
	if err == nil {
		err = pg.InTx(ctx, m.To, func(tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(`DELETE FROM arriving WHERE project = $1 AND began_at = $2`, a.Project, a.BeganAt)
			// A project that has been there once still has its name.
			b.Queue(`
				DELETE FROM departures WHERE project = $1 AND NOT EXISTS (SELECT FROM projects WHERE name = $1)
					AND NOT EXISTS (SELECT FROM arriving WHERE project = $1)`, a.Project)
			return tx.SendBatch(ctx, &b).Close()
		})
	}
	if err == nil {
		err = fence(ctx, m.To, names)
	}
	return err
}
