package testdb

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Indexed is [New] for a test whose statements are to find their rows by indexes. Connections of this address plan
// each statement once for all values, as those of long life may do, and those of our pools read a table from end to end
// only if there is no other way. When the test ends, that must not have happened to a table that grows, in any session:
// what a test asks for itself, it asks with enable_seqscan off, too.
func Indexed(t testing.TB) string {
	t.Helper()
	dsn := New(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
		defer cancel()
		tables, err := readWhole(ctx, dsn)
		if err != nil {
			t.Errorf("testdb: %v", err)
		}
		for _, table := range tables {
			t.Errorf("table %s was read from end to end: is there no index, or can a plan for any value not use it?", table)
		}
	})
	q := u.Query()
	q.Set("plan_cache_mode", "force_generic_plan")
	u.RawQuery = q.Encode()
	return u.String()
}

// Read is how many entries of each index were read, by sessions that have ended: it waits until all have.
func Read(t testing.TB, dsn string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cleanUpLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := alone(ctx, conn); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	rows, err := conn.Query(ctx, `SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE idx_tup_read > 0`)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	read := map[string]int{}
	var index string
	var entries int
	_, err = pgx.ForEachRow(rows, []any{&index, &entries}, func() error {
		read[index] = entries
		return nil
	})
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	return read
}

// readWhole are the tables that were read from end to end, but for those that stay small: they have a row, or one for
// each server, deployment, project or key.
func readWhole(ctx context.Context, dsn string) (tables []string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := alone(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `
		SELECT relname FROM pg_stat_user_tables
		WHERE seq_scan > 0 AND relname NOT IN (
			'river_leader', 'sweeper', 'processes', 'deployments', 'projects', 'api_keys', 'signing_keys')
		ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// alone waits until the other sessions have ended: what they read is counted when they do.
func alone(ctx context.Context, conn *pgx.Conn) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		var others int
		err := conn.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of a test that has ended are open: %w", others, ctx.Err())
		}
	}
}
