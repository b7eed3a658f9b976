package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// gaugesTTL is how old what is told of the database may be: however many ask, it is looked at no oftener.
	gaugesTTL = 5 * time.Second
	// gaugesTimeout is how long a look may take. Whoever asks waits for it.
	gaugesTimeout = 3 * time.Second
)

// databaseCollector collects how much there is of what. It is the same at every server. While the databaseCollector cannot be asked,
// only that is told: old numbers would look like new ones.
type databaseCollector struct {
	query func(context.Context) (queue.Gauges, error)
	now  func() time.Time

	mu   sync.Mutex
	at   time.Time // of the last look, that succeeded or not; zero before the first
	last queue.Gauges
	err  error
}

func newDatabaseCollector(look func(context.Context) (queue.Gauges, error), now func() time.Time) *databaseCollector {
	return &databaseCollector{query: look, now: now}
}

var (
	upDesc = prometheus.NewDesc("stepwell_database_up",
		"1 if the database answered when it was last looked at, else 0.", nil, nil)
	openDesc = prometheus.NewDesc("stepwell_runs_open",
		"Runs that have not ended, counted up to 10000 in all.", []string{"status"}, nil)
	strandedDesc = prometheus.NewDesc("stepwell_runs_stranded",
		"Runs that have no way to move, as far as the sweeper has seen, counted up to 10000.", nil, nil)
	waitingDesc = prometheus.NewDesc("stepwell_messages_waiting",
		"Messages that are due, delayed or to be tried again, counted up to 10000.", nil, nil)
	leasedDesc = prometheus.NewDesc("stepwell_messages_leased",
		"Messages that are being delivered, or that functions have, counted up to 10000.", nil, nil)
	parkedDesc = prometheus.NewDesc("stepwell_messages_parked",
		"Messages that failed too often, to be retried or discarded, counted up to 10000.", nil, nil)
	oldestDesc = prometheus.NewDesc("stepwell_messages_oldest_due_seconds",
		"For how long the message has been due that has been longest and is not being delivered.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (d *databaseCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		upDesc, openDesc, strandedDesc, waitingDesc, leasedDesc, parkedDesc, oldestDesc,
	} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (d *databaseCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	g, err := d.gauges()
	if err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	for status, n := range g.OpenRuns {
		gauge(openDesc, float64(n), string(status))
	}
	gauge(strandedDesc, float64(g.StrandedRuns))
	gauge(waitingDesc, float64(g.WaitingMessages))
	gauge(leasedDesc, float64(g.LeasedMessages))
	gauge(parkedDesc, float64(g.ParkedMessages))
	gauge(oldestDesc, g.OldestDue.Seconds())
}

// gauges are those of the last look, or of a new one if that is too long ago. One caller looks; the others wait for it.
func (d *databaseCollector) gauges() (queue.Gauges, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || d.now().Sub(d.at) >= gaugesTTL {
		ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
		defer cancel()
		d.last, d.err = d.query(ctx)
		d.at = d.now()
	}
	return d.last, d.err
}

// PoolStat is what a pool of connections tells; [github.com/jackc/pgx/v5/pgxpool.Stat] does.
type PoolStat interface {
	AcquiredConns() int32
	IdleConns() int32
	ConstructingConns() int32
	MaxConns() int32
	AcquireCount() int64
	AcquireDuration() time.Duration
	EmptyAcquireCount() int64
	CanceledAcquireCount() int64
}

// poolCollector collects how this process's connections to the database are used.
type poolCollector struct{ stat func() PoolStat }

var (
	connectionsDesc = prometheus.NewDesc("stepwell_pool_connections",
		"Connections to the database.", []string{"state"}, nil)
	maxConnectionsDesc = prometheus.NewDesc("stepwell_pool_connections_limit",
		"How many connections to the database there may be.", nil, nil)
	acquiresDesc = prometheus.NewDesc("stepwell_pool_acquires_total",
		"How often a connection was taken from the pool.", nil, nil)
	acquireSecondsDesc = prometheus.NewDesc("stepwell_pool_acquire_seconds_total",
		"How long was waited for connections in all.", nil, nil)
	emptyAcquiresDesc = prometheus.NewDesc("stepwell_pool_waited_acquires_total",
		"How often no connection was free at once.", nil, nil)
	canceledAcquiresDesc = prometheus.NewDesc("stepwell_pool_canceled_acquires_total",
		"How often whoever waited for a connection gave up.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (poolCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		connectionsDesc, maxConnectionsDesc, acquiresDesc, acquireSecondsDesc, emptyAcquiresDesc, canceledAcquiresDesc,
	} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (p poolCollector) Collect(to chan<- prometheus.Metric) {
	s := p.stat()
	send := func(desc *prometheus.Desc, t prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, t, value, labels...)
	}
	send(connectionsDesc, prometheus.GaugeValue, float64(s.AcquiredConns()), "acquired")
	send(connectionsDesc, prometheus.GaugeValue, float64(s.IdleConns()), "idle")
	send(connectionsDesc, prometheus.GaugeValue, float64(s.ConstructingConns()), "connecting")
	send(maxConnectionsDesc, prometheus.GaugeValue, float64(s.MaxConns()))
	send(acquiresDesc, prometheus.CounterValue, float64(s.AcquireCount()))
	send(acquireSecondsDesc, prometheus.CounterValue, s.AcquireDuration().Seconds())
	send(emptyAcquiresDesc, prometheus.CounterValue, float64(s.EmptyAcquireCount()))
	send(canceledAcquiresDesc, prometheus.CounterValue, float64(s.CanceledAcquireCount()))
}
