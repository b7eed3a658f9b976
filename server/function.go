package server

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
func (s *Server) newFunction(ctx context.Context, q *queue.Queue) (*handlers.Function, error) {
	if s.Role != RoleFunction {
		return nil, nil
	}
	options, err := s.workerOptions(ctx, q)
	if err != nil {
		return nil, err
	}
	s.drainer = q.NewDrainer(options)
	f := &handlers.Function{Drainer: s.drainer, Budget: s.DrainBudget}
	if s.PublicURL == "" {
		s.Logger.WarnContext(ctx, "STEPWELL_PUBLIC_URL is not set: due work waits for the next scheduled drain")
		return f, nil
	}
	if s.APIKey == "" && !s.Open {
		return nil, errors.New("STEPWELL_PUBLIC_URL requires STEPWELL_API_KEY: the server derives its own credential from it")
	}
	longest := s.DrainBudget + s.Grace
	f.Kick, err = handlers.NewKicker(s.PublicURL, s.APIKey, longest, time.Now, s.Logger)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_PUBLIC_URL: %w", err)
	}
	return f, nil
}

// newHub returns the hub. In function mode, and without sessions, it is local to the process.
func (s *Server) newHub() *pg.Hub {
	if s.Role == RoleFunction || s.sessions == nil {
		return pg.NewLocalHub()
	}
	return pg.NewHub(s.sessions, s.Schema+".hints", s.Logger)
}

// suspendPool keeps the pool idle between requests in function mode.
func (s *Server) suspendPool(c *pgxpool.Config) {
	if s.Role != RoleFunction {
		return
	}
	c.MinConns, c.MinIdleConns = 0, 0
	c.HealthCheckPeriod = 24 * time.Hour
	c.PingTimeout = thawPingTimeout
}
