package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// object is a JSON object.
type object = map[string]any

// received is a function call as the function receives it.
type received struct {
	header http.Header
	Type   string
	Run    struct{ ID string }
	Events []struct{ Type, CorrelationID string }
}

func (c received) has(event string) bool {
	return slices.ContainsFunc(c.Events, func(e struct{ Type, CorrelationID string }) bool { return e.Type == event })
}

// hasFor reports whether the log has an event of the step, hook or wait.
func (c received) hasFor(event, id string) bool {
	return slices.Contains(c.Events, struct{ Type, CorrelationID string }{event, id})
}

// function starts an endpoint with a handler for function calls.
func function(t *testing.T, do func(received, http.ResponseWriter)) string {
	t.Helper()
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := received{header: r.Header}
		_ = json.NewDecoder(r.Body).Decode(&c) // messages for SDK apps are not JSON
		do(c, w)
	}))
	t.Cleanup(f.Close)
	return f.URL
}

func reply(w io.Writer, commands ...object) {
	_ = json.NewEncoder(w).Encode(object{"commands": commands})
}

// newTracedServer returns a server that is not yet started, and a recorder of its spans.
func newTracedServer(t *testing.T) (*program, *tracetest.SpanRecorder) {
	t.Helper()
	sampler, err := telemetry.ParseSampler("", "")
	if err != nil {
		t.Fatal(err)
	}
	recorder := tracetest.NewSpanRecorder()
	s := newServer(t, testdb.Indexed(t), server.RoleAll)
	s.traces = telemetry.NewTraces(sampler, sdktrace.WithSpanProcessor(recorder))
	return s, recorder
}

// ask sends a request and returns the JSON of a 2xx response.
func ask(t *testing.T, s *program, method, path, body string, header ...string) object {
	t.Helper()
	header = append([]string{"Content-Type", "application/json", "Authorization", "Bearer " + s.config.APIKey}, header...)
	resp := servertest.Request(t, method, "http://"+s.Addr()+path, body, header...)
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: got %s, %v: %s", method, path, resp.Status, err, data)
	}
	var answer object
	_ = json.Unmarshal(data, &answer)
	return answer
}

// spans is a list of ended spans.
type spans []sdktrace.ReadOnlySpan

// named returns the spans with the name, in the order of their ends.
func (all spans) named(name string) spans {
	var found spans
	for _, s := range all {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

// one returns the only span with the name.
func (all spans) one(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	found := all.named(name)
	if len(found) != 1 {
		t.Fatalf("%d spans are named %q, want 1, among %q", len(found), name, all.names())
	}
	return found[0]
}

func (all spans) names() []string {
	var list []string
	for _, s := range all {
		list = append(list, s.Name())
	}
	return list
}

// of returns the spans of the trace.
func (all spans) of(id trace.TraceID) spans {
	return slices.DeleteFunc(slices.Clone(all), func(s sdktrace.ReadOnlySpan) bool { return s.SpanContext().TraceID() != id })
}

func attributeOf(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func linksTo(s sdktrace.ReadOnlySpan, to trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool {
		return l.SpanContext.TraceID() == to.TraceID() && l.SpanContext.SpanID() == to.SpanID()
	})
}

func wantParent(t *testing.T, child sdktrace.ReadOnlySpan, parent trace.SpanContext) {
	t.Helper()
	if child.SpanContext().TraceID() != parent.TraceID() || child.Parent().SpanID() != parent.SpanID() {
		t.Errorf("%s is %s of trace %s, want its parent to be %s of trace %s", child.Name(), child.Parent().SpanID(),
			child.SpanContext().TraceID(), parent.SpanID(), parent.TraceID())
	}
}

// waitForTrace waits for all spans of a run.
func waitForTrace(t *testing.T, recorder *tracetest.SpanRecorder, id trace.TraceID) (all, ofRun spans) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
		all = recorder.Ended()
		ofRun = all.of(id)
		if len(ofRun.named("run")) == 1 && len(ofRun.named("execute step")) == 1 && // may end after its successors
			len(ofRun.named("invoke run")) == 3 && len(all.named("GET /v1/runs/:id/wait")) == 1 {
			return all, ofRun
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run's trace is incomplete: %q", ofRun.names())
		}
	}
}

