package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// batch is how many rows one transaction deletes, with those that go with them.
const batch = 500

// leave marks the source and deletes the project's rows there.
func (m *Mover) leave(ctx context.Context, d departure) error {
	var lingering time.Duration
	err := pg.InTx(ctx, m.From, func(tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(asMover)
		tag, err := tx.Exec(ctx, `
			UPDATE departures SET moved_at = now() WHERE project = $1 AND fenced_at = $2 AND moved_at IS NULL`,
			d.Project, d.FencedAt)
		if err != nil {
			return err
		}
		if tag.RowsAffected() > 0 {
			audited(ctx, &b, d)
		}
		b.Queue(`SELECT moved_at + $3::interval - now() FROM departures WHERE project = $1 AND fenced_at = $2`,
			d.Project, d.FencedAt, m.Lingering).QueryRow(func(row pgx.Row) error { return row.Scan(&lingering) })
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("mark the project: %w", err)
	}
	m.reach(ctx, marked, "project", d.Project)
	if err := wait(ctx, lingering); err != nil {
		return err
	}
	return m.clean(ctx, d)
}

// clean deletes the project's rows in the source, and then fences only what can still be written.
func (m *Mover) clean(ctx context.Context, d departure) error {
	// Nothing is deleted once this departure is over: another command may have finished it, and the project may have come
	// back.
	departed := func(ctx context.Context, tx pgx.Tx) (bool, error) {
		gone, err := tx.Exec(ctx, `
			SELECT FROM departures
			WHERE project = $1 AND fenced_at = $2 AND moved_at IS NOT NULL AND cleaned_at IS NULL FOR SHARE`,
			d.Project, d.FencedAt)
		return gone.RowsAffected() > 0, err
	}
	del := deleter{m, m.From, d.Project, departed}
	err := del.tables(ctx, func(t table) string {
		switch {
		case t.stays:
			return ""
		case t.name == "audit":
			return t.ofProject() + ` AND t.at < (SELECT moved_at FROM departures WHERE project = $project)`
		}
		return t.ofProject()
	})
	for _, name := range []string{"leaving", "leaving_changes"} {
		if err == nil {
			err = del.rows(ctx, name, `t.project = $project`)
		}
	}
	if err != nil {
		return err
	}
	_, err = m.From.Exec(ctx, `UPDATE departures SET cleaned_at = now() WHERE project = $1 AND fenced_at = $2`,
		d.Project, d.FencedAt)
	if err == nil {
		err = fence(ctx, m.From, tables)
	}
	if err == nil {
		m.reach(ctx, cleaned, "project", d.Project)
	}
	return err
}

// A deleter deletes rows of a project, in batches. Conditions are on the row t, and have $project for the project.
type deleter struct {
	mover   *Mover
	pool    *pgxpool.Pool
	project entities.Project
	// may locks what says that rows may be deleted, in the transaction of each batch. It returns false if that does not
	// say so; then none is.
	may func(context.Context, pgx.Tx) (bool, error)
}

// tables deletes the rows that a condition selects for each table; none if it is empty.
func (del deleter) tables(ctx context.Context, where func(table) string) error {
	for _, t := range slices.Backward(tables) {
		condition := where(t)
		if condition == "" || t.goes != "" {
			continue
		}
		if err := del.rows(ctx, t.name, condition); err != nil {
			return err
		}
	}
	return nil
}

// rows deletes the rows of one table that the condition selects.
func (del deleter) rows(ctx context.Context, name, where string) error {
	text, err := quoted(ctx, del.pool, string(del.project))
	where = strings.ReplaceAll(where, "$project", text)
	for n := int64(batch); err == nil && n == batch; {
		if n, err = del.batch(ctx, name, where); n > 0 {
			del.mover.reach(ctx, cleaning, "project", del.project, "table", name, "rows", n)
		}
	}
	return pg.Wrap(err, "delete from %s", name)
}

// batch deletes up to [batch] rows and returns how many.
func (del deleter) batch(ctx context.Context, name, where string) (n int64, err error) {
	err = pg.InTx(ctx, del.pool, func(tx pgx.Tx) error {
		if ok, err := del.may(ctx, tx); err != nil || !ok {
			return err
		}
		if _, err := tx.Exec(ctx, asMover); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			DELETE FROM `+name+` WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM `+name+` t WHERE `+where+` LIMIT $1))`, batch)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
