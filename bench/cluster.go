package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// settings are the settings of the private Postgres, the same for the floor and the server. All others are the defaults
// of Postgres and of localpg. Every commit waits for the disk. Checkpoints are so rare that none falls into a measured
// window.
var settings = map[string]string{
	"fsync":                    "on",
	"synchronous_commit":       "on",
	"full_page_writes":         "on",
	"shared_buffers":           "1GB",
	"max_connections":          "200",
	"max_wal_size":             "8GB",
	"checkpoint_timeout":       "1h",
	"shared_preload_libraries": "pg_stat_statements",
	"pg_stat_statements.max":   "10000",
}

const (
	role     = "bench" // the role of the server and of pgbench
	password = "bench" // its password
)

// cluster is a private Postgres.
type cluster struct {
	dir      string // of all data
	bin      string // folder of the programs
	pid      int
	port     int
	postgres *localpg.Server
	conn     *pgx.Conn
	serial   int // number of the last database
}

// startCluster creates a Postgres in a temporary folder and starts it.
func startCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "stepwell-bench-"); err != nil {
		return fmt.Errorf("make a folder for Postgres: %w", err)
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // Postgres runs as another user for root
		return fmt.Errorf("open the folder for Postgres: %w", err)
	}
	c.postgres, err = localpg.Start(ctx, localpg.Options{
		Dir: filepath.Join(c.dir, "postgres"), InstalledOnly: true, Settings: settings,
	})
	if err != nil {
		return err //nolint:wrapcheck // says what has failed
	}
	if c.conn, err = pgx.Connect(ctx, c.postgres.DSN()); err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	c.port = int(c.conn.Config().Port)
	_, err = c.conn.Exec(ctx, `
		CREATE ROLE `+role+` LOGIN PASSWORD '`+password+`';
		GRANT pg_read_all_stats TO `+role+`; CREATE EXTENSION pg_stat_statements`)
	if err != nil {
		return fmt.Errorf("prepare Postgres: %w", err)
	}
	var pid string
	err = c.conn.QueryRow(ctx, `
		SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1), setting FROM pg_config WHERE name = 'BINDIR'`).
		Scan(&pid, &c.bin)
	if err == nil {
		c.pid, err = strconv.Atoi(pid)
	}
	if err != nil {
		return fmt.Errorf("find Postgres' process and programs: %w", err)
	}
	return nil
}

// stop stops Postgres and removes its files.
func (c *cluster) stop() error {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
	}
	var err error
	if c.postgres != nil {
		err = c.postgres.Stop(context.Background())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// url returns the URL of a database for the server's role.
func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", role, password, c.port, database)
}

// newDatabase creates an empty database, owned by the server's role.
func (c *cluster) newDatabase(ctx context.Context) (string, error) {
	c.serial++
	name := fmt.Sprintf("bench%d", c.serial)
	if _, err := c.conn.Exec(ctx, `CREATE DATABASE `+name+` OWNER `+role); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return name, nil
}

// drop drops a database, so that autovacuum of it does not affect later measurements.
func (c *cluster) drop(database string) error {
	if _, err := c.conn.Exec(context.Background(), `DROP DATABASE `+database+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// open connects to a database, with the server's schema in the search path.
func (c *cluster) open(ctx context.Context, database string) (*pgx.Conn, error) {
	config := c.conn.Config().Copy()
	config.Database = database
	config.RuntimeParams["search_path"] = "stepwell,public"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", database, err)
	}
	return conn, nil
}

// checkpoint waits until autovacuum has finished and writes a checkpoint, so that neither affects the next measurement.
func (c *cluster) checkpoint(ctx context.Context) error {
	for deadline := time.Now().Add(runTimeout); ; time.Sleep(10 * time.Millisecond) {
		var vacuums int
		err := c.conn.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'`).Scan(&vacuums)
		if err != nil {
			return fmt.Errorf("look for autovacuum: %w", err)
		}
		if vacuums == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("autovacuum is still running after %s", runTimeout)
		}
	}
	if _, err := c.conn.Exec(ctx, `CHECKPOINT`); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
