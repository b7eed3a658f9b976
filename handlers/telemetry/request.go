package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities"
)

// Request is a request to the server.
type Request struct {
	ID     string
	Method string
	// Route is the pattern that the path matched; empty when it matched none.
	Route string
	// RunID is the run in the path; empty when there is none.
	RunID entities.RunID
	// Header says who called.
	Header http.Header
	// Public requests come from strangers, whose traces are linked and not joined. Probes are not traced.
	Public, Probe bool
}

// Request begins to watch a request, which goes on with the context that it returns, and returns what ends that: it
// takes the status of the answer and returns how long it took.
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
		t.metrics.requests.WithLabelValues(routeLabel(r.Route), methodLabel(r.Method), statusOf(status)).Observe(took.Seconds())
		end(status)
		return took
	}
}

// Pass adds to the headers of a request that is passed on: which it was here.
func (t *Telemetry) Pass(ctx context.Context, h http.Header) {
	h.Set("X-Request-Id", RequestID(ctx))
	if t != nil {
		t.Call(ctx, h)
	}
}

func routeLabel(route string) string {
	if route == "" {
		return "none"
	}
	return route
}

// request begins the span of a request, and returns what ends it.
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
	case r.changes():
		// Clients of the Workflow SDK, for one, do not say for which call of ours they act, but for which run.
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

// changes reports whether the request may change something about a run.
func (r Request) changes() bool {
	return r.RunID != "" && r.Method != http.MethodGet && r.Method != http.MethodHead
}
