// Package migrations holds the database schema as numbered SQL files and the runner that brings a
// database up to date: Stepwell's own tables, and River's beside them in the same schema.
//
// It imports nothing else of the module.
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

// DefaultSchema is the Postgres schema everything lives in unless configured otherwise.
const DefaultSchema = "stepwell"

//go:embed sql/*.sql
var files embed.FS

// lockID is the advisory lock that lets one server at a time migrate a database.
const lockID = 0x5354_4550_5745_4c4c // "STEPWELL"

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Up migrates the schema of the database dsn names, creating it when needed. Several processes may call
// it at once: one migrates, the others wait for it and find nothing to do.
func Up(ctx context.Context, dsn, schema string) error {
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("schema name %q: want lower-case letters, digits and underscores, at most 48", schema)
	}
	pool, err := Pool(ctx, dsn, schema)
	if err != nil {
		return err
	}
	defer pool.Close()

	// A session lock, not a transaction's: migrations run in transactions of their own, on connections of
	// their own, and the pool may have just one. Disconnecting releases it.
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, lockID); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}

	if _, err := conn.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	if err := upOurs(ctx, pool); err != nil {
		return err
	}
	return upRiver(ctx, pool, schema)
}

// defaultConnections is the size of a pool when the database URL has no pool_max_conns.
const defaultConnections = 20

// Pool opens connections whose statements find the schema's tables without naming it, and whose times
// are UTC. The options change how, such as by timeouts.
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
	// All statements are short. Those that the planner thinks long would take longer to compile than to run.
	config.ConnConfig.RuntimeParams["jit"] = "off"
	// Tables that grow have an index for every statement. One that is planned once, when its table is empty and has just
	// been vacuumed, as queues are now and then, would read it from end to end until the next vacuum, however large it
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

func upOurs(ctx context.Context, pool *pgxpool.Pool) error {
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
