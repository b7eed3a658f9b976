package server

import (
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/queue"
)

// traceQueries traces a pool's statements, without their parameters, if they run within a span.
func traceQueries(t *telemetry.Traces) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		if t == nil {
			return
		}
		tracers := []pgx.QueryTracer{otelpgx.NewTracer(
			otelpgx.WithTracerProvider(t.Provider()), otelpgx.WithDisableConnectionDetailsInAttributes(),
		)}
		if c.ConnConfig.Tracer != nil {
			tracers = append(tracers, c.ConnConfig.Tracer)
		}
		c.ConnConfig.Tracer = multitracer.New(tracers...)
	}
}

func (s *Server) newTelemetry(q *queue.Queue) *telemetry.Telemetry {
	options := telemetry.Options{
		Gauges: q.Gauges, Pool: func() telemetry.PoolStat { return s.pool.Stat() },
		ShareWaits: s.divided.Waits,
		Traces:     s.Traces, Now: time.Now, Build: s.Build,
	}
	if s.TLSCert != "" {
		options.CertificateEnds = func() time.Time { return s.certificate.ends() }
	}
	if s.Archive != nil && s.Role != RoleAPI {
		options.ArchiveFailures = s.archiveFailures.Load
	}
	if s.commits != nil {
		options.Commits = s.commits
	}
	if s.replica != nil {
		options.Replica = s.replica
	}
	if s.Role == RoleAll || s.Role == RoleWorker {
		options.Slots = s.Deliveries
	}
	return telemetry.New(options)
}
