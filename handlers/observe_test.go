package handlers

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestSafeRequestIDsAreKept(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", 64)
	for sent, keeps := range map[string]bool{
		"": false, "a": true, "A.b_c-9": true, longest: true, longest + "a": false, "a b": false, "ä": false, "a\n": false,
		`a"`: false, "a/b": false, "a=b": false, "\xff": false,
	} {
		got := requestID(sent)
		if (got == sent) != keeps || requestID(got) != got {
			t.Errorf("%q became %q; want it unchanged: %v", sent, got, keeps)
		}
	}
	if first, second := requestID(""), requestID(""); first == second {
		t.Error("two requests have the same ID")
	}
}

// TestEveryResponseHasARequestID checks that error bodies and the log have the same ID.
func TestEveryResponseHasARequestID(t *testing.T) {
	t.Parallel()
	e, _, logged := newEcho(t, "key")
	e.GET("/v1/broken", func(echo.Context) error { return errors.New("broken") })
	e.GET("/v1/panic", func(echo.Context) error { panic("oh") })
	for path, status := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 401, "/nothing": 404, "/v1/runs": 401, "/sdk/v2/runs": 401,
		"/hooks/none": 404, "/clients/world.tgz": 200, "/v1/broken": 500, "/v1/panic": 500,
	} {
		got := serve(e, http.MethodGet, path, "X-Request-Id", "mine")
		if id := got.Header().Get("X-Request-Id"); got.Code != status || id != "mine" {
			t.Errorf("%s: got %d, ID %q", path, got.Code, id)
		}
		if status >= 400 && !strings.HasPrefix(path, "/sdk/") && !strings.Contains(got.Body.String(), `"requestId":"mine"`) {
			t.Errorf("%s: the body has no ID: %s", path, got.Body)
		}
		if made := serve(e, http.MethodGet, path).Header().Get("X-Request-Id"); len(made) != 26 {
			t.Errorf("%s: made the ID %q", path, made)
		}
	}
	lines := 0
	for line := range strings.Lines(logged.String()) {
		lines++
		if !strings.Contains(line, "request=mine") && !strings.Contains(line, "request=01") {
			t.Errorf("a line has no ID: %s", line)
		}
	}
	if lines != 7 { // the panic and the two failures, each twice; the first request without a key
		t.Errorf("%d lines are logged: %s", lines, logged)
	}
}

// TestSlowRequestsAreLoggedAsWarnings checks that long polls and webhooks are not, nor starts that had to wait.
func TestSlowRequestsAreLoggedAsWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		route string
		took  time.Duration
		wait  time.Duration // to start a run
		want  string
	}{
		{"/v1/runs/:id", time.Second, 0, "DEBUG"},
		{"/v1/runs/:id", time.Second + 1, 0, "WARN"},
		{"/v1/runs/:id/wait", time.Minute, 0, "DEBUG"},
		{"/hooks/:token", time.Minute, 0, "DEBUG"},
		{"/v1/runs", 10 * time.Second, 9 * time.Second, "DEBUG"},
		{"/v1/runs", 10 * time.Second, 8 * time.Second, "WARN"},
	} {
		var out bytes.Buffer
		o := Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
		r := telemetry.Request{Method: "GET", Route: tt.route, Public: strings.HasPrefix(tt.route, hooksPath+"/")}
		o.logRequest(t.Context(), r, c.Response(), tt.took, tt.wait)
		if !strings.Contains(out.String(), "level="+tt.want) || !strings.Contains(out.String(), "route="+tt.route) {
			t.Errorf("%s after %s: got %s, want %s", tt.route, tt.took, &out, tt.want)
		}
	}
}

func TestRunIDIsReadFromThePath(t *testing.T) {
	t.Parallel()
	const id = entities.RunID("wrun_01JD5A8R8D0000000000000001")
	e, _, _ := newEcho(t, "")
	var got entities.RunID
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			got = runIDOf(c)
			return next(c)
		}
	})
	for path, want := range map[string]entities.RunID{
		"/v1/runs/" + string(id): id, "/v1/runs/" + string(id) + "/events": id, "/sdk/v2/runs/" + string(id): id,
		"/v1/runs/other": "", "/v1/runs": "", "/v1/deployments/" + string(id): "", "/sdk/v4/runs/null/events": "",
		"/v1/runs/wrun_%0A": "",
	} {
		got = "not asked"
		serve(e, http.MethodGet, path)
		check.Equal(t, path, got, want)
	}
}
