package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// canary marks all confidential data in the test below.
const canary = "c4n4ry"

// waitFor waits for a text in a log.
func waitFor(t *testing.T, log *testdb.Log, text string) {
	t.Helper()
	testdb.Eventually(t, text, func() bool { return log.Contains(text) })
}

// leakyFunction starts an endpoint that fails in every way, each time with the canary, before it behaves.
func leakyFunction(t *testing.T) string {
	t.Helper()
	var calls, steps atomic.Int64
	return function(t, func(c received, w http.ResponseWriter) {
		if c.Type == "step" {
			if steps.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprintf(w, `{"error":{"message":"%[1]s","code":"%[1]s","details":"%[1]s"}}`, canary)
				return
			}
			_, _ = fmt.Fprintf(w, "%q", canary)
			return
		}
		w.Header().Set("Retry-After", "0")
		switch calls.Add(1) {
		case 1:
			http.Error(w, canary, http.StatusInternalServerError)
		case 2:
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = fmt.Fprintf(conn, "%s\r\n\r\n", canary)
			_ = conn.Close()
		case 3:
			reply(w, object{"type": canary, canary: canary})
		default:
			replyWithCommands(c, w)
		}
	})
}

func replyWithCommands(c received, w http.ResponseWriter) {
	if c.has("step_completed") && strings.Count(fmt.Sprint(c.Events), "hook_received") == 3 {
		reply(w, object{"type": "complete", "output": canary})
		return
	}
	signal := object{"name": "paid", "condition": "data[data.note] == 1"}
	reply(w, object{"type": "setAttributes", "attributes": object{"note": canary}},
		object{"type": "runStep", "id": "work", "input": canary, "retry": object{"backoff": "1ms"}},
		object{"type": "openHook", "id": "choosy", "signal": signal, "metadata": canary},
		object{"type": "openHook", "id": "any", "signal": object{"name": "paid"}},
		object{"type": "openHook", "id": "open", "token": "token-" + canary, "webhook": object{}})
}

// TestTelemetryHasNoPayloads: the debug log, all spans and all metrics contain no payloads, no error messages of
// functions, no keys and no tokens.
func TestTelemetryHasNoPayloads(t *testing.T) {
	t.Parallel()
	s, recorder := newTracedServer(t)
	logged := &testdb.Log{}
	s.config.LogLevel, s.config.APIKey = -4, "key-"+canary // slog.LevelDebug
	var err error
	if s.logger, err = s.config.newLogger(logged); err != nil {
		t.Fatal(err)
	}
	app := leakyFunction(t)
	s.config.Deployments = map[string]string{
		"shop": app + "/" + canary, "gone": "http://" + unusedAddr(t) + "/" + canary,
		"sdk": function(t, func(_ received, w http.ResponseWriter) { http.Error(w, canary, http.StatusBadGateway) }),
	}
	mustStart(t, s)
	ask(t, s, "PUT", "/v1/secrets/shop", `{"values":["`+canary+`"]}`)
	id := ask(t, s, "POST", "/v1/runs", `{"workflow":"order","deployment":"shop","input":"`+canary+`"}`)["id"].(string)
	ask(t, s, "POST", "/v1/runs", `{"workflow":"order","deployment":"gone","input":"`+canary+`"}`)
	ask(t, s, "POST", "/sdk/queues-proxy/api/v3/topic/__wkf_step_a", canary, "Vqs-Deployment-Id", "sdk")
	ask(t, s, "PUT", "/sdk/v2/runs/"+id+"/stream/strm_1", canary, "Content-Type", "application/octet-stream")
	for i, path := range []string{
		"/v1/runs?cursor=" + canary, "/v1/hooks/" + canary + "/resume", "/sdk/v2/hooks/by-token?token=" + canary,
	} {
		servertest.Request(t, []string{"GET", "POST", "GET"}[i], "http://"+s.Addr()+path, `{"`+canary+`":1}`, "X-Request-Id", canary+" no ID",
			"Authorization", "Bearer "+s.config.APIKey)
	}
	servertest.Request(t, "GET", "http://"+s.Addr()+"/v1/runs", "", "Authorization", "Bearer wrong-"+canary)
	waitFor(t, logged, "route=/v1/hooks/:token/resume")
	for !strings.Contains(fmt.Sprint(ask(t, s, "GET", "/v1/runs/"+id+"/hooks", "")), "choosy") {
		time.Sleep(10 * time.Millisecond) // the test's own time limit
	}
	ask(t, s, "POST", "/v1/signals/paid", `{"data":{"note":"`+canary+`"}}`)
	ask(t, s, "POST", "/v1/hooks/"+url.PathEscape("token-"+canary)+"/resume", `{"payload":"`+canary+`"}`)
	ask(t, s, "POST", "/hooks/token-"+canary+"?q="+canary, `"`+canary+`"`, "Authorization", canary)
	if end := ask(t, s, "GET", "/v1/runs/"+id+"/wait", ""); end["output"] != canary {
		t.Fatalf("the run is %v; the log: %s", end, logged)
	}
	metrics := s.metricsText(t)
	s.stop(t.Context())

	for _, want := range []string{
		"answered 500 Internal Server Error", "answered 502 Bad Gateway", "see the message's last error", "invalid request",
		"connect: connection refused", "conditions cannot be evaluated", "run=" + id, "trace=", "request=", "msg=request",
	} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log has no %q, so the test does not cover it: %s", want, logged)
		}
	}
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, canary) {
			t.Errorf("logged: %s", line)
		}
	}
	if strings.Contains(metrics, canary) {
		t.Errorf("the metrics contain the canary: %s", metrics)
	}
	noCanaryIn(t, recorder)
}

// noCanaryIn checks that no span contains the canary.
func noCanaryIn(t *testing.T, recorder *tracetest.SpanRecorder) {
	t.Helper()
	all := recorder.Ended()
	if len(all) < 50 {
		t.Errorf("got only %d spans", len(all))
	}
	for _, span := range all {
		text := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Links(), span.Status(), span.SpanContext())
		if strings.Contains(text, canary) {
			t.Errorf("span contains the canary: %s", text)
		}
	}
}

// metricsText returns all metrics as text.
func (p *program) metricsText(t *testing.T) string {
	t.Helper()
	families, err := p.Telemetry().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(families)
}

// unusedAddr returns an address without a listener.
func unusedAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
