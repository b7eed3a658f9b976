package tests

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	exported "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwellotel"
)

// spanCollector receives the spans of servers and apps by OTLP, as protobuf or JSON.
type spanCollector struct {
	mu    sync.Mutex
	spans map[string]*exported.Span // by ID
}

// ServeHTTP implements [http.Handler].
func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == "application/json" {
		read := ptraceotlp.NewExportRequest()
		if err = read.UnmarshalJSON(body); err == nil {
			body, err = read.MarshalProto()
		}
	}
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, of := range of.ScopeSpans {
			for _, s := range of.Spans {
				c.spans[hex.EncodeToString(s.SpanId)] = s
			}
		}
	}
}

// wait returns the spans when the root of a trace, which is the last to end, has come.
func (c *spanCollector) wait(t *testing.T, id trace.TraceID) map[string]*exported.Span {
	t.Helper()
	for deadline := time.Now().Add(harness.Timeout); ; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		for _, s := range c.spans {
			if s.Name == "run" && trace.TraceID(s.TraceId) == id {
				defer c.mu.Unlock()
				return c.spans
			}
		}
		c.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the span of the run has not come")
		}
	}
}

// TestAnAppJoinsTheTraceOfItsRuns also starts the run in a trace of its caller, which the run's trace links to.
func TestAnAppJoinsTheTraceOfItsRuns(t *testing.T) {
	t.Parallel()
	received := &spanCollector{spans: map[string]*exported.Span{}}
	otlp := httptest.NewServer(received)
	t.Cleanup(otlp.Close)
	s := newServer(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+otlp.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	recorder, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	s.serveConfigured(t, stepwellotel.Instrument(stepwell.AppConfig{}, stepwellotel.Config{
		TracerProvider: provider, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	}), trip.Bind(bookTrip), reserve.Bind(reserveSeat))

	ctx, caller := provider.Tracer("caller").Start(t.Context(), "checkout")
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: s.url(), APIKey: adminKey, HTTP: &http.Client{
		Transport: otelhttp.NewTransport(http.DefaultTransport,
			otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{})),
	}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := trip.Start(ctx, c, "Rome")
	if err == nil {
		_, err = run.Wait(t.Context())
	}
	if err == nil || !strings.HasSuffix(err.Error(), "no seats to Rome") {
		t.Fatalf("the run ended with %v", err)
	}

	id := trace.TraceID(ulid.MustParseStrict(strings.TrimPrefix(run.ID(), "wrun_")))
	server := received.wait(t, id)
	app := recorder.Ended()
	wantParents(t, id, app, server, map[string]string{
		"workflow trip": "invoke run", "step quick": "workflow trip", "step reserve": "execute step",
	})
	if !linked(server, id, caller.SpanContext().TraceID()) {
		t.Error("no span of the run links to the trace of the caller")
	}
	for _, s := range app {
		if failed := s.Status().Description == "no seats to Rome"; failed != (s.Name() == "step reserve") {
			t.Errorf("%s has the status %+v", s.Name(), s.Status())
		}
	}
	wantDurations(t, reader)
}

// bookTrip has an inline step, and then one that the server calls, which fails.
func bookTrip(w *stepwell.Context, to string) (string, error) {
	if _, err := stepwell.Do(w, "quick", func(context.Context) (int, error) { return 1, nil }); err != nil {
		return "", err
	}
	return reserve.Run(w, to, stepwell.Remote())
}

func reserveSeat(_ context.Context, to string) (string, error) {
	return "", stepwell.Permanent(errors.New("no seats to " + to))
}

// wantParents expects each span of the app to be in the trace, and below the span of the app or server that is named.
func wantParents(
	t *testing.T, id trace.TraceID, app []sdktrace.ReadOnlySpan, server map[string]*exported.Span, want map[string]string,
) {
	t.Helper()
	names := map[string]string{}
	for id, s := range server {
		names[id] = s.Name
	}
	for _, s := range app {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	seen := map[string]bool{}
	for _, s := range app {
		parent, of := names[s.Parent().SpanID().String()], s.SpanContext().TraceID()
		if want, ours := want[s.Name()]; ours && (parent != want || of != id) {
			t.Errorf("%q is below %q in trace %s, want below %q in %s", s.Name(), parent, of, want, id)
		}
		seen[s.Name()] = true
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("there is no span %q", name)
		}
	}
}

