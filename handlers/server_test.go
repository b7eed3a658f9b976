package handlers

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestRoutesRequireTheKey checks all routes except the public ones.
func TestRoutesRequireTheKey(t *testing.T) {
	t.Parallel()
	// The public routes and their status without a key. The hook does not exist.
	open := map[string]int{
		"/healthz": 200, "/readyz": 200, "/clients/world.tgz": 200, "/v1/openapi.json": 200,
		"/v1/flows/schema": 200,
		"/hooks/:token":    404, "/hooks/:project/:token": 404,
	}
	locked, _, _ := newEcho(t, "secret key")
	free, _, _ := newEcho(t, "")
	routes := 0
	for _, route := range locked.Routes() {
		if route.Method == echo.RouteNotFound {
			continue
		}
		routes++
		path := route.Path
		for _, name := range []string{
			":runId", ":eventType", ":stepId", ":hookId", ":name", ":id", ":topic", ":group", ":token", ":project",
		} {
			path = strings.ReplaceAll(path, name, "x")
		}
		for name, header := range map[string]string{
			"no key": "", "wrong key": "Bearer secret", "another scheme": "Basic secret key", "key alone": "secret key",
			"more than the key": "Bearer secret key2", "empty key": "Bearer ",
		} {
			got := serve(locked, route.Method, path, "Authorization", header)
			want, ok := open[route.Path]
			if !ok {
				want = http.StatusUnauthorized
			}
			check.Equal(t, fmt.Sprintf("%s %s with %s", route.Method, path, name), got.Code, want)
		}
		if strings.HasPrefix(route.Path, "/sdk/v2/stream/") || strings.HasPrefix(route.Path, "/sdk/v3/") ||
			route.Path == "/v1/events/stream" || route.Path == "/v1/live" {
			continue // waits for the stream
		}
		if got := serve(locked, route.Method, path, "Authorization", "Bearer secret key"); got.Code == 401 {
			t.Errorf("%s %s with the key: got 401", route.Method, path)
		}
		if got := serve(free, route.Method, path); got.Code == http.StatusUnauthorized {
			t.Errorf("%s %s on an open server: got 401", route.Method, path)
		}
	}
	if routes < 20 {
		t.Errorf("only %d routes", routes)
	}
	// Unknown paths require the key too.
	for _, path := range []string{"/sdk/nothing", "/v1/nothing"} {
		if got := serve(locked, http.MethodGet, path); got.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", path, got.Code)
		}
	}
}

func TestProbesReportReadiness(t *testing.T) {
	t.Parallel()
	all, pool, _ := newEcho(t, "key")
	stopping, stop := context.WithCancel(t.Context())
	q := check.Value(queue.New(pool, migrations.DefaultSchema, nil))(t)
	trouble := ""
	o := Options{
		Pool: pool, Log: eventlog.New(pool, nil, q, time.Now), Queue: q, APIKey: "key",
		Logger: slog.New(slog.DiscardHandler), Stopping: stopping,
		Unready: func() string { return trouble }, Telemetry: newTelemetry(pool, q),
	}
	probes := NewProbes(o)
	for _, e := range []*echo.Echo{all, probes} {
		for _, path := range []string{"/healthz", "/readyz"} {
			got := serve(e, http.MethodGet, path)
			if got.Code != http.StatusOK || strings.TrimSpace(got.Body.String()) != `{"status":"ok"}` {
				t.Errorf("%s: got %d %s", path, got.Code, got.Body)
			}
		}
	}
	for _, e := range []*echo.Echo{all, probes} {
		if got := serve(e, http.MethodGet, "/metrics"); got.Code != http.StatusUnauthorized {
			t.Errorf("/metrics without a key: got %d", got.Code)
		}
		got := serve(e, http.MethodGet, "/metrics", "Authorization", "Bearer key")
		for _, line := range []string{"stepwell_runs_stranded 0\n", "# TYPE stepwell_messages_parked gauge\n"} {
			if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), line) {
				t.Errorf("/metrics: got %d %s, want it to have %q", got.Code, got.Body, line)
			}
		}
	}
	trouble = "no room"
	if got := serve(probes, http.MethodGet, "/readyz"); got.Code != http.StatusServiceUnavailable ||
		strings.TrimSpace(got.Body.String()) != `{"status":"no room"}` {
		t.Errorf("/readyz in trouble: got %d %s", got.Code, got.Body)
	}
	trouble = ""
	if got := serve(probes, http.MethodGet, "/v1/deployments"); got.Code != http.StatusNotFound {
		t.Errorf("probes answered with %d for the API", got.Code)
	}
	stop()
	got := serve(probes, http.MethodGet, "/readyz")
	if got.Code != http.StatusServiceUnavailable || strings.TrimSpace(got.Body.String()) != `{"status":"stopping"}` {
		t.Errorf("/readyz while stopping: got %d %s", got.Code, got.Body)
	}
	if got := serve(probes, http.MethodGet, "/healthz"); got.Code != http.StatusOK {
		t.Errorf("/healthz while stopping: got %d", got.Code)
	}

	pool.Close()
	o.Stopping = t.Context()
	probes = NewProbes(o)
	for _, e := range []*echo.Echo{all, probes} {
		got := serve(e, http.MethodGet, "/readyz")
		if got.Code != http.StatusServiceUnavailable || strings.TrimSpace(got.Body.String()) != `{"status":"database unreachable"}` {
			t.Errorf("/readyz without a database: got %d %s", got.Code, got.Body)
		}
		if got := serve(e, http.MethodGet, "/healthz"); got.Code != http.StatusOK {
			t.Errorf("/healthz without a database: got %d", got.Code)
		}
	}
}

