package testdb

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Indexed is [New] for a test that checks that all its statements use indexes. If any session has scanned a growing
// table sequentially, the test fails when it ends.
//
// Connections to this address use generic plans (plan_cache_mode), as long-lived connections may. Those of
// migrations.Pool also have enable_seqscan off, so Postgres scans sequentially only if no index is usable. A test that
// queries the database by other connections must set enable_seqscan off there, too.
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
		tables, err := scanned(ctx, dsn)
		if err != nil {
			t.Errorf("testdb: %v", err)
		}
		for _, table := range tables {
			t.Errorf("table %s was scanned sequentially: is there an index that a generic plan can use?", table)
		}
	})
	q := u.Query()
	q.Set("plan_cache_mode", "force_generic_plan")
	u.RawQuery = q.Encode()
	return u.String()
}

// Read returns how many entries of each index were read. It first waits for all other sessions to end.
func Read(t testing.TB, dsn string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cleanUpLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := awaitAlone(ctx, conn); err != nil {
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

// scanned returns the tables that were scanned sequentially. It ignores tables that stay small: those with one row, or
// one row per server, deployment, project, key or migration.
func scanned(ctx context.Context, dsn string) (tables []string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := awaitAlone(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `
		SELECT relname FROM pg_stat_user_tables
		WHERE seq_scan > 0 AND relname NOT IN (
			'river_leader', 'sweeper', 'processes', 'deployments', 'projects', 'stats_progress', 'api_keys',
			'signing_keys', 'goose_db_version')
		ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// awaitAlone waits until all other sessions have ended, because a session reports its statistics when it ends.
func awaitAlone(ctx context.Context, conn *pgx.Conn) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		var others int
		err := conn.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d other sessions to end: %w", others, ctx.Err())
		}
	}
}
