package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// apiKey is the servers' API key. Only the probes and the package download work without it.
const apiKey = "sk_e2e_0123456789abcdef"

// server is a server process that can be restarted with the same address and database.
type server struct {
	*process
	dsn  string
	addr string
	env  []string
	// proxied is set if clients use proxies. They repeat requests whose answers are lost there.
	proxied bool
}

// newServer starts a server on a new database.
func newServer(t *testing.T) *server {
	t.Helper()
	return newReplica(t, testdb.New(t))
}

// newReplica starts a server on the given database.
func newReplica(t *testing.T, dsn string, env ...string) *server {
	t.Helper()
	s := &server{dsn: dsn, addr: "127.0.0.1:0", env: env}
	s.start(t)
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve")
	cmd.Env = append(cleanEnv("DATABASE_URL="+s.dsn, "STEPWELL_LISTEN="+s.addr, "STEPWELL_API_KEY="+apiKey,
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json"), s.env...)
	s.process, s.addr = startProcess(t, "server", cmd, harness.ServerReady)
}

func (s *server) url() string { return "http://" + s.addr }

// register sets the URL of a deployment's functions.
func (s *server) register(t *testing.T, deployment, url string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"url": url})
	if err != nil {
		t.Fatal(err)
	}
	request(t, http.MethodPut, s.url()+"/v1/deployments/"+deployment, body).want(t, http.StatusOK)
}

// appKey creates an API key for an app, with the write role, as recommended for production.
func (s *server) appKey(t *testing.T) string {
	t.Helper()
	var made struct{ Key string }
	answer := request(t, http.MethodPost, s.url()+"/v1/keys", []byte(`{"name":"app","role":"write"}`))
	answer.want(t, http.StatusCreated)
	if err := json.Unmarshal(answer.body, &made); err != nil || made.Key == "" {
		t.Fatalf("got no key: %v", err)
	}
	return made.Key
}

// app starts an app with its own key, and registers it with the server.
func (s *server) app(t *testing.T, l *sdkLine, deployment string) *app {
	t.Helper()
	a := newApp(t, appOptions{
		line: l, stepwell: s.url(), deployment: l.named(deployment), env: []string{"STEPWELL_API_KEY=" + s.appKey(t)},
	})
	s.register(t, l.named(deployment), a.url())
	return a
}

// response is the result of an HTTP request.
type response struct {
	what   string
	status int
	header http.Header
	body   []byte
	err    error // set if there is no response, or only part of one
}

// request sends a request with the API key and reads the whole answer.
func request(t *testing.T, method, url string, body []byte) response {
	t.Helper()
	return requestWith(t, method, url, body, "Accept", "*/*")
}

// requestWith is request with one additional header.
func requestWith(t *testing.T, method, url string, body []byte, header, value string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(header, value)
	r := response{what: method + " " + url}
	resp, err := client.Do(req)
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = resp.Body.Close() }()
	r.status, r.header = resp.StatusCode, resp.Header
	r.body, r.err = io.ReadAll(resp.Body)
	return r
}

// client is for requests other than streams, which have no time limit. It does not reuse connections: Node closes idle
// ones after 5 s, and Go does not retry a POST that hits such a close.
var client = &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}

// problem returns an error unless the response has the status.
func (r response) problem(status int) error {
	if r.err != nil {
		return fmt.Errorf("%s: %w", r.what, r.err)
	}
	if r.status != status {
		return fmt.Errorf("%s answered %d %.300s; want %d", r.what, r.status, r.body, status)
	}
	return nil
}

func (r response) want(t *testing.T, status int) response {
	t.Helper()
	if err := r.problem(status); err != nil {
		t.Fatal(err)
	}
	return r
}

// decode decodes a JSON body.
func decode[T any](t *testing.T, r response) (v T) {
	t.Helper()
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("%s answered %.300s: %v", r.what, r.body, err)
	}
	return v
}

// pause waits, for tests of behavior over time.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal("the test ended during a pause")
	case <-time.After(d):
	}
}
