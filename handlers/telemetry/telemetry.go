// Package telemetry tells how a server is doing: its metrics, the traces of what it does, and what its log lines
// have in common. It watches the log and the queue through the interfaces that they have for that, so that they know
// of no metrics and no traces. It imports entities, eventlog and queue, and only it imports OpenTelemetry's SDK and
// the client of Prometheus.
//
// Nothing here ever sees a payload: what is measured and traced is made of types, statuses, durations and IDs.
package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stepwell-dev/stepwell/queue"
)

// Options is what telemetry is made of.
type Options struct {
	// Gauges looks how much there is of what in the database. It is asked once in [gaugesAge] at most.
	Gauges func(context.Context) (queue.Gauges, error)
	// Pool looks at the connections to the database.
	Pool func() PoolStat
	// Traces are nil when there are to be none.
	Traces *Traces
	// Now is the clock.
	Now func() time.Time
	// Version is that of the program.
	Version string
}

// Telemetry watches one server. The nil one watches nothing.
type Telemetry struct {
	now      func() time.Time
	traces   *Traces
	registry *prometheus.Registry
	metrics  *metrics
}

// New makes the telemetry of a server.
func New(o Options) *Telemetry {
	t := &Telemetry{now: o.Now, traces: o.Traces, registry: prometheus.NewRegistry(), metrics: newMetrics()}
	t.metrics.register(t.registry)
	t.registry.MustRegister(newDatabaseCollector(o.Gauges, o.Now), poolCollector{o.Pool}, newBuildInfo(o.Version))
	registerRuntime(t.registry)
	return t
}

// Registry has all metrics.
func (t *Telemetry) Registry() prometheus.Gatherer { return t.registry }

// Handler answers with all metrics, in whichever of Prometheus's formats is asked for.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}
