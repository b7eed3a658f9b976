package telemetry

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Histogram buckets, in seconds.
var (
	// An append takes a few round trips to the database and waits for the run's lock.
	appendBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	// A function may run for minutes, and so may a request that waits for it.
	callBuckets = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	waitBuckets = []float64{.005, .01, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	httpBuckets = []float64{.005, .01, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// metrics are the counters and histograms of this process. No label takes a value from users, so the number of series
// is bounded.
type metrics struct {
	appends    *prometheus.HistogramVec // by type, outcome
	events     *prometheus.CounterVec   // by type
	ended      *prometheus.CounterVec   // by status
	deliveries *prometheus.HistogramVec // by kind, outcome
	waits      *prometheus.HistogramVec // by kind
	underWay   *prometheus.GaugeVec     // by kind
	requests   *prometheus.HistogramVec // by route, method, status
	rejected   prometheus.Counter

	startsWaiting prometheus.Gauge
	startsRefused prometheus.Counter
}

func newMetrics() *metrics {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		appends: histogram("stepwell_append_duration_seconds",
			"Duration of appends to logs, from the request to the commit.", appendBuckets, "type", "outcome"),
		events: counter("stepwell_events_total", "Events written.", "type"),
		ended:  counter("stepwell_runs_ended_total", "Runs ended.", "status"),
		deliveries: histogram("stepwell_delivery_duration_seconds",
			"Duration of deliveries of messages and work, including the function call.", callBuckets, "kind", "outcome"),
		waits: histogram("stepwell_delivery_wait_seconds",
			"Time from a message or work being due until its delivery started.", waitBuckets, "kind"),
		underWay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stepwell_deliveries_under_way", Help: "Deliveries in progress.",
		}, []string{"kind"}),
		requests: histogram("stepwell_http_request_duration_seconds",
			"Duration of HTTP requests, including long polls and streams.", httpBuckets, "route", "method", "status"),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stepwell_unauthorized_requests_total", Help: "Requests without a valid API key.",
		}),
		startsWaiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stepwell_starts_waiting", Help: "Starts of runs that wait because the server is busy.",
		}),
		startsRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stepwell_starts_refused_total", Help: "Starts of runs that were refused because too many wait.",
		}),
	}
}

// register adds the metrics to a registry. Counters whose labels are known start at 0, so that rates and alerts see
// the first increment.
func (m *metrics) register(r *prometheus.Registry) {
	r.MustRegister(m.appends, m.events, m.ended, m.deliveries, m.waits, m.underWay, m.requests, m.rejected,
		m.startsWaiting, m.startsRefused)
	for _, t := range entities.EventTypes {
		m.events.WithLabelValues(string(t))
		if status, ends := endStatus[t]; ends {
			m.ended.WithLabelValues(string(status))
		}
	}
	for kind := range deliverySpanNames {
		m.underWay.WithLabelValues(kind)
	}
}

// newBuildInfo returns the gauge whose labels are what this process was built from.
func newBuildInfo(b Build) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stepwell_build_info", Help: "Always 1; the labels are what this process was built from.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
	}, func() float64 { return 1 })
}

// endStatus maps the events that end a run to its final status. A log has at most one of them (I3).
var endStatus = map[entities.EventType]entities.RunStatus{
	entities.EventRunCompleted: entities.RunCompleted,
	entities.EventRunFailed:    entities.RunFailed,
	entities.EventRunCancelled: entities.RunCancelled,
}

// appendType returns the type label of an append: the event's type, "several" or "none".
func appendType(requests []eventlog.Request) string {
	switch {
	case len(requests) == 0:
		return "none"
	case len(requests) > 1:
		return "several"
	case slices.Contains(entities.EventTypes, requests[0].Type):
		return string(requests[0].Type)
	default:
		return "unknown"
	}
}

// deliveryKind returns the kind label of a delivery.
func deliveryKind(w message.Work) string {
	switch {
	case w == message.WorkNone:
		return "message"
	case deliverySpanNames[string(w)] != "":
		return string(w)
	default:
		return "unknown"
	}
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// methodLabel returns the label of a request's method. Clients can send any method, so unknown ones share a label.
func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}
