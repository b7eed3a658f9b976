package harness

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Rows returns all rows of all tables of a schema as text, a row a line, with the name of its table. Bytes are
// hexadecimal.
func Rows(ctx context.Context, dsn, schema string) (string, error) {
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	query := func(sql string, args ...any) ([]string, error) {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	tables, err := query("SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", schema)
	if err != nil {
		return "", fmt.Errorf("list the tables: %w", err)
	}
	var all strings.Builder
	for _, table := range tables {
		rows, err := query("SELECT r::text FROM " + pgx.Identifier{schema, table}.Sanitize() + " r")
		if err != nil {
			return "", fmt.Errorf("read %s: %w", table, err)
		}
		for _, row := range rows {
			fmt.Fprintln(&all, table, row)
		}
	}
	return all.String(), nil
}
