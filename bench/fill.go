package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// fill stores many runs without executing them, which would take an hour. They are copies of an ended run with all its
// rows, with other IDs and earlier times, and pass stepwell verify.
func (b *bench) fill(ctx context.Context, s *testbed, runs int) (time.Duration, error) {
	_, r, err := runByWire(ctx, s, workflowPrefix+"seq-1")
	if err != nil {
		return 0, err
	}
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	began := time.Now()
	// The copies are consistent, so foreign keys need not be checked.
	if _, err := conn.Exec(ctx, `SET session_replication_role = replica; SET maintenance_work_mem = '512MB'`); err != nil {
		return 0, fmt.Errorf("prepare: %w", err)
	}
	indexes, err := dropIndexes(ctx, conn)
	if err != nil {
		return 0, err
	}
	for _, of := range copied {
		if err := of.copy(ctx, conn, r.Run, runs); err != nil {
			return 0, err
		}
	}
	for _, definition := range indexes {
		if _, err := conn.Exec(ctx, definition); err != nil {
			return 0, fmt.Errorf("create index: %w", err)
		}
	}
	for _, of := range copied {
		if _, err := conn.Exec(ctx, `VACUUM (ANALYZE) `+of.table); err != nil {
			return 0, fmt.Errorf("vacuum: %w", err)
		}
	}
	return time.Since(began), s.cluster.checkpoint(ctx)
}

// copies describes how to copy the rows of a run in a table.
type copies struct {
	table string
	of    string            // the column with the run's ID
	other map[string]string // expressions for columns that differ in the copies
}

// In the expressions, n is the number of the copy.
const (
	copyOfRun  = `'wrun_01J0000000' || lpad(n::text, 16, '0')`
	copyOfStep = `'step_01J0000000' || lpad(n::text, 16, '0')`
)

var copied = []copies{
	{"runs", "id", map[string]string{"id": copyOfRun}},
	{"events", "run_id", map[string]string{
		"run_id": copyOfRun, "correlation_id": `CASE correlation_id WHEN '' THEN '' ELSE ` + copyOfStep + ` END`,
	}},
	{"steps", "run_id", map[string]string{"run_id": copyOfRun, "id": copyOfStep}},
}

// copy copies the run's rows the given number of times, 10 ms apart.
func (c copies) copy(ctx context.Context, conn *pgx.Conn, run string, times int) error {
	rows, err := conn.Query(ctx, `
		SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, c.table)
	if err != nil {
		return fmt.Errorf("read columns of %s: %w", c.table, err)
	}
	var columns, values []string
	var name, typ string
	_, err = pgx.ForEachRow(rows, []any{&name, &typ}, func() error {
		column := pgx.Identifier{name}.Sanitize()
		value := column
		if other, ok := c.other[name]; ok {
			value = other
		} else if strings.HasPrefix(typ, "timestamp") {
			value = fmt.Sprintf("%s - (%d - n) * interval '10 ms'", column, times)
		}
		columns, values = append(columns, column), append(values, value)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read columns of %s: %w", c.table, err)
	}
	order := "n"
	if c.table == "events" {
		order = "n, seq"
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %s (%s)
		SELECT %s FROM generate_series(1, %d) n, %s WHERE %s = '%s' ORDER BY %s`,
		c.table, strings.Join(columns, ", "), strings.Join(values, ", "), times, c.table, c.of, run, order))
	if err != nil {
		return fmt.Errorf("copy into %s: %w", c.table, err)
	}
	return nil
}

// dropIndexes drops the indexes of the tables, except those of constraints, and returns their definitions. It is much
// faster to create the indexes after the inserts.
func dropIndexes(ctx context.Context, conn *pgx.Conn) (definitions []string, err error) {
	tables := make([]string, len(copied))
	for i, c := range copied {
		tables[i] = c.table
	}
	rows, err := conn.Query(ctx, `
		SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid::regclass::text = ANY ($1) AND NOT EXISTS (
			SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)`, tables)
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	var names []string
	var name, definition string
	_, err = pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
		names, definitions = append(names, pgx.Identifier{name}.Sanitize()), append(definitions, definition)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	if _, err := conn.Exec(ctx, `DROP INDEX `+strings.Join(names, ", ")); err != nil {
		return nil, fmt.Errorf("drop indexes: %w", err)
	}
	return definitions, nil
}