// tracedFunction registers a function that passes its trace context on. It first records a step by calling the API, and
// then has the server execute one. The returned function returns the received traceparents by type of call.
func tracedFunction(t *testing.T, s *program) func() map[string][]string {
	t.Helper()
	var mu sync.Mutex
	traceparents := map[string][]string{}
	recorded := make(chan struct{})
	s.config.Deployments = map[string]string{"shop": function(t, func(c received, w http.ResponseWriter) {
		mu.Lock()
		traceparents[c.Type] = append(traceparents[c.Type], c.header.Get("Traceparent"))
		mu.Unlock()
		switch {
		case c.Type == "step":
			<-recorded
			_, _ = fmt.Fprint(w, `"done"`)
		case c.hasFor("step_completed", "work"):
			reply(w, object{"type": "complete"})
		case c.hasFor("step_created", "work"): // the call that reports the recorded step
			close(recorded)
			reply(w)
		default:
			ask(t, s, "POST", "/v1/runs/"+c.Run.ID+"/commands", `{"commands":[{"type":"recordStep","id":"quick"}]}`,
				"Stepwell-Invocation", c.header.Get("Stepwell-Invocation"), "Traceparent", c.header.Get("Traceparent"))
			reply(w, object{"type": "runStep", "id": "work"})
		}
	})}
	return func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(traceparents)
	}
}

// TestOneTracePerRun: a run and its function calls form one trace, which is linked with the request that started it.
func TestOneTracePerRun(t *testing.T) {
	t.Parallel()
	s, recorder := newTracedServer(t)
	traceparents := tracedFunction(t, s)
	mustStart(t, s)
	const caller, callerSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	run := ask(t, s, "POST", "/v1/runs", `{"workflow":"order","deployment":"shop"}`,
		"Traceparent", "00-"+caller+"-"+callerSpan+"-01")
	id := run["id"].(string)
	if end := ask(t, s, "GET", "/v1/runs/"+id+"/wait", ""); end["status"] != "completed" {
		t.Fatalf("the run is %v", end)
	}
	bits, err := ulid.ParseStrict(strings.TrimPrefix(id, "wrun_"))
	if err != nil {
		t.Fatal(err)
	}
	all, ofRun := waitForTrace(t, recorder, trace.TraceID(bits))

	root := ofRun.one(t, "run")
	if root.Parent().IsValid() || attributeOf(root, "stepwell.run_id") != id || attributeOf(root, "stepwell.outcome") != "completed" {
		t.Errorf("the root has the parent %v and the attributes %v", root.Parent(), root.Attributes())
	}
	started := ofRun.one(t, "append run_created")
	wantParent(t, started, root.SpanContext())
	posted := all.one(t, "POST /v1/runs")
	if posted.SpanContext().TraceID().String() != caller || posted.Parent().SpanID().String() != callerSpan {
		t.Errorf("the request is a child of %s in %s", posted.Parent().SpanID(), posted.SpanContext().TraceID())
	}
	if !linksTo(started, posted.SpanContext()) || !linksTo(posted, root.SpanContext()) ||
		attributeOf(posted, "stepwell.run_id") != id {
		t.Errorf("request and run are not linked: %v, %v", started.Links(), posted.Links())
	}

	invoked, executed := ofRun.named("invoke run"), ofRun.one(t, "execute step")
	wantParent(t, executed, root.SpanContext())
	for _, span := range invoked {
		wantParent(t, span, root.SpanContext())
	}
	commands := ofRun.one(t, "POST /v1/runs/:id/commands")
	wantParent(t, commands, invoked[0].SpanContext())
	if !slices.ContainsFunc(ofRun.named("append several"), childOf(commands)) {
		// recordStep is two events
		t.Errorf("no append is a child of the request with the commands: %q", ofRun.names())
	}
	statement := func(s sdktrace.ReadOnlySpan) bool {
		return s.InstrumentationScope().Name == "github.com/exaring/otelpgx" && childOf(started)(s)
	}
	if !slices.ContainsFunc(ofRun, statement) {
		t.Errorf("no statement is a child of the append: %q", ofRun.names())
	}
	want := map[string][]string{"step": {traceparent(executed)}}
	for _, span := range invoked {
		want["workflow"] = append(want["workflow"], traceparent(span))
	}
	if got := traceparents(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("functions received %q, want %q", got, want)
	}
}

