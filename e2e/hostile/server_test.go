package hostile

import (
	"net/http"
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
	f := &fixture{dsn: testdb.New(t), function: newFunction(t)}
	f.Process, f.url = harness.StartFastServer(t, f.dsn, adminKey, env...) // times are compared, so without -race
	f.attacker, f.victim = f.newTenant(t, "attacker"), f.newTenant(t, "victim")
	return f
}

// newTenant creates a project with keys, and registers the function in it as deployment f.
func (f *fixture) newTenant(t *testing.T, name string) tenant {
	t.Helper()
	send(t, adminKey, http.MethodPut, f.url+"/v1/projects/"+name, nil).Want(t, http.StatusCreated, http.StatusOK)
	n := tenant{url: f.url, name: name, admin: f.newKey(t, name, "admin"), invoke: f.newKey(t, name, "invoke")}
	n.send(t, http.MethodPut, "/v1/deployments/f", map[string]string{"url": f.function.URL}).Want(t, http.StatusOK)
	return n
}

// newKey creates a key of a project.
func (f *fixture) newKey(t *testing.T, project, role string) string {
	t.Helper()
	made := send(t, adminKey, http.MethodPost, f.url+"/v1/keys", map[string]string{
		"project": project, "name": role, "role": role,
	}).Want(t, http.StatusCreated)
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
	return decode[struct{ ID string }](t, r.Want(t, http.StatusCreated, http.StatusOK)).ID
}

type response = harness.Response

// client is for single requests. Attacks have transports of their own, so that they cannot take the victim's
// connections.
var client = &http.Client{Timeout: harness.Timeout}

// send sends a request whose body is the JSON of the given value, or empty if that is nil.
func send(t *testing.T, key, method, url string, body any) response {
	t.Helper()
	return harness.Send(t.Context(), client, method, url, key, body)
}

// decode decodes a JSON answer.
func decode[T any](t *testing.T, r response) T {
	t.Helper()
	return harness.Decode[T](t, r)
}
