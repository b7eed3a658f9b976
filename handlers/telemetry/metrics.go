package telemetry

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
)

// The buckets of durations, in seconds.
var (
	// An append is a few round trips to the database, and waits for who else appends to the run.
	appendBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	// A function may take minutes; so may a request that waits for one.
	callBuckets = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	waitBuckets = []float64{.005, .01, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	httpBuckets = []float64{.005, .01, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// metrics are what this process counts itself. No label has a value that users can make up.
type metrics struct {
	appends    *prometheus.HistogramVec // by type, outcome
	events     *prometheus.CounterVec   // by type
	ended      *prometheus.CounterVec   // by status
	deliveries *prometheus.HistogramVec // by kind, outcome
	waits      *prometheus.HistogramVec // by kind
	underWay   *prometheus.GaugeVec     // by kind
	requests   *prometheus.HistogramVec // by route, method, status
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
			"How long appends to logs took, from the request to the commit.", appendBuckets, "type", "outcome"),
		events: counter("stepwell_events_total", "Events that this process wrote.", "type"),
		ended:  counter("stepwell_runs_ended_total", "Runs that this process saw to their end.", "status"),
		deliveries: histogram("stepwell_delivery_duration_seconds",
			"How long deliveries of messages and work took, with the call of the function.", callBuckets, "kind", "outcome"),
		waits: histogram("stepwell_delivery_wait_seconds",
			"How long messages and work were ready before their delivery began.", waitBuckets, "kind"),
		underWay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stepwell_deliveries_under_way", Help: "Deliveries that this process is making.",
		}, []string{"kind"}),
		requests: histogram("stepwell_http_request_duration_seconds",
			"How long requests took, with what they waited for.", httpBuckets, "route", "method", "status"),
	}
}

// register adds the metrics to a registry, with a 0 for what alerts and rates want to find from the start.
func (m *metrics) register(r *prometheus.Registry) {
	r.MustRegister(m.appends, m.events, m.ended, m.deliveries, m.waits, m.underWay, m.requests)
	for _, t := range entities.EventTypes {
		m.events.WithLabelValues(string(t))
		if status, ends := endStatus[t]; ends {
			m.ended.WithLabelValues(string(status))
		}
	}
	for _, kind := range kinds {
		m.underWay.WithLabelValues(kind)
	}
}

// registerRuntime adds what the language and the system tell of the process.
func registerRuntime(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// newBuildInfo says which program this is.
func newBuildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "stepwell_build_info", Help: "Always 1; the label says which version this process is.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	g.Set(1)
	return g
}

// endStatus are the statuses in which events end a run, each of which is in a log once at most (I3).
var endStatus = map[entities.EventType]entities.RunStatus{
	entities.EventRunCompleted: entities.RunCompleted,
	entities.EventRunFailed:    entities.RunFailed,
	entities.EventRunCancelled: entities.RunCancelled,
}

// appendType is the label of an append: the event's type, or that there are several or none.
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

// kinds are the labels of deliveries.
var kinds = []string{
	"message", "unknown", string(entities.WorkRun), string(entities.WorkStep), string(entities.WorkDeadline),
	string(entities.WorkReport), string(entities.WorkEnd), string(entities.WorkSignal), string(entities.WorkLookBack),
}

// deliveryKind is the label of a delivery: what the server has to do.
func deliveryKind(w entities.Work) string {
	switch {
	case w == entities.WorkNone:
		return "message"
	case slices.Contains(kinds, string(w)):
		return string(w)
	default:
		return "unknown"
	}
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// methodLabel is the label of a request's method, of which its sender can make up any.
func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

func statusOf(status int) string { return strconv.Itoa(status) }

func outcomeOf(o queue.Outcome) string { return string(o) }
