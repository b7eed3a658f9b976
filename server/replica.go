package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// errNoReplica is the error of a replica that could not be watched.
var errNoReplica = errors.New("STEPWELL_READ_DATABASE_URL: a server in function mode does nothing between requests," +
	" so it cannot tell how far a replica is behind: leave it out")

// openReplica opens the replica for reads that may be late, if there is one and the server has any such reads. It need
// not be there yet.
func (s *Server) openReplica(ctx context.Context) error {
	switch {
	case s.ReadDatabaseURL == "" || s.Role == RoleWorker:
		return nil
	case s.Role == RoleFunction:
		return errNoReplica
	}
	pool, err := migrations.Pool(ctx, s.ReadDatabaseURL, s.Schema, s.install, readOnly, setSessionTimeouts,
		pg.InstallDeadlines, pg.InstallPayloads(s.payloads), traceQueries(s.Traces), pg.NewConnections(time.Now).Install)
	if err != nil {
		return fmt.Errorf("STEPWELL_READ_DATABASE_URL: %w", err)
	}
	s.replicaPool = pool
	schema := func(ctx context.Context) error { return migrations.CheckPool(ctx, pool, s.Schema) }
	s.replica = cluster.NewReplica(pool, s.pool, schema, s.clock.Now, s.Logger)
	return nil
}

// readOnly makes the sessions of a pool unable to write, wherever it leads, and lets a node that is away be noticed
// soon.
func readOnly(c *pgxpool.Config) {
	c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = 5 * time.Second
	}
}
