package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// adminKey is the server's own key, an admin of the project default.
const adminKey = "sk_hostile_0123456789abcdef0123456789abcdef"

// fixture is a server with two projects that share one function.
type fixture struct {
	*harness.Process

	url, dsn         string
	function         *function
	attacker, victim tenant
}

// tenant is a project of the server, and a client of it.
type tenant struct {
	url, name string
	// admin and invoke are keys of these roles.
	admin, invoke string
}

// newFixture starts a server with default settings, apart from the given variables.
func newFixture(t *testing.T, env ...string) *fixture {
	t.Helper()
	harness.SkipIfShort(t)
	program, err := harness.FastServerProgram() // times are compared, so without -race
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{dsn: testdb.New(t), function: newFunction(t)}
	cmd := exec.Command(program, "serve")
	cmd.Env = append(harness.CleanEnv("DATABASE_URL="+f.dsn, "STEPWELL_LISTEN=127.0.0.1:0", "STEPWELL_API_KEY="+adminKey,
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json"), env...)
	p, addr := harness.Start(t, "server", cmd, harness.ServerReady)
	f.Process, f.url = p, "http://"+addr
	f.attacker, f.victim = f.newTenant(t, "attacker"), f.newTenant(t, "victim")
	return f
}

// newTenant creates a project with keys, and registers the function in it as deployment f.
func (f *fixture) newTenant(t *testing.T, name string) tenant {
	t.Helper()
	send(t, adminKey, http.MethodPut, f.url+"/v1/projects/"+name, nil).want(t, http.StatusCreated, http.StatusOK)
	n := tenant{url: f.url, name: name, admin: f.newKey(t, name, "admin"), invoke: f.newKey(t, name, "invoke")}
	n.send(t, http.MethodPut, "/v1/deployments/f", map[string]string{"url": f.function.URL}).want(t, http.StatusOK)
	return n
}

// newKey creates a key of a project.
func (f *fixture) newKey(t *testing.T, project, role string) string {
	t.Helper()
	made := send(t, adminKey, http.MethodPost, f.url+"/v1/keys", map[string]string{
		"project": project, "name": role, "role": role,
	}).want(t, http.StatusCreated)
	return decode[struct{ Key string }](t, made).Key
}

// send sends a request with the tenant's admin key.
func (n tenant) send(t *testing.T, method, path string, body any) response {
	t.Helper()
	return send(t, n.admin, method, n.url+path, body)
}

// start starts a run and returns its ID.
func (n tenant) start(t *testing.T, workflow string, input any) string {
	t.Helper()
	r := n.send(t, http.MethodPost, "/v1/runs", map[string]any{"workflow": workflow, "input": input, "deployment": "f"})
	return decode[struct{ ID string }](t, r.want(t, http.StatusCreated, http.StatusOK)).ID
}

// response is a complete answer.
type response struct {
	what   string
	status int
	header http.Header
	body   []byte
	err    error // set if there is no answer, or only part of one
}

// client is for single requests. Attacks have transports of their own, so that they cannot take the victim's
// connections.
var client = &http.Client{Timeout: harness.Timeout}

// send sends a request whose body is the JSON of the given value, or empty if that is nil.
func send(t *testing.T, key, method, url string, body any) response {
	t.Helper()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
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

// problem returns an error unless the answer has one of the statuses.
func (r response) problem(statuses ...int) error {
	if r.err != nil {
		return fmt.Errorf("%s: %w", r.what, r.err)
	}
	for _, status := range statuses {
		if r.status == status {
			return nil
		}
	}
	return fmt.Errorf("%s answered %d %.300s; want %d", r.what, r.status, r.body, statuses)
}

// want fails the test unless the answer has one of the statuses.
func (r response) want(t *testing.T, statuses ...int) response {
	t.Helper()
	if err := r.problem(statuses...); err != nil {
		t.Fatal(err)
	}
	return r
}

// decode decodes a JSON answer.
func decode[T any](t *testing.T, r response) (v T) {
	t.Helper()
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("%s answered %.300s: %v", r.what, r.body, err)
	}
	return v
}
