// Package migrations holds the database schema as numbered SQL files, and migrates a database to the latest version:
// Stepwell's own tables, and River's in the same schema.
//
// # New migrations
//
// Servers of the previous version go on working while a migration runs and afterwards (docs/operations.md, Upgrades).
// So a migration only adds: tables, columns with a constant default or none, indexes, and constraints that all writes
// of the previous version satisfy. What is no longer used is removed by the migration of a later version, when no
// server uses it. A column never changes its name or type: a new column takes its place. The numbers of a minor
// release begin with a hundred of their own, 1xx for 0.1, by which programs know schemas that are too new for them: see
// [Check].
//
// A migration is one transaction and must be short, because its locks are kept until the commit. It rewrites and scans
// none of the tables that grow: events, runs, steps, hooks, waits, messages, message_keys, streams and stream_chunks.
// It therefore
//
//   - adds a constraint as NOT VALID, and validates it in a migration of its own, which lets others read and write
//   - builds an index on such a table with CREATE INDEX CONCURRENTLY, in a file with one index and the annotation
//     "goose NO TRANSACTION". The file first sets lock_timeout to 0, because such an index waits for old transactions
//     without blocking new ones; then drops the index if it exists, because a failed build leaves an invalid one; and
//     finally resets lock_timeout
//   - copies rows in batches from the server's code, not in SQL of the migration
package migrations

import (
	"context"
	"embed"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultSchema is the Postgres schema of all tables unless configured otherwise.
const DefaultSchema = "stepwell"

//go:embed sql/*.sql
var files embed.FS

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// createSchema creates the schema unless it exists. Its owner may lack the right to create schemas in the database,
// which IF NOT EXISTS requires nevertheless.
func createSchema(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var exists bool
	err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = pool.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize())
	return err
}

// defaultConnections is the size of a pool if the database URL has no pool_max_conns.
const defaultConnections = 20

// Pool opens a pool whose connections have the schema as their search path and return times in UTC. The options change
// its configuration, for example timeouts.
func Pool(ctx context.Context, dsn, schema string, options ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = defaultConnections
	}
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	config.ConnConfig.RuntimeParams["application_name"] = "stepwell"
	// All statements are short. Compiling one that the planner overestimates takes longer than running it.
	config.ConnConfig.RuntimeParams["jit"] = "off"
	// Every statement on a growing table has an index. But a plan made while the table is empty and just vacuumed, as
	// queues often are, would be a sequential scan, and would stay so until the next vacuum, however large the table
	// grows.
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	for _, option := range options {
		option(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}
