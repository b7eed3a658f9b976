package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/queue"
)

// thawTimeout is how long a connection that was idle may take to answer, in a process that may have been frozen for
// hours: whatever is between it and the database may have forgotten it.
const thawTimeout = 2 * time.Second

// function is what makes a server one in function mode; nothing for other roles.
func (s *server) function(ctx context.Context, q *queue.Queue) (*handlers.Function, error) {
	if s.role != roleFunction {
		return nil, nil
	}
	options, err := s.deliveries(ctx, q)
	if err != nil {
		return nil, err
	}
	s.drainer = queue.NewDrainer(q, options)
	f := &handlers.Function{Drainer: s.drainer, Budget: s.config.DrainBudget}
	if s.config.PublicURL == "" {
		s.logger.WarnContext(ctx, "STEPWELL_PUBLIC_URL is not set: what is due waits for the scheduler")
		return f, nil
	}
	if s.config.APIKey == "" && !s.config.Open {
		return nil, errors.New(
			"STEPWELL_PUBLIC_URL needs STEPWELL_API_KEY: it is what the server asks itself for drains with")
	}
	f.Kick, err = handlers.NewKicker(s.config.PublicURL, s.config.APIKey, s.config.DrainBudget+s.config.Grace, s.logger)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_PUBLIC_URL: %w", err)
	}
	return f, nil
}

// newHub makes the hub, which in function mode is only this process's.
func (s *server) newHub() *pg.Hub {
	if s.role == roleFunction {
		return pg.NewLocalHub()
	}
	return pg.NewHub(s.pool, s.config.Schema+".hints", s.logger)
}

// lean keeps the pool of a server in function mode from doing anything between requests.
func (s *server) lean(c *pgxpool.Config) {
	if s.role != roleFunction {
		return
	}
	c.MinConns, c.MinIdleConns = 0, 0
	c.HealthCheckPeriod = 24 * time.Hour
	c.PingTimeout = thawTimeout
}
