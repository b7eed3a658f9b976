package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// thawPingTimeout is how long an idle connection may take to answer a ping. The process may have been frozen for hours,
// and a NAT or proxy may have dropped the connection without notice.
const thawPingTimeout = 2 * time.Second

// newFunction returns the handlers' function mode, or nil in other roles.
func (s *server) newFunction(ctx context.Context, q *queue.Queue) (*handlers.Function, error) {
	if s.role != roleFunction {
		return nil, nil
	}
	options, err := s.workerOptions(ctx, q)
	if err != nil {
		return nil, err
	}
	s.drainer = q.NewDrainer(options)
	f := &handlers.Function{Drainer: s.drainer, Budget: s.config.DrainBudget}
	if s.config.PublicURL == "" {
		s.logger.WarnContext(ctx, "STEPWELL_PUBLIC_URL is not set: due work waits for the next scheduled drain")
		return f, nil
	}
	if s.config.APIKey == "" && !s.config.Open {
		return nil, errors.New("STEPWELL_PUBLIC_URL requires STEPWELL_API_KEY: the server derives its own credential from it")
	}
	longest := s.config.DrainBudget + s.config.Grace
	f.Kick, err = handlers.NewKicker(s.config.PublicURL, s.config.APIKey, longest, time.Now, s.logger)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_PUBLIC_URL: %w", err)
	}
	return f, nil
}

// newHub returns the hub. In function mode it is local to the process.
func (s *server) newHub() *pg.Hub {
	if s.role == roleFunction {
		return pg.NewLocalHub()
	}
	return pg.NewHub(s.pool, s.config.Schema+".hints", s.logger)
}

// suspendPool keeps the pool idle between requests in function mode.
func (s *server) suspendPool(c *pgxpool.Config) {
	if s.role != roleFunction {
		return
	}
	c.MinConns, c.MinIdleConns = 0, 0
	c.HealthCheckPeriod = 24 * time.Hour
	c.PingTimeout = thawPingTimeout
}
