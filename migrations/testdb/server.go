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
)

// server is the Postgres on which this process creates its databases.
type server struct {
	instance
	admin    *pgxpool.Pool            // connections to instance.dsn
	claim    *claim                   // our number among the processes that use the server
	created  atomic.Int64             // number of databases
	template func() (database, error) // creates the template on the first call
	strategy string                   // clause of CREATE DATABASE that says how to copy the template
}

// database is one that we created.
type database struct {
	name string
	dsn  string
}

// openServer connects to the server of TEST_DATABASE_URL, or if that is not set to a new one.
func openServer(ctx context.Context, testDatabaseURL string) (*server, error) {
	s := &server{instance: instance{dsn: testDatabaseURL}}
	if testDatabaseURL == "" {
		var err error
		if s.instance, err = startInstalled(ctx); err != nil {
			return nil, fmt.Errorf("TEST_DATABASE_URL is not set: %w", err)
		}
	}
	if err := s.connect(ctx); err != nil {
		if testDatabaseURL != "" {
			err = fmt.Errorf("TEST_DATABASE_URL: %w", err)
		}
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// connect opens the connections, drops the databases of dead processes, and chooses how to copy the template.
func (s *server) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	config.MaxConns = 4 // more CREATE DATABASE statements at once would only wait for each other
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if s.claim, err = stakeClaim(ctx, s.dsn); err != nil {
		return err
	}
	if s.strategy, err = s.cloneStrategy(ctx); err != nil {
		return err
	}
	s.template = sync.OnceValues(s.createTemplate)
	return nil
}

// cloneStrategy chooses how the server copies a template. FILE_COPY needs two checkpoints, which are free with fsync
// off and expensive otherwise. Postgres 14 has no STRATEGY clause.
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

// empty creates an empty database.
func (s *server) empty(ctx context.Context) (database, error) {
	return s.create(ctx, s.nextName(), "template0")
}

// migrated creates a database with the current schema.
func (s *server) migrated(ctx context.Context) (database, error) {
	template, err := s.template()
	if err != nil {
		return database{}, err
	}
	return s.create(ctx, s.nextName(), template.name+s.strategy)
}

// createTemplate creates the migrated database that New clones. It then refuses connections: Postgres cannot copy a
// database while someone is connected to it.
func (s *server) createTemplate() (database, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit) // shared: must outlive the first test
	defer cancel()
	template, err := s.create(ctx, s.claim.prefix()+"template", "template0")
	if err != nil {
		return database{}, err
	}
	if err := migrations.Up(ctx, template.dsn, migrations.DefaultSchema); err != nil {
		return database{}, fmt.Errorf("migrate template: %w", err)
	}
	if _, err := s.admin.Exec(ctx, "ALTER DATABASE "+template.name+" ALLOW_CONNECTIONS false"); err != nil {
		return database{}, fmt.Errorf("close template to connections: %w", err)
	}
	return template, nil
}

// create creates a database. Our names need no quotes.
func (s *server) create(ctx context.Context, name, template string) (database, error) {
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return database{}, fmt.Errorf("create database: %w", err)
	}
	dsn, err := withDatabase(s.dsn, name)
	return database{name: name, dsn: dsn}, err
}

// drop drops a database and disconnects its clients.
func (s *server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, dropDatabase(name)); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// dropDatabase is the statement that drops the database and disconnects its clients.
func dropDatabase(name string) string { return "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)" }

// nextName returns a new name.
func (s *server) nextName() string {
	return fmt.Sprint(s.claim.prefix(), s.created.Add(1))
}

// close disconnects. It stops a server that we started; on one that was given to us, it drops the template.
func (s *server) close(ctx context.Context) error {
	var err error
	if s.claim != nil {
		if s.stop == nil {
			err = s.drop(ctx, s.claim.prefix()+"template")
		}
		s.claim.release(ctx)
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.stop != nil {
		err = errors.Join(err, s.stop(ctx))
	}
	return err
}

// withDatabase returns the address of another database on the same server. An address is a URL or a list of
// key=value pairs, in which the last value of a key wins.
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