func childOf(parent sdktrace.ReadOnlySpan) func(sdktrace.ReadOnlySpan) bool {
	return func(s sdktrace.ReadOnlySpan) bool { return s.Parent().SpanID() == parent.SpanContext().SpanID() }
}

// traceparent returns the header of a call made in a span.
func traceparent(s sdktrace.ReadOnlySpan) string {
	return fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID())
}

// TestWebhookCallerIsLinkedNotJoined: the trace context of an unauthenticated caller is neither parent nor sampling
// decision.
func TestWebhookCallerIsLinkedNotJoined(t *testing.T) {
	t.Parallel()
	s, recorder := newTracedServer(t)
	mustStart(t, s)
	const caller = "0af7651916cd43dd8448eb211c80319c"
	servertest.Request(t, "POST", "http://"+s.Addr()+"/hooks/none", "{}", "Traceparent", "00-"+caller+"-b7ad6b7169203331-01")
	for deadline := time.Now().Add(waitLimit); len(recorder.Ended()) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // the span ends after the response
	}
	span := spans(recorder.Ended()).one(t, "POST /hooks/:token")
	if span.Parent().IsValid() || len(span.Links()) != 1 || span.Links()[0].SpanContext.TraceID().String() != caller {
		t.Errorf("got the parent %v and the links %v", span.Parent(), span.Links())
	}
}

// TestTracesAreExported: to the standard endpoint, including the last spans before the server ends.
func TestTracesAreExported(t *testing.T) {
	t.Parallel()
	exported := make(chan *http.Request, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { exported <- r }))
	t.Cleanup(collector.Close)
	server := serveInChild(t, testdb.New(t), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	servertest.Request(t, http.MethodGet, server.base+"/v1/runs", "")
	server.signal(t, syscall.SIGTERM)
	select {
	case r := <-exported:
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("exported %s to %s", r.Header.Get("Content-Type"), r.URL)
		}
	case <-time.After(waitLimit):
		t.Error("nothing was exported")
	}
}

// TestTracingIsOffByDefault: no statement is traced and functions receive no trace context.
func TestTracingIsOffByDefault(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.Indexed(t), server.RoleAll)
	headers := make(chan http.Header, 1)
	s.config.Deployments = map[string]string{"shop": function(t, func(c received, w http.ResponseWriter) {
		headers <- c.header
		reply(w, object{"type": "complete"})
	})}
	mustStart(t, s)
	if s.traces != nil {
		t.Errorf("got traces %v", s.traces)
	}
	ask(t, s, "POST", "/v1/runs", `{"workflow":"order","deployment":"shop"}`)
	if h := <-headers; h.Get("Traceparent") != "" {
		t.Errorf("the function received the trace %q", h.Get("Traceparent"))
	}
}

func TestTracingIsEnabledByEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		config otelConfig
		want   bool
		err    string
	}{
		{otelConfig{}, false, ""},
		{otelConfig{Endpoint: "http://c.test:4318"}, true, ""},
		{otelConfig{TracesEndpoint: "http://c.test:4318/v1/traces"}, true, ""},
		{otelConfig{Exporter: "otlp"}, true, ""},
		{otelConfig{Exporter: "none", Endpoint: "http://c.test:4318"}, false, ""},
		{otelConfig{Disabled: true, Exporter: "otlp"}, false, ""},
		{otelConfig{Exporter: "zipkin"}, false, "want otlp or none"},
		{otelConfig{Exporter: "otlp", Protocol: "grpc"}, false, "want http/protobuf"},
		{otelConfig{Exporter: "otlp", TracesProtocol: "http/protobuf"}, true, ""},
	} {
		enabled, err := tt.config.enabled()
		if enabled != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: got %v and %v, want %v and an error with %q", tt.config, enabled, err, tt.want, tt.err)
		}
	}
	s := &program{config: config{OpenTelemetry: otelConfig{Exporter: "otlp", Sampler: "half"}}, logger: slog.New(slog.DiscardHandler)}
	if _, err := s.newTraces(t.Context()); err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER") {
		t.Errorf("invalid sampler: got %v", err)
	}
}