func TestWorldPackageIsServed(t *testing.T) {
	t.Parallel()
	e, _, _ := newEcho(t, "key")
	got := serve(e, http.MethodGet, "/clients/world.tgz")
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/gzip" {
		t.Fatalf("got %d %s", got.Code, got.Header().Get("Content-Type"))
	}
	size := strconv.Itoa(got.Body.Len())
	if _, err := gzip.NewReader(got.Body); err != nil {
		t.Errorf("not gzip: %v", err)
	}
	head := serve(e, http.MethodHead, "/clients/world.tgz")
	if h := head.Header(); head.Code != http.StatusOK || head.Body.Len() != 0 || h.Get("Content-Length") != size ||
		h.Get("ETag") != got.Header().Get("ETag") {
		t.Errorf("HEAD: got %d and %d bytes with %v, want only the header of GET: %s bytes", head.Code, head.Body.Len(), h, size)
	}
	again := httptest.NewRequest(http.MethodGet, "/clients/world.tgz", nil)
	again.Header.Set("If-None-Match", got.Header().Get("ETag"))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, again)
	if w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with the ETag %q: got %d and %d bytes", got.Header().Get("ETag"), w.Code, w.Body.Len())
	}
}

// TestWorldPackageIsPackedOnce: strangers may request it as often as they like.
func TestWorldPackageIsPackedOnce(t *testing.T) {
	t.Parallel()
	first := check.Value(worldTarball())(t)
	second, err := worldTarball()
	if err != nil || &first.data[0] != &second.data[0] {
		t.Errorf("the package was packed again (%v)", err)
	}
}

// zeros is an infinite body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBodySizeIsLimited checks bodies with and without a Content-Length.
func TestBodySizeIsLimited(t *testing.T) {
	t.Parallel()
	e, _, _ := newEcho(t, "")
	e.PUT("/sdk/sink", func(c echo.Context) error {
		n, err := io.Copy(io.Discard, c.Request().Body)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, n)
	})
	web := httptest.NewServer(e)
	t.Cleanup(web.Close)
	for name, tt := range map[string]struct {
		length, announced int64
		status            int
	}{
		"just fits":            {maxBody, maxBody, http.StatusOK},
		"known length":         {maxBody + 1, maxBody + 1, http.StatusRequestEntityTooLarge},
		"unknown length":       {maxBody + 1, -1, http.StatusRequestEntityTooLarge},
		"fits, unknown length": {1000, -1, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := io.NopCloser(io.LimitReader(zeros{}, tt.length))
			req := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPut, web.URL+"/sdk/sink", body))(t)
			req.ContentLength = tt.announced
			req.Header.Set("Expect", "100-continue") // so that the client reads the rejection
			resp := check.Value(http.DefaultTransport.RoundTrip(req))(t)
			defer func() { _ = resp.Body.Close() }()
			answer := check.Value(io.ReadAll(resp.Body))(t)
			if resp.StatusCode != tt.status {
				t.Fatalf("got %d %s, want %d", resp.StatusCode, answer, tt.status)
			}
			if tt.status == http.StatusOK {
				return
			}
			if code, text := messageOf(t, "/sdk/sink", answer); code != "too_large" || !strings.Contains(text, "167772160") {
				t.Errorf("got %s %q, want too_large and the limit", code, text)
			}
		})
	}
}

// TestLateErrorsAreOnlyLogged checks errors after the response has begun.
func TestLateErrorsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	e, _, logged := newEcho(t, "")
	e.GET("/sdk/late", func(c echo.Context) error {
		if err := c.String(http.StatusOK, "begun"); err != nil {
			return err
		}
		return io.ErrClosedPipe
	})
	got := serve(e, http.MethodGet, "/sdk/late")
	if got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), []byte("begun")) {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	if !strings.Contains(logged.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("the log lacks the error: %s", logged)
	}
}
