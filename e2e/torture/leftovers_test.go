package torture

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// checkLeaks checks that no rows, connections or goroutines have leaked. It stops the servers.
func (v *report) checkLeaks(t *testing.T) {
	t.Helper()
	v.wantNoRows(t)
	v.wantNothingStranded(t)
	if out, err := v.servers[0].verify(t.Context()); err != nil {
		t.Errorf("stepwell verify: %v\n%s", err, out)
	}
	for _, d := range v.drivers {
		d.listening.Wait()
		<-d.ended
		d.up().Kill()
	}
	v.balancer.transport.CloseIdleConnections()
	for _, s := range v.servers {
		<-s.ended
	}
	v.wantIdleConnections(t)
	v.wantNoLeakedGoroutines(t, v.servers[1])
	v.servers[0].up().Stop(t)
	harness.Eventually(t, "all connections are closed", func() bool { return v.sessions(t) == 0 })
}

// wantNoRows checks that no rows of ended runs and delivered messages are left.
func (v *report) wantNoRows(t *testing.T) {
	t.Helper()
	for what, q := range map[string]struct {
		sql  string
		want int
	}{
		"messages":      {`SELECT count(*) FROM messages`, 0},
		"tickets":       {`SELECT count(*) FROM river_job WHERE finalized_at IS NULL`, 0},
		"processes":     {`SELECT count(*) FROM processes`, len(v.servers)},
		"hooks":         {`SELECT count(*) FROM hooks`, 0},
		"waits":         {`SELECT count(*) FROM waits`, 0},
		"wakes":         {`SELECT count(*) FROM run_wakes WHERE stranded_at IS NOT NULL`, 0},
		"running steps": {`SELECT count(*) FROM steps WHERE completed_at IS NULL`, 0},
		"open streams":  {`SELECT count(*) FROM streams WHERE closed_at IS NULL`, 0},
	} {
		harness.Eventually(t, what, func() bool {
			n, err := v.postgres.count(t.Context(), q.sql)
			return err == nil && n == q.want
		})
	}
}

// wantNothingStranded checks that the metrics of both servers report no stranded runs and no parked messages.
func (v *report) wantNothingStranded(t *testing.T) {
	t.Helper()
	for _, s := range v.servers {
		s.awaitUp(t)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+apiKey)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		for _, want := range []string{"stepwell_runs_stranded 0\n", "stepwell_messages_parked 0\n"} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("/metrics of %s: %v, %s; want %s", s.title, err, text, want)
			}
		}
	}
}

// sessions returns the number of the servers' database sessions.
func (v *report) sessions(t *testing.T) int {
	t.Helper()
	n, err := v.postgres.count(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> 'torture'`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wantIdleConnections checks that all sessions are idle, and that there are no more than the pools allow.
func (v *report) wantIdleConnections(t *testing.T) {
	t.Helper()
	const each = 20 + 4 // the pool, two connections for LISTEN (River's is one), heartbeats, and the probe of commits
	harness.Eventually(t, "the servers' sessions are idle", func() bool {
		busy, err := v.postgres.count(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name <> 'torture' AND state <> 'idle'`)
		return err == nil && busy == 0
	})
	if n := v.sessions(t); n > each*len(v.servers) {
		t.Errorf("the servers have %d sessions, want at most %d", n, each*len(v.servers))
	}
}

// busyGoroutine matches functions that are on a goroutine's stack only during a request or a delivery.
var busyGoroutine = regexp.MustCompile(`stepwell/(handlers/(wire|rest)\.\(\*Server\)|queue\.\(\*deliverer\))\S*`)

// wantNoLeakedGoroutines ends the server with SIGQUIT, and checks that no goroutine in its dump works on a request or a
// delivery.
func (v *report) wantNoLeakedGoroutines(t *testing.T, s *server) {
	t.Helper()
	p := s.up()
	if err := p.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	log, err := os.ReadFile(s.logPath)
	if err != nil {
		t.Fatal(err)
	}
	_, dump, found := strings.Cut(string(log), "SIGQUIT: quit")
	if !found {
		t.Fatalf("%s printed no goroutine dump", s.title)
	}
	goroutines := strings.Split(dump, "\n\n")
	t.Logf("%s had %d goroutines in the end", s.title, len(goroutines))
	if n := len(goroutines); n < 10 || n > 150 {
		t.Errorf("%s had %d goroutines in the end, want 10 to 150", s.title, n)
	}
	for _, g := range goroutines {
		if busyGoroutine.MatchString(g) {
			t.Errorf("%s: a goroutine has leaked:\n%s", s.title, g)
		}
	}
}