// linked reports whether a span of a trace links to another trace.
func linked(spans map[string]*exported.Span, id, to trace.TraceID) bool {
	for _, s := range spans {
		if trace.TraceID(s.TraceId) == id && slices.ContainsFunc(s.Links, func(l *exported.Span_Link) bool {
			return trace.TraceID(l.TraceId) == to
		}) {
			return true
		}
	}
	return false
}

// wantDurations expects one attempt of each step, of which one failed, and the calls of the workflow.
func wantDurations(t *testing.T, reader sdkmetric.Reader) {
	t.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			of, _ := p.Attributes.Value("stepwell.step")
			_, failed := p.Attributes.Value("error.type")
			counts[fmt.Sprintf("%s %s failed=%t", m.Name, of.AsString(), failed)] += p.Count
		}
	}
	if invocations := "stepwell.invocation.duration  failed=false"; counts[invocations] == 0 {
		t.Errorf("there is no %s in %v", invocations, counts)
	}
	for _, step := range []string{"quick failed=false", "reserve failed=true"} {
		if n := counts["stepwell.step.duration "+step]; n != 1 {
			t.Errorf("%d attempts of %s, want 1", n, step)
		}
	}
}

// TestOneTraceOverGoAndPython: a workflow in Python, which a caller with a trace starts, has a function that is called
// within its call, a step in Python that is retried, and one in Go. Each attempt is one span.
func TestOneTraceOverGoAndPython(t *testing.T) {
	t.Parallel()
	received := &spanCollector{spans: map[string]*exported.Span{}}
	otlp := httptest.NewServer(received)
	t.Cleanup(otlp.Close)
	s := newServer(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+otlp.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	s.serveConfigured(t, stepwellotel.Instrument(stepwell.AppConfig{}, stepwellotel.Config{TracerProvider: provider}),
		reserve.Bind(func(_ context.Context, to string) (string, error) { return "seat to " + to, nil }))
	cmd := exec.CommandContext(t.Context(), "python3", "../python/tests/traced.py")
	cmd.Env = append(os.Environ(), "STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+adminKey,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+otlp.URL)
	out, err := cmd.CombinedOutput()
	_, runID, ok := strings.Cut(strings.TrimSpace(string(out)), "run wrun_")
	if err != nil || !ok {
		t.Fatalf("%v: %s", err, out)
	}

	id := trace.TraceID(ulid.MustParseStrict(runID))
	spans := received.wait(t, id)
	wantParents(t, id, recorder.Ended(), spans, map[string]string{"step reserve": "execute step"})
	parents := map[string][]string{}
	for _, span := range spans {
		above := spans[hex.EncodeToString(span.ParentSpanId)]
		if trace.TraceID(span.TraceId) == id && above != nil {
			parents[span.Name] = append(parents[span.Name], above.Name)
		}
	}
	for name, want := range map[string][]string{
		"step quick": {"workflow trip"}, "step plan": {"execute step", "execute step"},
	} {
		if !slices.Equal(parents[name], want) {
			t.Errorf("spans %q are below %q, want %q", name, parents[name], want)
		}
	}
	if calls := parents["workflow trip"]; len(calls) < 2 || slices.ContainsFunc(calls, func(above string) bool {
		return above != "invoke run"
	}) {
		t.Errorf("the calls of the workflow are below %q", calls)
	}
	if !linked(spans, id, trace.TraceID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Error("no span of the run links to the trace of the caller")
	}
	failed := 0
	for _, span := range spans {
		if span.Name == "step plan" && span.Status.GetMessage() == "no map of Rome" {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d attempts have failed, want 1", failed)
	}
}
