package telemetry

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities"
)

// Request describes an HTTP request to the server.
type Request struct {
	ID     string
	Method string
	// Route is the pattern that the path matched, or "" if it matched none.
	Route string
	// RunID is the run in the path, or "".
	RunID entities.RunID
	// Header carries the caller's trace context.
	Header http.Header
	// Public requests come from unauthenticated callers: the caller's trace is linked, not joined.
	Public bool
	// Probe requests are not traced.
	Probe bool
}

// Request starts observing a request. It returns the context to handle the request with, and a function to call with
// the response's status, which returns the request's duration.
func (t *Telemetry) Request(ctx context.Context, r Request) (context.Context, func(status int) time.Duration) {
	ctx = withLogFields(ctx, logFields{request: r.ID, run: r.RunID})
	if t == nil {
		return ctx, func(int) time.Duration { return 0 }
	}
	begin := t.now()
	end := func(int) {}
	if t.traces != nil && !r.Probe {
		ctx, end = t.traces.request(ctx, r)
	}
	return ctx, func(status int) time.Duration {
		took := t.now().Sub(begin)
		t.metrics.requests.WithLabelValues(routeLabel(r.Route), methodLabel(r.Method), strconv.Itoa(status)).
			Observe(took.Seconds())
		end(status)
		return took
	}
}

// Rejected counts a request without a valid API key.
func (t *Telemetry) Rejected() {
	if t != nil {
		t.metrics.rejected.Inc()
	}
}

// StartsWaiting sets how many starts of runs wait for room.
func (t *Telemetry) StartsWaiting(n int) {
	if t != nil {
		t.metrics.startsWaiting.Set(float64(n))
	}
}

// StartRefused counts a start of a run that was refused because too many wait.
func (t *Telemetry) StartRefused() {
	if t != nil {
		t.metrics.startsRefused.Inc()
	}
}

// Pass adds the request ID and the trace context to the headers of a forwarded request.
func (t *Telemetry) Pass(ctx context.Context, h http.Header) {
	h.Set("X-Request-Id", RequestID(ctx))
	if t != nil {
		t.Call(ctx, h)
	}
}

func routeLabel(route string) string { return cmp.Or(route, "none") }

// request starts the span of a request and returns the function that ends it.
func (t *Traces) request(ctx context.Context, r Request) (context.Context, func(status int)) {
	name := methodLabel(r.Method) + " " + routeLabel(r.Route)
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(methodLabel(r.Method)),
			semconv.HTTPRoute(routeLabel(r.Route)), requestKey.String(r.ID)),
	}
	caller := propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
	called := trace.SpanContextFromContext(caller)
	var span trace.Span
	switch {
	case called.IsValid() && r.Public:
		ctx, span = t.tracer.Start(ctx, name, append(options, trace.WithLinks(trace.Link{SpanContext: called}))...)
	case called.IsValid():
		ctx, span = t.tracer.Start(caller, name, options...)
		if r.RunID != "" {
			span.SetAttributes(runKey.String(string(r.RunID)))
		}
	case r.mayChangeRun():
		// Clients without instrumentation, such as the Workflow SDK's, send no trace context. The run's trace is the
		// one that the request belongs to.
		ctx, span = t.start(ctx, r.RunID, name, options...)
	default:
		ctx, span = t.tracer.Start(ctx, name, options...)
	}
	return ctx, func(status int) {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// mayChangeRun reports whether the request may change a run.
func (r Request) mayChangeRun() bool {
	return r.RunID != "" && r.Method != http.MethodGet && r.Method != http.MethodHead
}
