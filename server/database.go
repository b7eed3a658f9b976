package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxSessions is the size of the pool of sessions. Of its connections one sends hints. Those that listen leave it.
const maxSessions = 4

// connect migrates the database and connects to it.
func (s *Server) connect(ctx context.Context) error {
	if err := s.awaitDatabase(ctx); err != nil {
		return err
	}
	s.primary = pg.NewPrimary(time.Now, s.Logger)
	if err := s.primary.Find(ctx, s.DatabaseURL); err != nil {
		return err
	}
	masters, err := s.MasterKeys()
	if err != nil {
		return err
	}
	s.encryption = encryption.New(masters, time.Now)
	s.payloads = blob.NewCodec(s.encryption, s.Objects)
	s.disk.now, s.divided = time.Now, pg.NewConnections(time.Now)
	if err := s.open(ctx, s.migrate(ctx)); err != nil {
		return err
	}
	s.encryption.Use(s.pool)
	if s.Role != RoleFunction {
		s.commits = pg.NewCommitProbe(s.pool.Config().ConnConfig, s.primary, time.Now, s.Logger)
	}
	started := time.Now()
	s.clock = pg.NewClock(func() time.Duration { return time.Since(started) })
	if err := s.clock.Compare(ctx, s.pool); err != nil {
		return err
	}
	return s.openReplica(ctx)
}

// open opens the pools, after a migration that ended with the error.
func (s *Server) open(ctx context.Context, migration error) (err error) {
	direct, refused := s.DirectDatabaseURL != "", errors.Is(migration, migrations.ErrPooler)
	switch {
	case direct && refused:
		return fmt.Errorf("STEPWELL_DIRECT_DATABASE_URL: %w", migration)
	case direct && migration == nil, refused:
		return s.openPooled(ctx, migration)
	case migration != nil:
		return migration
	default:
		s.pool, err = s.openPool(ctx, s.DatabaseURL, s.divided.Install, s.suspendPool)
		s.sessions = s.pool
		return err
	}
}

func (s *Server) migrate(ctx context.Context) error {
	if s.Migrated {
		return migrations.Check(ctx, s.SessionURL(), s.Schema, s.install, s.primary.Install)
	}
	migrator := migrations.Migrator{Logger: s.Logger}
	return migrator.Up(ctx, s.SessionURL(), s.Schema, s.install, s.primary.Install)
}

// openPool opens a pool on the server's schema.
func (s *Server) openPool(ctx context.Context, url string, options ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	return migrations.Pool(ctx, url, s.Schema, append([]func(*pgxpool.Config){
		s.install, s.primary.Install, pg.InstallEpochs, setSessionTimeouts, pg.InstallDeadlines, pg.InstallExecuted,
		s.disk.install, pg.InstallPayloads(s.payloads), traceQueries(s.Traces),
	}, options...)...)
}

// openPooled opens a pool that leads to a pooler in transaction mode, and one for sessions if they can be had and are
// worth it: in function mode there would be one for each process, where the pooler is to save them. Unmigrated is the
// error of a migration that was not possible.
func (s *Server) openPooled(ctx context.Context, unmigrated error) (err error) {
	var pooler pg.Pooler
	s.pool, err = s.openPool(ctx, s.DatabaseURL, s.divided.Install, s.suspendPool, pooler.Install)
	if err != nil {
		return err
	}
	if err := pooler.Check(ctx); err != nil {
		return err
	}
	if unmigrated != nil {
		if err := migrations.Check(ctx, s.DatabaseURL, s.Schema, s.install, s.primary.Install, pooler.Install); err != nil {
			return fmt.Errorf("%w: %w", err, unmigrated)
		}
	}
	if s.DirectDatabaseURL == "" || s.Role == RoleFunction {
		s.Logger.InfoContext(ctx, "DATABASE_URL leads to a pooler: without sessions past it, the server polls")
		return nil
	}
	s.sessions, err = s.openPool(ctx, s.DirectDatabaseURL, func(c *pgxpool.Config) { c.MaxConns = maxSessions })
	if err != nil {
		return err
	}
	return pg.CheckSameDatabase(ctx, s.sessions, s.pool)
}

// addresses are those of the database.
func (c Config) addresses() []string {
	if c.DirectDatabaseURL == "" {
		return []string{c.DatabaseURL}
	}
	return []string{c.DatabaseURL, c.DirectDatabaseURL}
}

// SessionURL is the address for what needs a session of its own.
func (c Config) SessionURL() string { return cmp.Or(c.DirectDatabaseURL, c.DatabaseURL) }
