package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue"
)

var _ queue.Observer = (*Telemetry)(nil)

// Deliver implements [queue.Observer].
func (t *Telemetry) Deliver(
	ctx context.Context, d queue.Delivery, waited time.Duration,
) (context.Context, func(queue.Delivered)) {
	begin, kind := t.now(), deliveryKind(d.Work)
	t.metrics.waits.WithLabelValues(kind).Observe(waited.Seconds())
	underWay := t.metrics.underWay.WithLabelValues(kind)
	underWay.Inc()
	ctx = withLogFields(ctx, logFields{run: d.RunID})
	end := func(queue.Delivered) {}
	if t.traces != nil {
		ctx, end = t.traces.deliver(ctx, d, kind)
	}
	return ctx, func(result queue.Delivered) {
		underWay.Dec()
		t.metrics.deliveries.WithLabelValues(kind, string(result.Outcome)).Observe(t.now().Sub(begin).Seconds())
		end(result)
	}
}

// Call implements [queue.Observer].
func (t *Telemetry) Call(ctx context.Context, h http.Header) {
	if t.traces != nil {
		propagator.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// deliverySpanNames has the kinds of deliveries, which are the values of a label, with the names of their spans.
var deliverySpanNames = map[string]string{
	"message":                      "deliver message",
	"unknown":                      "unknown work",
	string(message.WorkRun):        "invoke run",
	string(message.WorkStep):       "execute step",
	string(message.WorkDeadline):   "enforce deadline",
	string(message.WorkCancel):     "cancel run",
	string(message.WorkReport):     "report child",
	string(message.WorkEnd):        "end children",
	string(message.WorkSignal):     "hand over signal",
	string(message.WorkLookBack):   "look back at signals",
	string(message.WorkSchedule):   "decide tick",
	string(message.WorkCollection): "start collected run",
	string(message.WorkTrigger):    "start run of trigger",
	string(message.WorkProbe):      "probe health",
	string(message.WorkRequest):    "make request of SQL",
}

// deliver starts the span of a delivery and returns the function that ends it.
func (t *Traces) deliver(
	ctx context.Context, d queue.Delivery, kind string,
) (context.Context, func(queue.Delivered)) {
	attributes := []attribute.KeyValue{messageKey.String(d.ID), attemptKey.Int(d.DeliveryCount)}
	if d.DeploymentID != "" {
		attributes = append(attributes, deploymentKey.String(d.DeploymentID))
	}
	if d.Subject != "" {
		attributes = append(attributes, subjectKey.String(d.Subject))
	}
	ctx, span := t.start(ctx, d.RunID, deliverySpanNames[kind],
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	return ctx, func(result queue.Delivered) {
		span.SetAttributes(outcomeKey.String(string(result.Outcome)))
		switch result.Outcome {
		case queue.OutcomeFailed, queue.OutcomeUnreached, queue.OutcomeLost:
			span.SetStatus(codes.Error, result.Why)
		case queue.OutcomeDone, queue.OutcomeDropped, queue.OutcomeStopped:
		}
		span.End()
	}
}
