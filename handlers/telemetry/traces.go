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

// The attributes of spans, besides those of OpenTelemetry's conventions.
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

// Traces makes spans. There is one trace per run: whoever does something about a run, on any server, knows its
// trace by the run's ID alone, and so nothing needs to be stored or handed on. The trace's root is the span of the
// whole run, whose ID follows from the run's too; whoever writes the event that ends the run sends it.
type Traces struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	// sampler decides on traces that nobody has decided on. It looks at nothing but the trace's ID, so all spans of a
	// run are kept or none.
	sampler sdktrace.Sampler
}

// propagator reads and writes who called: traceparent and tracestate, and no baggage, in which anything may be.
var propagator = propagation.TraceContext{}

// NewTraces makes them; the options say where the spans go.
func NewTraces(s Sampler, options ...sdktrace.TracerProviderOption) *Traces {
	decide := s.root
	if s.followsParents {
		decide = sdktrace.ParentBased(s.root)
	}
	options = append(options, sdktrace.WithSampler(decide), sdktrace.WithIDGenerator(idGenerator{}))
	provider := sdktrace.NewTracerProvider(options...)
	return &Traces{provider: provider, tracer: provider.Tracer("github.com/stepwell-dev/stepwell"), sampler: s.root}
}

// Provider is where others, such as the driver of the database, get their tracers from.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Shutdown sends what is left.
func (t *Traces) Shutdown(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// Sampler says which traces are kept.
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
			"each also with parentbased_ before it", name)
	}
}

// runSpanContext is the span of a whole run, as its parts see it: their parent, somewhere else.
func (t *Traces) runSpanContext(id entities.RunID) trace.SpanContext {
	config := trace.SpanContextConfig{TraceID: traceID(id), SpanID: runSpanID(id), Remote: true}
	decided := t.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: config.TraceID})
	if decided.Decision == sdktrace.RecordAndSample {
		config.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(config)
}

// start begins a span about a run, in the run's trace. Whoever caused it from another trace is linked to it, and it to
// them.
func (t *Traces) start(
	ctx context.Context, id entities.RunID, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	cause := trace.SpanFromContext(ctx)
	here := cause.SpanContext()
	if id == "" {
		return t.tracer.Start(ctx, name, options...)
	}
	options = append(options, trace.WithAttributes(runKey.String(string(id))))
	if here.TraceID() == traceID(id) {
		return t.tracer.Start(ctx, name, options...)
	}
	run := t.runSpanContext(id)
	if here.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: here}))
		cause.SetAttributes(runKey.String(string(id)))
		cause.AddLink(trace.Link{SpanContext: run})
	}
	return t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, run), name, options...)
}

// traceID is the trace of a run: the bits of its ULID, or of a hash where it has none.
func traceID(id entities.RunID) trace.TraceID {
	_, digits, _ := strings.Cut(string(id), "_")
	if u, err := ulid.ParseStrict(digits); err == nil && u != (ulid.ULID{}) {
		return trace.TraceID(u)
	}
	hash := sha256.Sum256([]byte(id))
	return trace.TraceID(hash[:16])
}

// runSpanID is the span of a whole run.
func runSpanID(id entities.RunID) trace.SpanID {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // never fails
	return trace.SpanID(binary.BigEndian.AppendUint64(nil, max(1, hash.Sum64())))
}

// idGenerator makes the IDs of spans: any, but for that of a whole run.
type idGenerator struct{}

// rootOfRun is the context key of the run whose root is to begin.
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

func nonZero() uint64 { return max(1, rand.Uint64()) } //nolint:gosec // nobody gains by guessing it
