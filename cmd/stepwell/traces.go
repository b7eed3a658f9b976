package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/queue"
)

// otelConfig has those of OpenTelemetry's own variables that the SDK does not read by itself, or not soon enough.
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

// on reports whether traces are wanted: somebody said where they go, or that they go.
func (o otelConfig) on() (bool, error) {
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

// spansTimeout is how long the last spans may take to be sent.
const spansTimeout = 3 * time.Second

// traces are those that the configuration wants; nil for none.
func (s *server) newTraces(ctx context.Context) (*telemetry.Traces, error) {
	if on, err := s.config.OpenTelemetry.on(); err != nil || !on {
		return nil, err
	}
	sampler, err := telemetry.ParseSampler(s.config.OpenTelemetry.Sampler, s.config.OpenTelemetry.SamplerArg)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		semconv.ServiceName("stepwell"), semconv.ServiceVersion(version()),
	), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	// The only way to hear of spans that cannot be sent. There is one such handler in a process.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { s.logger.Warn("traces", "error", err) }))
	return telemetry.NewTraces(sampler, sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// traced makes spans of a pool's statements, without their parameters, where there is a span to which they belong.
func traced(t *telemetry.Traces) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		if t == nil {
			return
		}
		tracers := []pgx.QueryTracer{otelpgx.NewTracer(
			otelpgx.WithTracerProvider(t.Provider()), otelpgx.WithDisableConnectionDetailsInAttributes(),
		)}
		if c.ConnConfig.Tracer != nil {
			tracers = append(tracers, c.ConnConfig.Tracer)
		}
		c.ConnConfig.Tracer = multitracer.New(tracers...)
	}
}

// newTelemetry watches the server.
func (s *server) newTelemetry(q *queue.Queue) *telemetry.Telemetry {
	return telemetry.New(telemetry.Options{
		Gauges: q.Gauges, Pool: func() telemetry.PoolStat { return s.pool.Stat() },
		Traces: s.traces, Now: time.Now, Version: version(),
	})
}

// stopTraces sends what is left of them.
func (s *server) stopTraces(ctx context.Context) {
	if s.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, spansTimeout)
	defer cancel()
	if err := s.traces.Shutdown(ctx); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "traces", slog.Any("error", err))
	}
}

// version is that of the module the program was built from, or of the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return setting.Value
		}
	}
	return info.Main.Version
}
