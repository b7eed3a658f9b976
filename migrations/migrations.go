// Package migrations holds the database schema as numbered SQL files, and migrates a database to the latest version:
// Stepwell's own tables, and River's in the same schema.
//
// It imports no other package of the module.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// DefaultSchema is the Postgres schema of all tables unless configured otherwise.
const DefaultSchema = "stepwell"

//go:embed sql/*.sql
var files embed.FS

// lockID is the advisory lock that a server holds while it migrates a database.
const lockID = 0x5354_4550_5745_4c4c // "STEPWELL"

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Up migrates the schema in the database of dsn, and creates it if needed. Several processes may call it at once: one
// migrates, and the others wait for it and find nothing to do.
func Up(ctx context.Context, dsn, schema string) error {
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("schema name %q: want lower-case letters, digits and underscores, at most 48", schema)
	}
	pool, err := Pool(ctx, dsn, schema)
	if err != nil {
		return err
	}
	defer pool.Close()

	// The lock belongs to a session of its own: each migration runs in its own transaction on a connection of the pool,
	// which may have only one. Disconnecting releases the lock.
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, lockID); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}

	if err := createSchema(ctx, conn, schema); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	if err := upStepwell(ctx, pool); err != nil {
		return err
	}
	return upRiver(ctx, pool, schema)
}

// createSchema creates the schema unless it exists. Its owner may lack the right to create schemas in the database, which
// IF NOT EXISTS requires nevertheless.
func createSchema(ctx context.Context, conn *pgx.Conn, schema string) error {
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	_, err := conn.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize())
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

// upStepwell runs the migrations of Stepwell's tables.
func upStepwell(ctx context.Context, pool *pgxpool.Pool) error {
	provider, err := newProvider(stdlib.OpenDBFromPool(pool))
	if err != nil {
		return err
	}
	defer func() { _ = provider.Close() }()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// newProvider returns a goose provider for the embedded SQL files.
func newProvider(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, fmt.Errorf("open migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, dir)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}

// upRiver runs the migrations of River's tables.
func upRiver(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema})
	if err != nil {
		return fmt.Errorf("read River migrations: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	return nil
}
