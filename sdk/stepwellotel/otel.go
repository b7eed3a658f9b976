// Package stepwellotel sends traces and metrics of an app by OpenTelemetry. What the app does for a run joins the trace
// of the run, if the server sends traces, too: see docs/observability.md.
//
//	app := stepwell.NewApp(stepwellotel.Instrument(config, stepwellotel.Config{}))
//
// An app that starts runs links their traces to its own by a client whose requests have a traceparent:
//
//	client, err := stepwell.NewClient(stepwell.ClientConfig{
//		HTTP: &http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport)},
//	})
//
// It is a module of its own, so that apps without it do not depend on OpenTelemetry.
package stepwellotel

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

const scope = "github.com/stepwell-dev/stepwell/sdk/stepwellotel"

// The attributes of spans are named like those of the server. Workflow, step and type of error are attributes of
// metrics, too.
const (
	runKey        = attribute.Key("stepwell.run_id")
	workflowKey   = attribute.Key("stepwell.workflow")
	deploymentKey = attribute.Key("stepwell.deployment_id")
	subjectKey    = attribute.Key("stepwell.subject_id")
	stepKey       = attribute.Key("stepwell.step")
	attemptKey    = attribute.Key("stepwell.attempt")
	warmKey       = attribute.Key("stepwell.warm")
	errorKey      = attribute.Key("error.type")
)

// Config says where traces and metrics go. The zero value is for the global providers.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Instrument returns the configuration of an app with interceptors around its own, which
//
//   - start a span "workflow NAME" for each call of a workflow, and a span "step NAME" for each attempt of a step. The
//     step's context has it, so that what the step calls joins it. If the attempt fails, its span has the error's text;
//   - record the seconds of both, in the histograms stepwell.invocation.duration and stepwell.step.duration, by
//     workflow, step and type of error.
func Instrument(app stepwell.AppConfig, c Config) stepwell.AppConfig {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	meter := c.MeterProvider.Meter(scope)
	i := interceptor{
		tracer:      c.TracerProvider.Tracer(scope),
		invocations: histogram(meter, "stepwell.invocation.duration", "How long calls of workflows take."),
		steps:       histogram(meter, "stepwell.step.duration", "How long attempts of steps take."),
	}
	app.InterceptInvocations = slices.Insert(slices.Clone(app.InterceptInvocations), 0, i.invocation)
	app.InterceptSteps = slices.Insert(slices.Clone(app.InterceptSteps), 0, i.step)
	return app
}

// histogram returns a histogram of seconds. If the meter refuses it, OpenTelemetry's error handler gets to know, and
// nothing is recorded.
func histogram(m metric.Meter, name, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300))
	if err != nil {
		otel.Handle(err)
	}
	return h
}

type interceptor struct {
	tracer             trace.Tracer
	invocations, steps metric.Float64Histogram
}

// invocation is an interceptor of calls of workflows.
func (i interceptor) invocation(
	ctx context.Context, info stepwell.InvocationInfo, next func(context.Context) error,
) error {
	ctx, span := i.tracer.Start(extract(ctx, info.Trace), "workflow "+info.Run.Workflow,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(ofRun(info.Run)...),
		trace.WithAttributes(attemptKey.Int(info.Attempt), warmKey.Bool(info.Warm)))
	return record(ctx, span, i.invocations, next, workflowKey.String(info.Run.Workflow))
}

// step is an interceptor of attempts of steps.
func (i interceptor) step(ctx context.Context, info stepwell.StepInfo, next func(context.Context) error) error {
	kind := trace.SpanKindInternal
	if !info.Inline {
		ctx, kind = extract(ctx, info.Trace), trace.SpanKindServer
	}
	ctx, span := i.tracer.Start(ctx, "step "+info.Name,
		trace.WithSpanKind(kind), trace.WithAttributes(ofRun(info.Run)...),
		trace.WithAttributes(subjectKey.String(info.ID), attemptKey.Int(info.Attempt)))
	return record(ctx, span, i.steps, next, workflowKey.String(info.Run.Workflow), stepKey.String(info.Name))
}

// extract returns the context with the span of the server that a call belongs to.
func extract(ctx context.Context, t stepwell.TraceContext) context.Context {
	return propagation.TraceContext{}.Extract(ctx,
		propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

func ofRun(r stepwell.RunInfo) []attribute.KeyValue {
	return []attribute.KeyValue{
		runKey.String(r.ID), workflowKey.String(r.Workflow), deploymentKey.String(r.Deployment),
	}
}

// record calls next within a span, which it ends, and records how long it took.
func record(
	ctx context.Context, span trace.Span, seconds metric.Float64Histogram, next func(context.Context) error,
	of ...attribute.KeyValue,
) error {
	defer span.End()      // also after a panic
	started := time.Now() //nolint:forbidigo // durations are real
	err := next(ctx)
	if err != nil {
		kind := errorKey.String(fmt.Sprintf("%T", err))
		of = append(of, kind)
		span.SetAttributes(kind)
		span.SetStatus(codes.Error, err.Error())
	}
	seconds.Record(ctx, time.Since(started).Seconds(), metric.WithAttributes(of...))
	return err
}
