package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

const (
	// gaugesTTL is how long gauges are cached, so that frequent scrapes do not load the database.
	gaugesTTL = 5 * time.Second
	// gaugesTimeout bounds the query. The scrape waits for it.
	gaugesTimeout = 3 * time.Second
)

// databaseCollector reports gauges of the whole database, so every server reports the same values. When the query
// fails it reports only stepwell_database_up: stale values would look current.
type databaseCollector struct {
	query func(context.Context) (queue.Gauges, error)
	now   func() time.Time

	mu   sync.Mutex
	at   time.Time // of the last query, successful or not; zero before the first
	last queue.Gauges
	err  error
}

var (
	upDesc = prometheus.NewDesc("stepwell_database_up",
		"1 if the last query succeeded, 0 if it failed.", nil, nil)
	openDesc = prometheus.NewDesc("stepwell_runs_open",
		"Runs that have not ended; the count stops at 10000.", []string{"status"}, nil)
	strandedDesc = prometheus.NewDesc("stepwell_runs_stranded",
		"Runs with nothing scheduled to continue them, as found by the sweeper; the count stops at 10000.", nil, nil)
	deadlocksDesc = prometheus.NewDesc("stepwell_limit_deadlocks",
		"Runs that wait for each other's slots of limits, and cannot go on unless one is ended.", nil, nil)
	blockedDesc = prometheus.NewDesc("stepwell_runs_blocked",
		"Runs whose function refuses to go on; the count stops at 10000.", []string{"code"}, nil)
	waitingDesc = prometheus.NewDesc("stepwell_messages_waiting",
		"Messages that are due, delayed or waiting for a retry; the count stops at 10000.", nil, nil)
	leasedDesc = prometheus.NewDesc("stepwell_messages_leased",
		"Messages being delivered, or extended by functions; the count stops at 10000.", nil, nil)
	parkedDesc = prometheus.NewDesc("stepwell_messages_parked",
		"Messages that failed too often and need a retry or discard by hand; the count stops at 10000.", nil, nil)
	oldestDesc = prometheus.NewDesc("stepwell_messages_oldest_due_seconds",
		"Age of the oldest due message that is not being delivered; 0 if there is none.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (d *databaseCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		upDesc, openDesc, strandedDesc, deadlocksDesc, blockedDesc, waitingDesc, leasedDesc, parkedDesc, oldestDesc,
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
	gauge(deadlocksDesc, float64(g.DeadlockedRuns))
	for code, n := range g.BlockedRuns {
		gauge(blockedDesc, float64(n), code)
	}
	gauge(waitingDesc, float64(g.WaitingMessages))
	gauge(leasedDesc, float64(g.LeasedMessages))
	gauge(parkedDesc, float64(g.ParkedMessages))
	gauge(oldestDesc, g.OldestDue.Seconds())
}

// gauges returns the cached gauges, or queries them again when they have expired. Concurrent scrapes share one query.
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

// PoolStat is the part of [github.com/jackc/pgx/v5/pgxpool.Stat] that is reported.
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

// poolMetrics report this process's connection pool.
func poolMetrics(stat func() PoolStat, shareWaits func() (int64, time.Duration)) []prometheus.Collector {
	connections := func(state string, count func(PoolStat) int32) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stepwell_pool_connections", Help: "Connections to the database.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(count(stat())) })
	}
	counter := func(name, help string, value func(PoolStat) float64) prometheus.Collector {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		return prometheus.NewCounterFunc(opts, func() float64 { return value(stat()) })
	}
	ofShares := func(name, help string, value func(n int64, waited time.Duration) float64) prometheus.Collector {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		return prometheus.NewCounterFunc(opts, func() float64 { return value(shareWaits()) })
	}
	return []prometheus.Collector{
		connections("acquired", PoolStat.AcquiredConns),
		connections("idle", PoolStat.IdleConns),
		connections("connecting", PoolStat.ConstructingConns),
		gauge("stepwell_pool_connections_limit", "Maximum number of connections to the database.",
			func() float64 { return float64(stat().MaxConns()) }),
		counter("stepwell_pool_acquires_total", "Connections acquired from the pool.",
			func(s PoolStat) float64 { return float64(s.AcquireCount()) }),
		counter("stepwell_pool_acquire_seconds_total", "Total time spent waiting for a connection.",
			func(s PoolStat) float64 { return s.AcquireDuration().Seconds() }),
		counter("stepwell_pool_waited_acquires_total", "Acquires that waited because no connection was idle.",
			func(s PoolStat) float64 { return float64(s.EmptyAcquireCount()) }),
		counter("stepwell_pool_canceled_acquires_total", "Acquires canceled while waiting for a connection.",
			func(s PoolStat) float64 { return float64(s.CanceledAcquireCount()) }),
		ofShares("stepwell_pool_share_waits_total",
			"Acquires that waited because their project had its share of the connections.",
			func(n int64, _ time.Duration) float64 { return float64(n) }),
		ofShares("stepwell_pool_share_wait_seconds_total", "Total time that they waited for it.",
			func(_ int64, waited time.Duration) float64 { return waited.Seconds() }),
	}
}

// CommitProbe is the part of [github.com/stepwell-dev/stepwell/pg.CommitProbe] that is reported.
type CommitProbe interface {
	Age() time.Duration
	FeedLag() time.Duration
}

// commitMetrics report whether the commits of this process succeed.
func commitMetrics(p CommitProbe) []prometheus.Collector {
	return []prometheus.Collector{
		gauge("stepwell_commit_age_seconds",
			"Time since a commit of this process last succeeded; it commits every 5 s.",
			func() float64 { return p.Age().Seconds() }),
		gauge("stepwell_feed_lag_seconds",
			"How far followers of a project's events are behind, because a transaction is open.",
			func() float64 { return p.FeedLag().Seconds() }),
	}
}

// Replica is the part of [github.com/stepwell-dev/stepwell/queue/cluster.Replica] that is reported.
type Replica interface {
	Lag() time.Duration
	Problem() error
	Answers(a cluster.Answer) int64
}

// replicaMetrics report how reads that may be late are answered.
func replicaMetrics(r Replica) []prometheus.Collector {
	answers := func(from string, a cluster.Answer) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "stepwell_replica_reads_total", Help: "Reads that may be late, by where they were answered from.",
			ConstLabels: prometheus.Labels{"from": from},
		}, func() float64 { return float64(r.Answers(a)) })
	}
	return []prometheus.Collector{
		gauge("stepwell_replica_used", "1 if the replica is read from, 0 if the primary is in its place.", func() float64 {
			if r.Problem() != nil {
				return 0
			}
			return 1
		}),
		gauge("stepwell_replica_lag_seconds", "How far the replica is behind at most.",
			func() float64 { return r.Lag().Seconds() }),
		answers("replica", cluster.FromReplica),
		answers("primary_after_failure", cluster.FailedThere),
		answers("primary", cluster.NotThere),
	}
}

// gauge returns a gauge whose value is computed for each scrape.
func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}
