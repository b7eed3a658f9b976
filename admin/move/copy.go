package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/pg"
)

// copyAll copies the rows of the project from one snapshot of the source to the transaction of the target, with the
// arrival.
func (m *Mover) copyAll(ctx context.Context, to pgx.Tx, d departure) error {
	return pg.InSnapshot(ctx, m.From, func(from pgx.Tx) error {
		// The connections of the program do without, since they read few rows.
		if _, err := from.Exec(ctx, `SET LOCAL enable_seqscan = on`); err != nil {
			return err
		}
		end, err := m.makeRoom(ctx, from, to, d)
		if err != nil {
			return err
		}
		texts, err := m.texts(ctx, from, to, d)
		if err != nil {
			return err
		}
		rows := int64(0)
		for _, t := range tables {
			n, err := t.copy(ctx, from, to, texts)
			if err != nil {
				return fmt.Errorf("copy table %s: %w", t.name, err)
			}
			rows += n
		}
		m.Logger.InfoContext(ctx, "copied rows", "project", d.Project, "rows", rows)
		return arrive(ctx, from, to, d, end)
	})
}

// makeRoom makes the places of the target's events come after those of the source, and deletes what a project that
// returns has left. It returns the place after the source's events.
func (m *Mover) makeRoom(ctx context.Context, from, to pgx.Tx, d departure) (end int64, err error) {
	end, err = pg.CollectValue[int64](from.Query(ctx, `
		SELECT (`+pg.FeedPosition(`pg_snapshot_xmax(pg_current_snapshot())`)+`)::text::bigint`))
	if err == nil {
		err = locking(ctx, m.To, func(tx pgx.Tx) error { return pg.RaiseFeed(ctx, tx, end) })
	}
	if err == nil {
		_, err = to.Exec(ctx, asMover)
	}
	if err != nil || !d.returning {
		return end, err
	}
	var b pgx.Batch
	for _, left := range []string{
		"session_codes WHERE project", "session_keys WHERE project", "api_keys WHERE project", "projects WHERE name",
		"departures WHERE project",
	} {
		b.Queue(`DELETE FROM `+left+` = $1`, d.Project)
	}
	return end, to.SendBatch(ctx, &b).Close()
}

// texts returns what replaces the names in the SQL of tables.
func (m *Mover) texts(ctx context.Context, from, to pgx.Tx, d departure) (*strings.Replacer, error) {
	var project string
	var streams, pauses int64
	err := from.QueryRow(ctx, `
		SELECT quote_literal($1::text), (SELECT count(*) FROM streams WHERE project = $1),
			(SELECT count(*) FROM pauses WHERE project = $1)`, d.Project).Scan(&project, &streams, &pauses)
	if err != nil {
		return nil, err
	}
	revision, err := pg.CollectValue[int64](to.Query(ctx, `SELECT coalesce(max(revision), 0) FROM data_keys`))
	if err != nil {
		return nil, err
	}
	texts := []string{"$project", project, "$revision", strconv.FormatInt(revision, 10)}
	for name, n := range map[string]int64{"streams": streams, "pauses": pauses} {
		before, err := m.reserve(ctx, name, n)
		if err != nil {
			return nil, fmt.Errorf("reserve IDs of %s: %w", name, err)
		}
		texts = append(texts, "$"+name, strconv.FormatInt(before, 10))
	}
	return strings.NewReplacer(texts...), nil
}

