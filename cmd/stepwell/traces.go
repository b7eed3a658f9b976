package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/stepwell-dev/stepwell/handlers/telemetry"
)

// otelConfig holds the standard OpenTelemetry variables that the SDK does not read by itself, or that decide whether
// to create an exporter at all.
type otelConfig struct {
	Disabled       bool   `env:"OTEL_SDK_DISABLED"`
	Exporter       string `env:"OTEL_TRACES_EXPORTER"`
	Endpoint       string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"`
	Protocol       string `env:"OTEL_EXPORTER_OTLP_PROTOCOL"`
	TracesProtocol string `env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"`
	Sampler        string `env:"OTEL_TRACES_SAMPLER"`
	SamplerArg     string `env:"OTEL_TRACES_SAMPLER_ARG"`
}

// enabled reports whether tracing is enabled: by an endpoint or by the exporter.
func (o otelConfig) enabled() (bool, error) {
	switch {
	case o.Disabled || o.Exporter == "none":
		return false, nil
	case o.Exporter == "otlp" || o.Exporter == "" && o.Endpoint+o.TracesEndpoint != "":
	case o.Exporter == "":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; want otlp or none", o.Exporter)
	}
	for _, protocol := range []string{o.Protocol, o.TracesProtocol} {
		if protocol != "" && protocol != "http/protobuf" {
			return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q; want http/protobuf, on port 4318", protocol)
		}
	}
	return true, nil
}

// exportTimeout bounds the export of the remaining spans at shutdown.
const exportTimeout = 3 * time.Second

// newTraces returns the configured traces, or nil if tracing is disabled.
func (p *program) newTraces(ctx context.Context) (*telemetry.Traces, error) {
	if enabled, err := p.config.OpenTelemetry.enabled(); err != nil || !enabled {
		return nil, err
	}
	sampler, err := telemetry.ParseSampler(p.config.OpenTelemetry.Sampler, p.config.OpenTelemetry.SamplerArg)
	if err != nil {
		return nil, err
	}
	attributes, err := resource.New(ctx, resource.WithAttributes(
		semconv.ServiceName("stepwell"), semconv.ServiceVersion(version()),
	), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("detect trace resource: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("create trace exporter: %w", err)
	}
	// Export errors are reported only to this handler, which is global to the process.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.logger.Warn("export traces", "error", err) }))
	return telemetry.NewTraces(sampler, sdktrace.WithBatcher(exporter), sdktrace.WithResource(attributes)), nil
}

// stopTraces exports the remaining spans.
func (p *program) stopTraces(ctx context.Context) {
	if p.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if err := p.traces.Shutdown(ctx); err != nil {
		p.logger.WarnContext(ctx, "export traces", "error", err)
	}
}
