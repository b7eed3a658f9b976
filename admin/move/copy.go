package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// copyRest copies what has not been copied ahead from one snapshot of the source to the transaction of the target,
// with the arrival.
func (m *Mover) copyRest(ctx context.Context, to pgx.Tx, d departure, a arrival) error {
	return pg.InSnapshot(ctx, m.From, func(from pgx.Tx) error {
		end, err := m.makeRoom(ctx, from, to, d, a)
		if err != nil {
			return err
		}
		left, err := remaining(ctx, from, d, a)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(left, pageRuns) {
			if err := m.erase(ctx, to, d, some); err != nil { // all, before one takes the key of another one
				return err
			}
		}
		for some := range slices.Chunk(left, pageRuns) {
			if err := m.copyRuns(ctx, from, to, d, some); err != nil {
				return err
			}
		}
		if err := m.copyOthers(ctx, from, to, d); err != nil {
			return err
		}
		return arrive(ctx, from, to, d, end)
	})
}

// copyOthers copies the rows of all tables that are not copied run by run.
func (m *Mover) copyOthers(ctx context.Context, from, to pgx.Tx, d departure) error {
	// The connections of the program do without, since they read few rows.
	if _, err := from.Exec(ctx, `SET LOCAL enable_seqscan = on`); err != nil {
		return err
	}
	project, err := quoted(ctx, from, string(d.Project))
	if err != nil {
		return err
	}
	if _, err := to.Exec(ctx, encryption.LockKeys); err != nil {
		return err
	}
	revision, err := pg.CollectValue[int64](to.Query(ctx, `SELECT coalesce(max(revision), 0) FROM data_keys`))
	if err != nil {
		return err
	}
	pauses, err := pg.CollectColumn[int64](from.Query(ctx, `
		SELECT id FROM pauses WHERE project = $1 ORDER BY id`, d.Project))
	if err != nil {
		return err
	}
	numbers, err := renumber(ctx, to, "pauses", pauses)
	if err != nil {
		return err
	}
	texts := strings.NewReplacer(
		"$project", project, "$revision", strconv.FormatInt(revision, 10), "$pauses", numbers)
	return m.copyTables(ctx, from, to, texts, func(t table) bool { return !t.ahead })
}

// copyRuns copies all that belongs to the runs.
func (m *Mover) copyRuns(ctx context.Context, from, to pgx.Tx, d departure, ids []entities.RunID) error {
	if len(ids) == 0 {
		return nil
	}
	texts, err := textsOf(ctx, from, d, ids)
	if err != nil {
		return err
	}
	streams, err := pg.CollectColumn[int64](from.Query(ctx, `
		SELECT id FROM streams WHERE project = $1 AND run_id = ANY ($2) ORDER BY id`, d.Project, ids))
	if err != nil {
		return err
	}
	numbers, err := renumber(ctx, to, "streams", streams)
	if err != nil {
		return err
	}
	m.copiedRuns += int64(len(ids))
	return m.copyTables(ctx, from, to, strings.NewReplacer(append(texts, "$streams", numbers)...), func(t table) bool {
		return t.ahead && (t.from == "" || len(streams) > 0)
	})
}

// erase deletes from the target's transaction all that belongs to the runs.
func (m *Mover) erase(ctx context.Context, to pgx.Tx, d departure, ids []entities.RunID) error {
	texts, err := textsOf(ctx, to, d, ids)
	if err != nil {
		return err
	}
	var b pgx.Batch
	for _, t := range slices.Backward(tables) {
		if t.ahead && t.goes == "" {
			b.Queue(strings.NewReplacer(texts...).Replace(`DELETE FROM ` + t.name + ` t WHERE ` + t.ofRuns()))
		}
	}
	return pg.Wrap(to.SendBatch(ctx, &b).Close(), "delete runs that have changed")
}

// textsOf are the project and the runs in the SQL of tables, and what replaces them.
func textsOf(ctx context.Context, q pg.Querier, d departure, ids []entities.RunID) ([]string, error) {
	project, err := quoted(ctx, q, string(d.Project))
	if err != nil {
		return nil, err
	}
	list, err := pg.CollectValue[string](q.Query(ctx, `SELECT quote_literal($1::text[]::text) || '::text[]'`, ids))
	return []string{"$project", project, "$runs", list}, err
}

// quoted returns a text as a literal of SQL.
func quoted(ctx context.Context, q pg.Querier, text string) (string, error) {
	return pg.CollectValue[string](q.Query(ctx, `SELECT quote_literal($1::text)`, text))
}

// renumber takes new IDs of a table from the target's sequence, and returns the SQL of the table that translates the
// old ones.
func renumber(ctx context.Context, to pgx.Tx, name string, old []int64) (string, error) {
	const numbers = `(SELECT unnest('%s'::bigint[]) AS old, unnest('%s'::bigint[]) AS new)`
	if len(old) == 0 {
		return fmt.Sprintf(numbers, "{}", "{}"), nil
	}
	var from, into string
	err := to.QueryRow(ctx, `
		SELECT $2::bigint[]::text, (array_agg(nextval($1::text::regclass)))::text
		FROM generate_series(1, cardinality($2::bigint[]))`, name+"_id_seq", old).Scan(&from, &into)
	return fmt.Sprintf(numbers, from, into), pg.Wrap(err, "take IDs of %s", name)
}

// copyTables copies rows of some tables.
func (m *Mover) copyTables(
	ctx context.Context, from, to pgx.Tx, texts *strings.Replacer, some func(table) bool,
) error {
	for _, t := range tables {
		if !some(t) {
			continue
		}
		n, err := t.copy(ctx, from, to, texts)
		if err != nil {
			return fmt.Errorf("copy table %s: %w", t.name, err)
		}
		m.copiedRows += n
	}
	return nil
}

// makeRoom makes the places of the target's events come after those of the source, and deletes what says that the
// target does not have the project, and what it has left there once. It returns the place after the source's events.
func (m *Mover) makeRoom(ctx context.Context, from, to pgx.Tx, d departure, a arrival) (end int64, err error) {
	end, err = pg.CollectValue[int64](from.Query(ctx, `
		SELECT (`+pg.FeedPosition(`pg_snapshot_xmax(pg_current_snapshot())`)+`)::text::bigint`))
	if err == nil {
		err = locking(ctx, m.To, func(tx pgx.Tx) error { return pg.RaiseFeed(ctx, tx, end) })
	}
	if err == nil {
		_, err = to.Exec(ctx, asMover)
	}
	if err != nil {
		return end, err
	}
	gone, err := to.Exec(ctx, `
		DELETE FROM arriving WHERE project = $1 AND began_at = $2 AND steps = $3`, d.Project, a.BeganAt, a.Steps)
	if err == nil && gone.RowsAffected() == 0 {
		err = errOther
	}
	if err != nil {
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

// copy copies rows of the table, and returns their number.
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
	where := t.ofProject()
	if t.ahead {
		where = t.ofRuns()
	}
	query := `SELECT ` + strings.Join(values, ", ") + ` FROM ` + t.name + ` t` + t.from + ` WHERE ` + where
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