// reserve takes n numbers of a table's IDs from the target's sequence, and returns the number before them. Nobody takes
// one while the increment is another one: changing it locks the sequence.
func (m *Mover) reserve(ctx context.Context, name string, n int64) (before int64, err error) {
	if n == 0 {
		return 0, nil
	}
	err = locking(ctx, m.To, func(tx pgx.Tx) error {
		sequence := name + "_id_seq"
		if _, err := tx.Exec(ctx, `SELECT nextval($1::text::regclass)`, sequence); err != nil { // the first is no increment
			return err
		}
		if _, err := tx.Exec(ctx, `ALTER SEQUENCE `+sequence+` INCREMENT BY `+strconv.FormatInt(n, 10)); err != nil {
			return err
		}
		last, err := pg.CollectValue[int64](tx.Query(ctx, `SELECT nextval($1::text::regclass)`, sequence))
		if err != nil {
			return err
		}
		before = last - n
		_, err = tx.Exec(ctx, `ALTER SEQUENCE `+sequence+` INCREMENT BY 1`)
		return err
	})
	return before, err
}

// copy copies the project's rows of the table, and returns their number.
func (t table) copy(ctx context.Context, from, to pgx.Tx, texts *strings.Replacer) (int64, error) {
	all, err := pg.CollectColumn[string](from.Query(ctx, `
		SELECT attname::text FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
		ORDER BY attnum`, t.name))
	if err != nil {
		return 0, err
	}
	var columns, values []string
	for _, c := range all {
		name := pgx.Identifier{c}.Sanitize()
		value, replaced := t.values[c]
		if replaced && value == "" {
			continue
		}
		if !replaced {
			value = "t." + name
		}
		columns, values = append(columns, name), append(values, value)
	}
	query := `SELECT ` + strings.Join(values, ", ") + ` FROM ` + t.name + ` t` + t.from + ` WHERE ` + t.ofProject()
	if t.order != "" {
		query += ` ORDER BY t.` + t.order
	}
	return pipe(ctx, from, `COPY (`+texts.Replace(query)+`) TO STDOUT (FORMAT binary)`,
		to, `COPY `+t.name+` (`+strings.Join(columns, ", ")+`) FROM STDIN (FORMAT binary)`)
}

// pipe sends what one statement writes to the one that reads.
func pipe(ctx context.Context, from pgx.Tx, write string, to pgx.Tx, read string) (int64, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := from.Conn().PgConn().CopyTo(ctx, w, write)
		_ = w.CloseWithError(err) // nil is the end of the file
		written <- err
	}()
	tag, err := to.Conn().PgConn().CopyFrom(ctx, r, read)
	_ = r.CloseWithError(err) // so that the other one does not wait for ever
	return tag.RowsAffected(), errors.Join(err, <-written)
}

// arrive adds to the target what says that it has the project, and what is of the source and not of the project: the
// epochs that cursors name, and the key that has signed the tokens of calls.
func arrive(ctx context.Context, from, to pgx.Tx, d departure, end int64) error {
	calls, err := pg.CollectColumn[[]byte](from.Query(ctx, `SELECT secret FROM server_keys WHERE name = 'calls'`))
	if err != nil {
		return err
	}
	var key []byte
	if len(calls) > 0 {
		key = calls[0]
	}
	type epoch struct {
		ID   string
		Kept int64
	}
	epochs, err := pg.CollectAll[epoch](from.Query(ctx, `
		SELECT id, coalesce(lead(begins) OVER (ORDER BY number), $1) AS kept FROM feed_epochs`, end))
	if err != nil {
		return err
	}
	var b pgx.Batch
	for _, e := range epochs {
		b.Queue(`INSERT INTO arrived_epochs (project, id, kept) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			d.Project, e.ID, e.Kept)
	}
	b.Queue(`
		DELETE FROM arrived_epochs WHERE project = $1 AND id IN (SELECT id FROM feed_epochs WHERE id <> '')`, d.Project)
	b.Queue(`DELETE FROM arrivals WHERE project = $1 AND cell = $2`, d.Project, d.Cell) // it has been there before
	b.Queue(`INSERT INTO arrivals (project, cell, calls, departed_at) VALUES ($1, $2, $3, $4)`,
		d.Project, d.Here, key, d.FencedAt)
	b.Queue(`SELECT pg_notify(current_schema || '.hints', 'due')`)
	audited(ctx, &b, d)
	return to.SendBatch(ctx, &b).Close()
}
