package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities"
)

// Span attributes beyond the OpenTelemetry semantic conventions.
const (
	runKey        = attribute.Key("stepwell.run_id")
	workflowKey   = attribute.Key("stepwell.workflow")
	outcomeKey    = attribute.Key("stepwell.outcome")
	eventsKey     = attribute.Key("stepwell.events")
	messageKey    = attribute.Key("stepwell.message_id")
	deploymentKey = attribute.Key("stepwell.deployment_id")
	subjectKey    = attribute.Key("stepwell.subject_id")
	attemptKey    = attribute.Key("stepwell.attempt")
	requestKey    = attribute.Key("stepwell.request_id")
)

// Traces creates spans. Each run has one trace, whose ID is derived from the run's ID: every server knows it without
// storing or passing it on. The root of the trace is the span of the run, whose ID is derived from the run's ID too.
// The server that appends the event that ends the run exports the root.
type Traces struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	// sampler decides for traces without a sampled parent. It looks only at the trace ID, so either all spans of a run
	// are sampled or none.
	sampler sdktrace.Sampler
}

// propagator carries traceparent and tracestate. It carries no baggage, which may hold any data.
var propagator = propagation.TraceContext{}

// NewTraces returns the traces of a server. The options configure the exporter and the resource.
func NewTraces(s Sampler, options ...sdktrace.TracerProviderOption) *Traces {
	sampler := s.root
	if s.followsParents {
		sampler = sdktrace.ParentBased(s.root)
	}
	options = append(options, sdktrace.WithSampler(sampler), sdktrace.WithIDGenerator(idGenerator{}))
	provider := sdktrace.NewTracerProvider(options...)
	return &Traces{provider: provider, tracer: provider.Tracer("github.com/stepwell-dev/stepwell"), sampler: s.root}
}

// Provider returns the provider for other tracers, such as the database driver's.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Shutdown exports the remaining spans.
func (t *Traces) Shutdown(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("export the remaining spans: %w", err)
	}
	return nil
}

// Sampler decides which traces are sampled.
type Sampler struct {
	root           sdktrace.Sampler
	followsParents bool
}

// ParseSampler reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; empty is parentbased_always_on.
func ParseSampler(name, arg string) (Sampler, error) {
	base, followsParents := strings.CutPrefix(strings.ToLower(strings.TrimSpace(name)), "parentbased_")
	switch base {
	case "":
		return Sampler{sdktrace.AlwaysSample(), true}, nil
	case "always_on":
		return Sampler{sdktrace.AlwaysSample(), followsParents}, nil
	case "always_off":
		return Sampler{sdktrace.NeverSample(), followsParents}, nil
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return Sampler{}, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q; want a number from 0 to 1", arg)
			}
		}
		return Sampler{sdktrace.TraceIDRatioBased(ratio), followsParents}, nil
	default:
		return Sampler{}, fmt.Errorf("OTEL_TRACES_SAMPLER is %q; want always_on, always_off or traceidratio, "+
			"optionally prefixed with parentbased_", name)
	}
}

// runSpanContext returns the run's root span as a remote parent for the other spans of the run.
func (t *Traces) runSpanContext(id entities.RunID) trace.SpanContext {
	config := trace.SpanContextConfig{TraceID: traceID(id), SpanID: runSpanID(id), Remote: true}
	sampling := t.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: config.TraceID})
	if sampling.Decision == sdktrace.RecordAndSample {
		config.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(config)
}

// start starts a span in the run's trace. If the current span belongs to another trace, the two are linked in both
// directions.
func (t *Traces) start(
	ctx context.Context, id entities.RunID, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	current := trace.SpanFromContext(ctx)
	if id == "" {
		return t.tracer.Start(ctx, name, options...)
	}
	options = append(options, trace.WithAttributes(runKey.String(string(id))))
	if current.SpanContext().TraceID() == traceID(id) {
		return t.tracer.Start(ctx, name, options...)
	}
	run := t.runSpanContext(id)
	if current.SpanContext().IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: current.SpanContext()}))
		current.SetAttributes(runKey.String(string(id)))
		current.AddLink(trace.Link{SpanContext: run})
	}
	return t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, run), name, options...)
}

// traceID returns the trace ID of a run: the bits of its ULID, or a hash of an ID without one.
func traceID(id entities.RunID) trace.TraceID {
	_, digits, _ := strings.Cut(string(id), "_")
	if u, err := ulid.ParseStrict(digits); err == nil && u != (ulid.ULID{}) {
		return trace.TraceID(u)
	}
	hash := sha256.Sum256([]byte(id))
	return trace.TraceID(hash[:16])
}

// runSpanID returns the ID of a run's root span.
func runSpanID(id entities.RunID) trace.SpanID {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // never fails
	return trace.SpanID(binary.BigEndian.AppendUint64(nil, max(1, hash.Sum64())))
}

// idGenerator generates random IDs, except for the root spans of runs.
type idGenerator struct{}

// rootOfRun is the context key of the run whose root span is being started.
type rootOfRun struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (g idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if id, ok := ctx.Value(rootOfRun{}).(entities.RunID); ok {
		return traceID(id), runSpanID(id)
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], nonZero())
	binary.BigEndian.PutUint64(id[8:], nonZero())
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements [sdktrace.IDGenerator].
func (idGenerator) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	return trace.SpanID(binary.BigEndian.AppendUint64(nil, nonZero()))
}

func nonZero() uint64 { return max(1, rand.Uint64()) } //nolint:gosec // trace IDs are not secret
