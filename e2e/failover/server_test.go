package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
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

// startServer starts a server on the database, and registers the deployment f.
func startServer(t *testing.T, databaseURL string) *server {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve")
	cmd.Env = harness.CleanEnv("DATABASE_URL="+databaseURL, "STEPWELL_LISTEN=127.0.0.1:0",
		"STEPWELL_API_KEY="+adminKey, "STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json")
	p, addr := harness.Start(t, "server", cmd, harness.ServerReady)
	s := &server{Process: p, t: t, url: "http://" + addr}
	got := s.send(t.Context(), http.MethodPut, "/v1/deployments/f", map[string]string{"url": "http://127.0.0.1:9"})
	if got.status != http.StatusOK {
		t.Fatalf("PUT /v1/deployments/f: got %d %s, %v", got.status, got.body, got.err)
	}
	return s
}

// answer is the answer to a request. Err is set if there is none.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// send sends a request with the JSON of the given value, if that is not nil, and pairs of names and values of headers.
func (s *server) send(ctx context.Context, method, path string, body any, headers ...string) answer {
	data := []byte{}
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return answer{err: err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(data))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(resp.Body)
	return a
}

// startRun starts a run that does nothing for an hour.
func (s *server) startRun(ctx context.Context, key string) (id string, a answer) {
	a = s.send(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": "w", "deployment": "f", "idempotencyKey": key, "delay": "1h",
	})
	var run struct{ ID string }
	if a.status == http.StatusOK || a.status == http.StatusCreated {
		_ = json.Unmarshal(a.body, &run) // an empty ID is no run
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
				key, timeout, last.status, last.body, last.err)
			return ""
		}
	}
}

// readiness returns the status and the text of /readyz.
func (s *server) readiness() (status int, text string) {
	a := s.send(context.Background(), http.MethodGet, "/readyz", nil)
	return a.status, string(a.body)
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
