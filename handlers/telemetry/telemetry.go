// Package telemetry provides a server's metrics, traces and log fields. It implements the Observer interfaces of
// eventlog and queue, so that those packages depend on neither Prometheus nor OpenTelemetry.
//
// Payloads never reach this package: metrics and traces hold only types, statuses, durations and IDs.
package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/queue"
)

// Options configures [New].
type Options struct {
	// Gauges queries the database's gauges. It is called at most once per [gaugesTTL].
	Gauges func(context.Context) (queue.Gauges, error)
	// Pool returns the statistics of the connection pool.
	Pool func() PoolStat
	// ShareWaits returns how many acquisitions of a connection waited because their project had its share of them, and
	// for how long in all.
	ShareWaits func() (n int64, waited time.Duration)
	// Commits tells how well commits succeed; nil if nothing measures it, as in function mode.
	Commits CommitProbe
	// Replica is the one for reads that may be late; nil if there is none.
	Replica Replica
	// Slots is how many deliveries may be in progress at once; 0 if the server delivers nothing all the time.
	Slots int
	// Traces is nil to disable tracing.
	Traces *Traces
	// Now returns the current time.
	Now func() time.Time
	// Build says what the program was built from.
	Build Build
	// CertificateEnds returns when the certificate of the server ends; nil if it has none.
	CertificateEnds func() time.Time
	// ArchiveFailures returns how often a run could not be archived; nil if none is archived here.
	ArchiveFailures func() int64
}

// Build says what the program was built from.
type Build struct {
	Version string
	// Commit is empty if the build did not record it.
	Commit string
	// Go is the version of Go.
	Go string
}

// Telemetry observes one server. A nil *Telemetry may observe requests: it only sets their log fields.
type Telemetry struct {
	now      func() time.Time
	traces   *Traces
	registry *prometheus.Registry
	metrics  *metrics
}

// New returns the telemetry of a server.
func New(o Options) *Telemetry {
	t := &Telemetry{now: o.Now, traces: o.Traces, registry: prometheus.NewRegistry(), metrics: newMetrics()}
	t.metrics.register(t.registry)
	t.registry.MustRegister(&databaseCollector{query: o.Gauges, now: o.Now}, newBuildInfo(o.Build),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.registry.MustRegister(poolMetrics(o.Pool, o.ShareWaits)...)
	t.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "stepwell_panics_total", Help: "Panics of the server, each of which stopped only the work that panicked.",
	}, func() float64 { return float64(rescue.Panics()) }))
	if o.Commits != nil {
		t.registry.MustRegister(commitMetrics(o.Commits)...)
	}
	if o.Replica != nil {
		t.registry.MustRegister(replicaMetrics(o.Replica)...)
	}
	if o.Slots > 0 { // if about as many deliveries are in progress for long, their functions hang
		t.registry.MustRegister(gauge("stepwell_delivery_slots", "Deliveries that may be in progress at once.",
			func() float64 { return float64(o.Slots) }))
	}
	if o.CertificateEnds != nil {
		t.registry.MustRegister(gauge("stepwell_certificate_expiry_timestamp_seconds", "When the server's certificate ends.",
			func() float64 { return float64(o.CertificateEnds().Unix()) }))
	}
	if o.ArchiveFailures != nil {
		t.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "stepwell_archive_failures_total", Help: "Attempts to archive a run that failed. The run is kept.",
		}, func() float64 { return float64(o.ArchiveFailures()) }))
	}
	return t
}

// Registry returns the registry of all metrics.
func (t *Telemetry) Registry() prometheus.Gatherer { return t.registry }

// Handler serves all metrics in the Prometheus format that the request accepts.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}
