package frameworks

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const apiKey = "sk_frameworks_0123456789abcdef"

// server is the base URL of a server.
type server string

// startServer starts a server on a new database.
func startServer(t *testing.T) server {
	t.Helper()
	_, url := harness.StartFastServer(t, testdb.New(t), apiKey)
	return server(url)
}

// call sends a request without a body and returns the answer's status and body.
func (s server) call(t *testing.T, method, path string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, string(s)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	status, body, err = send(req)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// app is an app in a folder of its own, with its packages and the World that the server serves.
type app struct {
	framework
	// name is the framework and the line of the SDK, and the ID of the deployment.
	name   string
	need   need
	server server
	dir    string
	port   string
	// nodeOptions are the options for Node.
	nodeOptions string
}

// install copies the app of a framework and installs its packages for a line of the SDK.
func install(t *testing.T, s server, f framework, l line) *app {
	t.Helper()
	a := &app{framework: f, name: f.folder + "-" + l.name, need: f.on[l.name], server: s, port: strconv.Itoa(harness.FreePort(t))}
	a.dir = emptyFolder(t, a.name)
	for from, to := range f.sources() {
		if err := os.CopyFS(filepath.Join(a.dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if f.steps != "" {
		a.edit(t, "greet.ts", "./steps", f.steps)
	}
	a.configure(t, "STEPWELL_APP_URL="+a.url())
	a.command(t, strings.Join([]string{"npm install --prefer-offline --no-audit --no-fund", l.packages, a.need.packages,
		string(s) + "/clients/world.tgz"}, " "))
	if a.setup != "" {
		a.command(t, a.setup)
	}
	a.nodeOptions = a.need.nodeOptions // only now is there what they name
	return a
}

// configure writes the environment of the app, with the variable that says how deliveries reach it.
func (a *app) configure(t *testing.T, deliveries string) {
	t.Helper()
	env := strings.Join([]string{
		"STEPWELL_URL=" + string(a.server), "STEPWELL_API_KEY=" + apiKey, "STEPWELL_DEPLOYMENT_ID=" + a.name,
		deliveries, "WORKFLOW_TARGET_WORLD=@stepwell/world", "",
	}, "\n")
	if err := os.WriteFile(filepath.Join(a.dir, a.envFile), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
}

// emptyFolder returns the folder of an app, which is removed at the end: those of all apps would fill 12 GB. It is not in
// /tmp, which may be small.
func emptyFolder(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../../.data/frameworks", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil { // of a test that was killed
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// endProcesses kills what still runs in a folder: the development server of Nest leaves the app, and that of Next.js a
// process that reads the configuration, and thereby watches the folder forever. Where there is no /proc, it does nothing.
func endProcesses(dir string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // fails only for a bad pattern
	for _, link := range links {
		if cwd, err := os.Readlink(link); err != nil || cwd != dir {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			continue
		}
		if process, err := os.FindProcess(pid); err == nil {
			_ = process.Kill() // fails only if it has ended
		}
	}
}

func (a *app) url() string { return "http://127.0.0.1:" + a.port }

// prepare returns a command in the app's folder, where its packages may bring the program. $PORT is the app's port.
func (a *app) prepare(ctx context.Context, line string) *exec.Cmd {
	words := strings.Fields(strings.ReplaceAll(line, "$PORT", a.port))
	bin := filepath.Join(a.dir, "node_modules", ".bin")
	if own := filepath.Join(bin, words[0]); exists(own) {
		words[0] = own
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = a.dir
	cmd.WaitDelay = time.Second // what it leaves has its output
	cmd.Env = harness.CleanEnv("PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "HOST=127.0.0.1",
		"HOSTNAME=127.0.0.1", "PORT="+a.port, "NODE_OPTIONS="+a.nodeOptions, "NEXT_TELEMETRY_DISABLED=1", "DO_NOT_TRACK=1",
		"WORKFLOW_NO_UPDATE_CHECK=1")
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command runs a command to its end and returns its standard output.
func (a *app) command(t *testing.T, line string) string {
	t.Helper()
	cmd := a.prepare(t.Context(), line)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, out, stderr.Bytes())
	}
	return string(out)
}

// workflow runs the SDK's command line, and decodes what it prints.
func (a *app) workflow(t *testing.T, args string, v any) {
	t.Helper()
	out := a.command(t, "workflow "+args+" --json --backend @stepwell/world")
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("workflow %s: %v\n%s", args, err, out)
	}
}

// launch starts the app until the end of the test.
func (a *app) launch(t *testing.T, line string) {
	t.Helper()
	t.Cleanup(func() { endProcesses(a.dir) })
	harness.Start(t, a.name, a.prepare(context.WithoutCancel(t.Context()), line), a.ready)
}

// registered returns the URL at which the app is registered, or nothing.
func (a *app) registered(t *testing.T) string {
	t.Helper()
	status, body := a.server.call(t, http.MethodGet, "/v1/deployments/"+a.name)
	if status == http.StatusNotFound {
		return ""
	}
	var deployment struct{ URL string }
	if err := json.Unmarshal(body, &deployment); err != nil {
		t.Fatalf("status %d: %v", status, err)
	}
	return deployment.URL
}

// editStep replaces a text in a step, and writes the workflow's file again if that is needed.
func (a *app) editStep(t *testing.T, old, text string) {
	t.Helper()
	a.edit(t, "steps.ts", old, text)
	if a.stepsUnseen {
		a.edit(t, "greet.ts", "", "")
	}
}

// edit replaces a text in a file of the workflows.
func (a *app) edit(t *testing.T, name, old, text string) {
	t.Helper()
	path := filepath.Join(a.dir, a.workflows, name)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source = bytes.Replace(source, []byte(old), []byte(text), 1)
	if err := os.WriteFile(path, source, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantGreeting starts runs until one returns the text, and returns its ID. The server must know it.
func (a *app) wantGreeting(t *testing.T, want string) (runID string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last answer is %s", last)
		}
	}()
	harness.Eventually(t, want, func() bool {
		var run struct{ RunID, Value string }
		run, last = a.greet(t)
		runID = run.RunID
		if run.Value != want && a.savedAgain {
			a.edit(t, "steps.ts", "", "")
		}
		return run.Value == want
	})
	if status, body := a.server.call(t, http.MethodGet, "/v1/runs/"+runID); status != http.StatusOK {
		t.Errorf("the server does not have the run: status %d %s", status, body)
	}
	return runID
}

// greet runs the workflow. While the app is compiled, it may fail.
func (a *app) greet(t *testing.T) (run struct{ RunID, Value string }, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url()+"/greet", strings.NewReader(`{"name":"ann"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	status, body, err := send(req)
	if err != nil {
		return run, err.Error()
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(body, &run); err != nil {
			return run, err.Error()
		}
	}
	return run, string(body)
}

func send(req *http.Request) (status int, body []byte, err error) {
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
