package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
	project, err := pg.CollectValue[string](m.From.Query(ctx, `SELECT quote_literal($1::text)`, d.Project))
	if err != nil {
		return err
	}
	for _, t := range slices.Backward(tables) {
		if t.stays || t.goes != "" {
			continue
		}
		where := t.ofProject()
		if t.name == "audit" {
			where += ` AND t.at < (SELECT moved_at FROM departures WHERE project = $project)`
		}
		for n := int64(batch); n == batch; {
			if n, err = m.deleteBatch(ctx, d, t.name, strings.ReplaceAll(where, "$project", project)); err != nil {
				return fmt.Errorf("delete from %s: %w", t.name, err)
			}
			if n > 0 {
				m.reach(ctx, cleaning, "project", d.Project, "table", t.name, "rows", n)
			}
		}
	}
	_, err = m.From.Exec(ctx, `UPDATE departures SET cleaned_at = now() WHERE project = $1 AND fenced_at = $2`,
		d.Project, d.FencedAt)
	if err == nil {
		err = fence(ctx, m.From)
	}
	if err == nil {
		m.reach(ctx, cleaned, "project", d.Project)
	}
	return err
}

// deleteBatch deletes up to [batch] rows and returns how many. It deletes none once the project is not on this
// departure any more: another command may have finished it, and the project may have come back.
func (m *Mover) deleteBatch(ctx context.Context, d departure, name, where string) (n int64, err error) {
	err = pg.InTx(ctx, m.From, func(tx pgx.Tx) error {
		gone, err := tx.Exec(ctx, `
			SELECT FROM departures
			WHERE project = $1 AND fenced_at = $2 AND moved_at IS NOT NULL AND cleaned_at IS NULL FOR SHARE`,
			d.Project, d.FencedAt)
		if err != nil || gone.RowsAffected() == 0 {
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
