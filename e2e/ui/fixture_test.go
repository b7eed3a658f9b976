package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const apiKey = "sk_browser_0123456789abcdef"

// installation is a server, and an app whose functions its runs call.
type installation struct {
	t *testing.T
	// server is the address of the API, web that of the dashboard.
	server, web string
	// database is the connection string of the server's database.
	database string
	// kill kills the server, if it runs, and restart starts it again afterwards.
	kill, restart func()
	// traffic has what browsers below a path are sent.
	traffic *traffic
}

// traffic records the bodies of answers, while it is on.
type traffic struct {
	mu   sync.Mutex
	on   bool
	text bytes.Buffer
}

// record begins to record.
func (r *traffic) record() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = true
}

// recorded returns what was recorded.
func (r *traffic) recorded() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *traffic) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.text.Write(p)
	}
	return len(p), nil
}

// tee lets an answer be recorded while it is read.
func (r *traffic) tee(resp *http.Response) error {
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, r), resp.Body}
	return nil
}

// bothBases are the paths below which the dashboard is tested: the second one behind a proxy that strips it.
var bothBases = map[string]string{"at the root": "", "below a path": "/a/b"}

// bases are the paths for scenes that depend on the path as all others do: /a/b, where a wrong address fails. Other
// tests open the dashboard at the root. If E2E_BASES is set, these scenes run there as well, and for screenshots, too.
func bases() map[string]string {
	if os.Getenv("E2E_BASES") != "" || os.Getenv("E2E_SCREENSHOTS") != "" {
		return bothBases
	}
	return map[string]string{"below a path": bothBases["below a path"]}
}

func newInstallation(t *testing.T, base string, env ...string) *installation {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	var server *url.URL
	sent := &traffic{}
	proxy := httptest.NewServer(http.StripPrefix(base, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = r.In.Host
			r.Out.Header.Del("Accept-Encoding") // or what is recorded would be compressed
		},
		ModifyResponse: sent.tee,
	}))
	t.Cleanup(proxy.Close)
	database := testdb.New(t)
	serve := func(more ...string) *exec.Cmd {
		return harness.Serve(program, database, apiKey, append(append([]string{"STEPWELL_PUBLIC_URL=" + proxy.URL + base}, env...), more...)...)
	}
	process, addr := harness.Start(t, "server", serve(), harness.ServerReady)
	server = &url.URL{Scheme: "http", Host: addr}
	i := &installation{t: t, server: server.String(), web: server.String(), database: database, traffic: sent}
	if base != "" {
		i.web = proxy.URL + base
	}
	i.kill = func() {
		process.Kill()
		<-process.Ended()
	}
	i.restart = func() {
		i.kill()
		process, _ = harness.Start(t, "server", serve("STEPWELL_LISTEN="+addr), harness.ServerReady)
	}
	app := httptest.NewServer(http.HandlerFunc(serveFunction))
	t.Cleanup(app.Close)
	i.call("PUT", "/v1/deployments/shop", map[string]any{"url": app.URL}, nil)
	return i
}

// call calls the API with the key, and decodes its answer.
func (i *installation) call(method, path string, body, into any) {
	i.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		i.t.Fatal(err)
	}
	answer := i.raw(method, path, string(data))
	if into != nil && len(answer) > 0 {
		if err := json.Unmarshal(answer, into); err != nil {
			i.t.Fatal(err)
		}
	}
}

// raw calls the API with a body as it is, and returns the body of the answer.
func (i *installation) raw(method, path, body string) []byte {
	i.t.Helper()
	r := harness.Send(i.t.Context(), http.DefaultClient, method, i.server+path, apiKey, []byte(body))
	if r.Err != nil || r.Status >= 300 {
		i.t.Fatalf("%s: %d %s %v", r.What, r.Status, r.Body, r.Err)
	}
	return r.Body
}

// start starts a run and returns its ID.
func (i *installation) start(workflow string, more map[string]any) string {
	i.t.Helper()
	body := map[string]any{"workflow": workflow, "deployment": "shop"}
	for k, v := range more {
		body[k] = v
	}
	var run struct{ ID string }
	i.call("POST", "/v1/runs", body, &run)
	return run.ID
}

// wait waits until the run has an event of a type.
func (i *installation) wait(run, event string) {
	i.t.Helper()
	harness.Eventually(i.t, event, func() bool {
		var list struct{ Data []any }
		i.call("GET", "/v1/runs/"+run+"/events?type="+event, nil, &list)
		return len(list.Data) > 0
	})
}

// connect connects to the server's database, with its schema.
func (i *installation) connect() *pgx.Conn {
	i.t.Helper()
	config, err := pgx.ParseConfig(i.database)
	if err != nil {
		i.t.Fatal(err)
	}
	config.RuntimeParams["search_path"] = migrations.DefaultSchema
	c, err := pgx.ConnectConfig(i.t.Context(), config)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { _ = c.Close(context.WithoutCancel(i.t.Context())) })
	return c
}

// exec executes SQL until it has changed a row.
func (i *installation) exec(sql string, args ...any) {
	i.t.Helper()
	c := i.connect()
	var last error
	i.t.Cleanup(func() {
		if i.t.Failed() && last != nil {
			i.t.Logf("%s: %v", sql, last)
		}
	})
	harness.Eventually(i.t, sql, func() bool {
		tag, err := c.Exec(i.t.Context(), sql, args...)
		last = err
		return err == nil && tag.RowsAffected() > 0
	})
}

// serveFunction is the function of all workflows: an order with two steps and an approval, one that fails, and one that
// sleeps.
func serveFunction(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type string
		Run  struct{ Workflow string }
		Step struct{ Name string }

		Events []struct {
			Type          string
			CorrelationID string `json:"correlationId"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	has := func(kind, id string) bool {
		for _, e := range call.Events {
			if e.Type == kind && e.CorrelationID == id {
				return true
			}
		}
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if call.Type == "step" {
		_, _ = fmt.Fprintf(w, `{"output": {"receipt": 9007199254740993, "of": %q}}`, call.Step.Name)
		return
	}
	commands := `[]`
	switch {
	case call.Run.Workflow == "refund":
		commands = `[{"type": "fail", "error": {"code": "card_declined", "message": "The card that ends in 4242 was declined."}}]`
	case call.Run.Workflow == "reminder" && !has("wait_created", "tomorrow"):
		commands = `[{"type": "wait", "id": "tomorrow", "for": "24h"}]`
	case call.Run.Workflow == "reminder":
	case !has("step_created", "charge"):
		commands = `[{"type": "runStep", "id": "charge", "input": {"amount": 12.50}}, {"type": "runStep", "id": "reserve"}]`
	case has("step_completed", "charge") && has("step_completed", "reserve") && !has("hook_created", "approval"):
		commands = `[{"type": "openHook", "id": "approval"}]`
	case has("hook_received", "approval"):
		commands = `[{"type": "complete", "output": {"total": 1e3, "id": 9007199254740993}}]`
	}
	_, _ = fmt.Fprintf(w, `{"commands": %s}`, commands)
}
