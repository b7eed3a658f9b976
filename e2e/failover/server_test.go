package failover

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// adminKey is the server's own key, an admin of the project default.
const adminKey = "sk_failover_0123456789abcdef0123456789abcdef"

// timeout limits every wait for a condition.
const timeout = 3 * time.Minute

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(harness.PollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, timeout)
		}
	}
}

// server is a Stepwell process.
type server struct {
	*harness.Process

	t   *testing.T
	url string
}

// startServer starts a server on the database, with other variables of its environment, and registers the deployment f.
func startServer(t *testing.T, databaseURL string, env ...string) *server {
	t.Helper()
	s := &server{t: t}
	s.Process, s.url = harness.StartFastServer(t, databaseURL, adminKey, env...)
	s.send(t.Context(), http.MethodPut, "/v1/deployments/f", map[string]string{"url": "http://127.0.0.1:9"}).
		Want(t, http.StatusOK)
	return s
}

// answer is the answer to a request.
type answer = harness.Response

// send sends a request with the JSON of the given value, if that is not nil, and pairs of names and values of headers.
func (s *server) send(ctx context.Context, method, path string, body any, headers ...string) answer {
	return harness.Send(ctx, http.DefaultClient, method, s.url+path, adminKey, body, headers...)
}

// startRun starts a run that does nothing for an hour.
func (s *server) startRun(ctx context.Context, key string) (id string, a answer) {
	a = s.send(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": "w", "deployment": "f", "idempotencyKey": key, "delay": "1h",
	})
	var run struct{ ID string }
	if a.Status == http.StatusOK || a.Status == http.StatusCreated {
		_ = json.Unmarshal(a.Body, &run) // an empty ID is no run
	}
	return run.ID, a
}

// mustStartRun starts a run, and tries again until the server accepts it. The first try may take as long as patience, and
// each further one twice as long, for busy machines.
func (s *server) mustStartRun(key string, patience time.Duration) (id string) {
	for deadline := time.Now().Add(timeout); ; time.Sleep(harness.PollInterval) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		id, last := s.startRun(ctx, key)
		cancel()
		if id != "" {
			return id
		}
		patience *= 2
		if time.Now().After(deadline) {
			s.t.Errorf("the server did not accept run %s within %s; last: %d %s %v",
				key, timeout, last.Status, last.Body, last.Err)
			return ""
		}
	}
}

// readiness returns the status and the text of /readyz.
func (s *server) readiness() (status int, text string) {
	a := s.send(context.Background(), http.MethodGet, "/readyz", nil)
	return a.Status, string(a.Body)
}

// awaitReadiness waits until /readyz has the status, and returns its text.
func (s *server) awaitReadiness(status int) (text string) {
	s.t.Helper()
	eventually(s.t, "/readyz is "+strconv.Itoa(status), func() bool {
		var got int
		got, text = s.readiness()
		return got == status
	})
	return text
}
