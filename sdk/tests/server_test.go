package tests

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// adminKey is the servers' API key.
const adminKey = "sk_sdk_0123456789abcdef"

// server is a server process with a schema of its own. It can be killed and started again at the same address.
type server struct {
	process
	addr, schema string
	settings     []string
}

func newServer(t *testing.T, settings ...string) *server {
	t.Helper()
	return runServer(t, &server{schema: "sdk_" + strings.ToLower(rand.Text()[:12]), settings: settings})
}

// beside starts another server of the same schema.
func (s *server) beside(t *testing.T) *server {
	t.Helper()
	return runServer(t, &server{schema: s.schema, settings: s.settings})
}

// runServer starts a server that ends with the test.
func runServer(t *testing.T, s *server) *server {
	t.Helper()
	s.addr = "127.0.0.1:0"
	s.start(t)
	t.Cleanup(func() {
		if err := s.stop(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server:\n%s", s.Output())
		}
	})
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	var err error
	s.process, s.addr, err = startProcess(exec.Command(program, "serve"), harness.ServerReady, append(s.settings,
		"DATABASE_URL="+databaseURL, "STEPWELL_SCHEMA="+s.schema, "STEPWELL_LISTEN="+s.addr,
		"STEPWELL_API_KEY="+adminKey, "STEPWELL_ALLOW_ADDRESSES=loopback")...)
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) url() string { return "http://" + s.addr }

// client returns a client with a key of the role.
func (s *server) client(t *testing.T, role string) *stepwell.Client {
	t.Helper()
	var made struct{ Key string }
	s.admin(t, http.MethodPost, "/v1/keys", map[string]any{"name": "test", "role": role}, &made)
	return connect(t, s.url(), made.Key)
}

func connect(t *testing.T, url, key string) *stepwell.Client {
	t.Helper()
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: url, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// admin sends a request with the admin key. It fails the test if the server refuses it.
func (s *server) admin(t *testing.T, method, path string, body, into any) {
	t.Helper()
	got, err := s.request(t.Context(), adminKey, method, path, body, into)
	if err != nil || !got.ok() {
		t.Fatalf("%s %s: %s %v", method, path, got, err)
	}
}

// reply is the answer to a request.
type reply struct {
	status int
	body   []byte
}

func (r reply) ok() bool { return r.status/100 == 2 }

// String implements [fmt.Stringer].
func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// request sends a request with a credential, and decodes the answer if it is a success and into is not nil.
func (s *server) request(
	ctx context.Context, credential, method, path string, body, into any,
) (reply, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url()+path, bytes.NewReader(data))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	got := reply{status: resp.StatusCode}
	got.body, err = io.ReadAll(resp.Body)
	if err == nil && into != nil && got.ok() {
		err = json.Unmarshal(got.body, into)
	}
	return got, err
}

// signingKey creates a signing key and returns its secret.
func (s *server) signingKey(t *testing.T) string {
	t.Helper()
	var made struct{ Secret string }
	s.admin(t, http.MethodPost, "/v1/signing-keys", map[string]any{}, &made)
	return made.Secret
}

// serve serves an app whose calls must be signed, and registers it.
func (s *server) serve(t *testing.T, definitions ...stepwell.Definition) {
	t.Helper()
	s.serveVia(t, nil, definitions...)
}

// serveVia serves an app whose requests to the server the client sends; nil is the default.
func (s *server) serveVia(t *testing.T, client *http.Client, definitions ...stepwell.Definition) {
	t.Helper()
	s.serveConfigured(t, stepwell.AppConfig{HTTP: client}, definitions...)
}

// serveConfigured serves an app with a configuration that says nothing of the server.
func (s *server) serveConfigured(t *testing.T, c stepwell.AppConfig, definitions ...stepwell.Definition) {
	t.Helper()
	c.Name, c.Server, c.SigningKeys = "tests", s.url(), s.signingKey(t)
	app := stepwell.NewApp(c)
	app.Register(definitions...)
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	function := httptest.NewServer(h)
	t.Cleanup(function.Close)
	s.admin(t, http.MethodPut, "/v1/deployments/tests", map[string]any{"url": function.URL}, nil)
}
