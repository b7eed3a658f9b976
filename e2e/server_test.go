package e2e

import (
	"encoding/json"
	"net/http"
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
	cmd := harness.Serve(program, s.dsn, apiKey, append([]string{"STEPWELL_LISTEN=" + s.addr}, s.env...)...)
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
	request(t, http.MethodPut, s.url()+"/v1/deployments/"+deployment, body).Want(t, http.StatusOK)
}

// appKey creates an API key for an app, with the write role, as recommended for production.
func (s *server) appKey(t *testing.T) string {
	t.Helper()
	var made struct{ Key string }
	answer := request(t, http.MethodPost, s.url()+"/v1/keys", []byte(`{"name":"app","role":"write"}`))
	answer.Want(t, http.StatusCreated)
	if err := json.Unmarshal(answer.Body, &made); err != nil || made.Key == "" {
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

// request sends a request with the API key and reads the whole answer.
func request(t *testing.T, method, url string, body []byte) response {
	t.Helper()
	return requestWith(t, method, url, body, "Accept", "*/*")
}

// requestWith is request with one additional header.
func requestWith(t *testing.T, method, url string, body []byte, header, value string) response {
	t.Helper()
	return harness.Send(t.Context(), client, method, url, apiKey, body, header, value)
}

// client is for requests other than streams, which have no time limit. It does not reuse connections: Node closes idle
// ones after 5 s, and Go does not retry a POST that hits such a close.
var client = &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}

// decode decodes a JSON body.
func decode[T any](t *testing.T, r response) T {
	t.Helper()
	return harness.Decode[T](t, r)
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
