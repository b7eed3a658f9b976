package frameworks

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
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
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve")
	cmd.Env = harness.CleanEnv("DATABASE_URL="+testdb.New(t), "STEPWELL_LISTEN=127.0.0.1:0", "STEPWELL_API_KEY="+apiKey,
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json")
	_, addr := harness.Start(t, "server", cmd, harness.ServerReady)
	return server("http://" + addr)
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
	server server
	dir    string
	port   string
}

// install copies the app of a framework and installs its packages. The folder is not in /tmp, which may be small.
func install(t *testing.T, s server, f framework) *app {
	t.Helper()
	parent, err := filepath.Abs("../../.data/frameworks")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	a := &app{framework: f, server: s, port: freePort(t)}
	if a.dir, err = os.MkdirTemp(parent, f.name+"-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endProcesses(a.dir)
		_ = os.RemoveAll(a.dir)
	})
	if err := os.CopyFS(a.dir, os.DirFS(f.name)); err != nil {
		t.Fatal(err)
	}
	a.configure(t, "STEPWELL_APP_URL="+a.url())
	a.command(t, "npm install --no-audit --no-fund "+string(s)+"/clients/world.tgz")
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

// endProcesses kills what still runs in a folder: a development server of Next.js leaves a process that reads the
// configuration, and thereby watches the folder forever. Where there is no /proc, it does nothing.
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

// freePort returns a port on which nothing listens now. The frameworks do not tell which port they choose.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (a *app) url() string { return "http://127.0.0.1:" + a.port }

// prepare returns a command in the app's folder.
func (a *app) prepare(ctx context.Context, line string) *exec.Cmd {
	words := strings.Fields(line)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = a.dir
	cmd.Env = harness.CleanEnv("HOST=127.0.0.1", "HOSTNAME=127.0.0.1", "PORT="+a.port, "NEXT_TELEMETRY_DISABLED=1",
		"DO_NOT_TRACK=1")
	return cmd
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

// launch starts the app until the end of the test.
func (a *app) launch(t *testing.T, line string) {
	t.Helper()
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

// edit replaces a text in a file of the app.
func (a *app) edit(t *testing.T, name, old, text string) {
	t.Helper()
	path := filepath.Join(a.dir, name)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source = bytes.Replace(source, []byte(old), []byte(text), 1)
	if err := os.WriteFile(path, source, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantGreeting starts runs until one returns the text, and returns its ID.
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
		return run.Value == want
	})
	return runID
}

// greet runs the workflow. While the app is compiled, it may fail.
func (a *app) greet(t *testing.T) (run struct{ RunID, Value string }, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url()+"/greet", strings.NewReader("ann"))
	if err != nil {
		t.Fatal(err)
	}
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
