package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const (
	apiKey = "sk_torture_0123456789abcdef"
	// retryPause is the pause before a retry.
	retryPause = 250 * time.Millisecond
)

// cluster is everything that faults are injected into.
type cluster struct {
	postgres *postgres
	servers  [2]*server
	balancer *balancer
	apps     []*app
}

// newCluster starts everything. The processes are supervised until the context ends.
func newCluster(ctx context.Context, t *testing.T, grace time.Duration) *cluster {
	t.Helper()
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	logs := t.ArtifactDir()
	s := &cluster{postgres: newPostgres(t)}
	for i := range s.servers {
		s.servers[i] = newServer(t, program, s.postgres.address, filepath.Join(logs, fmt.Sprintf("server-%d.log", i+1)), grace)
		s.servers[i].supervise(ctx, t)
	}
	s.balancer = newBalancer(t, s.servers[0].address, s.servers[1].address)
	lines := []harness.Line{{Name: "stable", Dir: "app"}, {Name: "beta55", Dir: "beta55"}}
	if l, ok := harness.GivenLine(); ok {
		lines = []harness.Line{l}
	}
	for _, line := range lines {
		a := newApp(t, line.Name, harness.AppFolder("../"+line.Dir), s.balancer.URL, logs)
		a.supervise(ctx, t)
		s.apps = append(s.apps, a)
	}
	for _, a := range s.apps {
		a.awaitUp(t)
		s.register(t, a)
	}
	return s
}

// register sets the URL of the app's deployment.
func (s *cluster) register(t *testing.T, a *app) {
	t.Helper()
	s.servers[0].awaitUp(t)
	url := "http://" + s.servers[0].address + "/v1/deployments/" + a.name
	if _, err := call[any](t.Context(), http.MethodPut, url, map[string]string{"url": a.url}); err != nil {
		t.Fatal(err)
	}
}

// server is one of the replicas.
type server struct {
	*supervised
	program, dsn, address string
}

func newServer(t *testing.T, program, dsn, log string, grace time.Duration) *server {
	t.Helper()
	s := &server{program: program, dsn: dsn, address: "127.0.0.1:" + strconv.Itoa(harness.FreePort(t))}
	s.supervised = newSupervised(t, "server "+s.address, log, harness.ServerReady, func() *exec.Cmd {
		return harness.Serve(program, dsn, apiKey, "STEPWELL_LISTEN="+s.address, "STEPWELL_SHUTDOWN_GRACE="+grace.String(),
			"GOTRACEBACK=all")
	})
	return s
}

// verify runs stepwell verify, which compares all logs with all rows.
func (s *server) verify(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, s.program, "verify")
	cmd.Env = harness.CleanEnv("DATABASE_URL=" + s.dsn)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// app is an app on one line of the SDK. Its name is also the name of its deployment.
type app struct {
	*supervised
	name, url string
	effects   string // the file in which the app records the execution of steps
}

func newApp(t *testing.T, name string, folder *harness.Folder, stepwell, logs string) *app {
	t.Helper()
	if err := folder.Ready(); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(harness.FreePort(t))
	a := &app{name: name, url: "http://127.0.0.1:" + port, effects: filepath.Join(logs, name+"-effects.jsonl")}
	a.supervised = newSupervised(t, "app "+name, filepath.Join(logs, name+".log"), harness.AppReady, func() *exec.Cmd {
		cmd := exec.Command("node", "server.mjs")
		cmd.Dir = folder.Path
		cmd.Env = harness.CleanEnv("PORT="+port, "STEPWELL_URL="+stepwell, "STEPWELL_API_KEY="+apiKey,
			"STEPWELL_DEPLOYMENT_ID="+name, "WORKFLOW_TARGET_WORLD=@stepwell/world", "EFFECTS_FILE="+a.effects)
		return cmd
	})
	return a
}

// errStatus is an answer with a status other than 200.
type errStatus struct {
	status int
	body   string
}

func (e *errStatus) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

func isStatus(err error, status int) bool {
	var e *errStatus
	return errors.As(err, &e) && e.status == status
}

// call sends a JSON request and decodes the JSON answer.
func call[T any](ctx context.Context, method, url string, body any) (v T, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return v, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	if err != nil {
		return v, err
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return v, err
	}
	if resp.StatusCode != http.StatusOK {
		return v, &errStatus{resp.StatusCode, string(answer)}
	}
	return v, json.Unmarshal(answer, &v)
}

// client is for requests other than streams.
var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// openLog creates the file for a process's output.
func openLog(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// pause waits, and reports whether the time passed before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
