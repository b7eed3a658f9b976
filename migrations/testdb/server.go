package testdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// server is where this process makes its databases.
type server struct {
	dsn      string                   // a database to connect to for making others
	own      *localpg.Server          // the throwaway server; nil on one that was given to us
	admin    *pgxpool.Pool            // connections to dsn
	claim    *claim                   // our number among the processes on the server
	made     atomic.Int64             // databases so far
	template func() (database, error) // makes the template when first called
	clone    string                   // how to copy it
}

// database is one that we made.
type database struct {
	name string
	dsn  string
}

// openServer connects to the server that dsn names, or to a new throwaway one if it is empty.
func openServer(ctx context.Context, dsn string) (*server, error) {
	s := &server{dsn: dsn}
	if dsn == "" {
		var err error
		if s.own, err = localpg.Start(ctx, localpg.Options{Settings: map[string]string{
			"max_connections":    "200",
			"synchronous_commit": "off",
		}}); err != nil {
			return nil, fmt.Errorf("TEST_DATABASE_URL is not set: %w", err)
		}
		s.dsn = s.own.DSN("postgres")
	}
	if err := s.connect(ctx); err != nil {
		if dsn != "" {
			err = fmt.Errorf("TEST_DATABASE_URL: %w", err)
		}
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// connect opens the connections, drops what dead processes left, and finds out how to clone.
func (s *server) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	config.MaxConns = 4 // making databases is the server's work, more would only queue there
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if s.claim, err = stakeClaim(ctx, s.dsn); err != nil {
		return err
	}
	if s.clone, err = s.cloneStrategy(ctx); err != nil {
		return err
	}
	s.template = sync.OnceValues(s.makeTemplate)
	return nil
}

// cloneStrategy chooses how the server copies a template. Copying files needs two checkpoints, which cost
// nothing where nothing is synced to disk and much elsewhere. Before 15 there is no choice.
func (s *server) cloneStrategy(ctx context.Context) (string, error) {
	var version int
	var fsync bool
	err := s.admin.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('fsync')::bool`).Scan(&version, &fsync)
	if err != nil {
		return "", fmt.Errorf("read server settings: %w", err)
	}
	if fsync || version < 15_00_00 {
		return "", nil
	}
	return " STRATEGY FILE_COPY", nil
}

// empty makes a database with nothing in it.
func (s *server) empty(ctx context.Context) (database, error) {
	return s.create(ctx, s.nextName(), "template0")
}

// migrated makes a database with the current schema.
func (s *server) migrated(ctx context.Context) (database, error) {
	template, err := s.template()
	if err != nil {
		return database{}, err
	}
	return s.create(ctx, s.nextName(), template.name+s.clone)
}

// makeTemplate makes the database that others are clones of. It is closed to connections in the end, for a
// connection would make cloning fail.
func (s *server) makeTemplate() (database, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit) // for all tests, not the first alone
	defer cancel()
	template, err := s.create(ctx, s.claim.prefix()+"template", "template0")
	if err != nil {
		return database{}, err
	}
	if err := migrations.Up(ctx, template.dsn, migrations.DefaultSchema); err != nil {
		return database{}, fmt.Errorf("migrate template: %w", err)
	}
	if _, err := s.admin.Exec(ctx, "ALTER DATABASE "+template.name+" ALLOW_CONNECTIONS false"); err != nil {
		return database{}, fmt.Errorf("close template: %w", err)
	}
	return template, nil
}

// create makes a database. The names are our own and need no quotes.
func (s *server) create(ctx context.Context, name, template string) (database, error) {
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return database{}, fmt.Errorf("create database: %w", err)
	}
	dsn, err := withDatabase(s.dsn, name)
	return database{name: name, dsn: dsn}, err
}

// drop removes a database and disconnects whoever uses it.
func (s *server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, dropDatabase(name)); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// dropDatabase is the statement that drops a database.
func dropDatabase(name string) string { return "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)" }

// nextName is a name that nobody has used.
func (s *server) nextName() string {
	return fmt.Sprint(s.claim.prefix(), s.made.Add(1))
}

// close drops the template on a server of others, stops our own, and disconnects.
func (s *server) close(ctx context.Context) error {
	var err error
	if s.claim != nil {
		if s.own == nil {
			err = s.drop(ctx, s.claim.prefix()+"template")
		}
		s.claim.giveUp(ctx)
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.own != nil {
		err = errors.Join(err, s.own.Stop(ctx))
	}
	return err
}

// withDatabase is the address of another database on the same server. An address is a URL, or words such as
// host=localhost, of which the last counts.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil
	}
	address, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("parse address: %w", err)
	}
	address.Path = "/" + name
	return address.String(), nil
}
