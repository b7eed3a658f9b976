package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities"
)

// logFields are the fields that a context adds to log lines.
type logFields struct {
	request string
	run     entities.RunID
}

type logFieldsKey struct{}

func withLogFields(ctx context.Context, f logFields) context.Context {
	return context.WithValue(ctx, logFieldsKey{}, f)
}

// RequestID returns the ID of the request that ctx belongs to, or "" outside a request.
func RequestID(ctx context.Context) string {
	f, _ := ctx.Value(logFieldsKey{}).(logFields)
	return f.request
}

// LogHandler adds the request, the run and the trace of a line's context to the line.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{h} }

type logHandler struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	f, _ := ctx.Value(logFieldsKey{}).(logFields)
	if f.request != "" {
		r.AddAttrs(slog.String("request", f.request))
	}
	if f.run != "" && !hasAttr(r, "run") {
		r.AddAttrs(slog.String("run", string(f.run)))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

func hasAttr(r slog.Record, key string) bool {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		found = found || a.Key == key
		return !found
	})
	return found
}
