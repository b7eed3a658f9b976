package failover

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestReadinessFollowsCommits stops the only synchronous standby. Reads and heartbeats succeed, but no commit does.
func TestReadinessFollowsCommits(t *testing.T) {
	t.Parallel()
	_, b, s := newSynchronous(t)
	s.awaitReadiness(http.StatusOK)

	b.stop()
	if text := s.awaitReadiness(http.StatusServiceUnavailable); !strings.Contains(text, `"no commit for `) {
		t.Errorf("/readyz says %s, want that there is no commit", text)
	}
	if age := s.metric("stepwell_commit_age_seconds"); age < 9 {
		t.Errorf("the last commit was %v s ago, but the server is not ready", age)
	}
	if up := s.metric("stepwell_database_up"); up != 1 {
		t.Error("the database does not answer at all")
	}
	b.start()
	s.awaitReadiness(http.StatusOK)
	if age := s.metric("stepwell_commit_age_seconds"); age > 9 {
		t.Errorf("the last commit was %v s ago, but the server is ready", age)
	}
}

// TestFeedLagShowsAnOpenTransaction keeps a transaction of another client open.
func TestFeedLagShowsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	s := startServer(t, databaseURL(t, "", a))
	eventually(t, "there is no lag", func() bool { return s.metric("stepwell_feed_lag_seconds") == 0 })
	conn := a.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lag is measured", func() bool { return s.metric("stepwell_feed_lag_seconds") > 3 })
	if status, text := s.readiness(); status != http.StatusOK {
		t.Errorf("/readyz: got %d %s; a lag is no reason to stop", status, text)
	}
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lag is gone", func() bool { return s.metric("stepwell_feed_lag_seconds") == 0 })
}

// TestUnavailableDatabaseIs503 stops the database, and looks at each kind of client's answer.
func TestUnavailableDatabaseIs503(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	s := startServer(t, databaseURL(t, "", a))
	a.awaitWorker()
	a.kill()
	run := map[string]string{"workflow": "w", "deployment": "f"}
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, "/v1/runs", run},
		{http.MethodGet, "/v1/runs", nil},
		{http.MethodGet, "/sdk/v2/runs/wrun_01KJM8J2G00000000000000000", nil},
		{http.MethodPost, "/hooks/tok_0123456789abcdef0123456789abcdef", run},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got := s.send(ctx, request.method, request.path, request.body)
		cancel()
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" ||
			!strings.Contains(string(got.Body), "database_unavailable") {
			t.Errorf("%s %s without the database: got %d %s, Retry-After %q, %v", request.method, request.path, got.Status,
				got.Body, got.Header.Get("Retry-After"), got.Err)
		}
	}
	a.start()
	s.mustStartRun("after", 5*time.Second)
}

// metric reads a metric without labels.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	a := s.send(s.t.Context(), http.MethodGet, "/metrics", nil)
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(a.Body)
	if found == nil {
		s.t.Fatalf("/metrics has no %s: %d %v", name, a.Status, a.Err)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return value
}
