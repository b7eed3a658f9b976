package stepwell_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

// TestImageUsesGoVersionOfModule checks that the Dockerfile builds with the latest patch release of go.mod's Go.
func TestImageUsesGoVersionOfModule(t *testing.T) {
	t.Parallel()
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(text(t, "go.mod"))
	image := regexp.MustCompile(`(?m)^FROM golang:(\S+) AS build$`).FindStringSubmatch(text(t, "Dockerfile"))
	if module == nil || image == nil || module[1] != image[1] {
		t.Errorf("go.mod has Go %v, the Dockerfile %v", module, image)
	}
}

// TestDockerignoreAdmitsFoldersOfBinary checks that the build context has every top-level folder that the binary
// imports, and no other.
func TestDockerignoreAdmitsFoldersOfBinary(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"cmd": true, "go.mod": true, "go.sum": true}
	imports := map[string][]string{} // by package
	for _, f := range files(t) {
		if !f.isTest() {
			imports[f.pkg()] = append(imports[f.pkg()], f.imports(t)...)
		}
	}
	var add func(pkg string)
	seen := map[string]bool{}
	add = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		top, _, _ := strings.Cut(pkg, "/")
		want[top] = true
		for _, imported := range imports[pkg] {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				add(ours)
			}
		}
	}
	add("cmd/stepwell")
	var got []string
	for line := range strings.Lines(text(t, ".dockerignore")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			got = append(got, name)
			if !want[name] {
				t.Errorf(".dockerignore admits %s, which the binary does not need", name)
			}
		}
	}
	for name := range want {
		if !slices.Contains(got, name) {
			t.Errorf(".dockerignore excludes %s, which the binary needs", name)
		}
	}
}

// TestImageDrivesRun builds the image and has its server drive a run, with Postgres in a container beside it and the
// function in this test.
func TestImageDrivesRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("building the image takes minutes")
	}
	testcontainers.SkipIfProviderIsNotHealthy(t)

	function := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(function.Close)
	port := function.Listener.Addr().(*net.TCPAddr).Port
	serverURL := startImage(t, port)
	wantGreeting(t, serverURL, fmt.Sprintf("http://%s:%d", testcontainers.HostInternal, port))
}

// apiKey is the admin key of the server in the image.
const apiKey = "an-admin-key-of-the-image-test"

// startImage builds the image, runs it with a new database, and returns the server's URL. The server reaches the port of
// this machine at [testcontainers.HostInternal].
func startImage(t *testing.T, port int) string {
	t.Helper()
	nw, err := network.New(t.Context())
	testcontainers.CleanupNetwork(t, nw)
	if err != nil {
		t.Fatalf("create network: %v", err)
	}
	database, err := postgres.Run(t.Context(), "postgres:17",
		network.WithNetwork([]string{"postgres"}, nw),
		postgres.WithPassword("secret"),
		postgres.BasicWaitStrategies(),
	)
	testcontainers.CleanupContainer(t, database)
	if err != nil {
		t.Fatalf("start Postgres: %v", err)
	}

	var buildLog bytes.Buffer
	server, err := testcontainers.Run(t.Context(), "",
		testcontainers.WithDockerfile(testcontainers.FromDockerfile{Context: ".", BuildLogWriter: &buildLog}),
		network.WithNetwork([]string{"stepwell"}, nw),
		testcontainers.WithHostPortAccess(port),
		testcontainers.WithExposedPorts("8788/tcp"),
		testcontainers.WithEnv(map[string]string{
			"DATABASE_URL":             "postgres://postgres:secret@postgres/postgres?sslmode=disable",
			"STEPWELL_API_KEY":         apiKey,
			"STEPWELL_ALLOW_ADDRESSES": "private",
		}),
		testcontainers.WithWaitStrategy(wait.ForHealthCheck()), // the image's own
	)
	testcontainers.CleanupContainer(t, server)
	t.Cleanup(func() { // before the container is removed
		if t.Failed() && server != nil {
			logContainer(t, server)
		}
	})
	if err != nil {
		t.Fatalf("start the image: %v\n%s", err, &buildLog)
	}
	url, err := server.PortEndpoint(t.Context(), "8788/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// logContainer adds what the container wrote to the test's log.
func logContainer(t *testing.T, c testcontainers.Container) {
	t.Helper()
	logs, err := c.Logs(context.Background())
	if err != nil {
		t.Logf("read the server's log: %v", err)
		return
	}
	defer func() { _ = logs.Close() }()
	written, err := io.ReadAll(logs)
	t.Logf("the server's log (%v):\n%s", err, written)
}

// greet is a workflow of one step over plain HTTP.
func greet(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type   string
		Events []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	happened := func(event string) bool {
		return slices.ContainsFunc(call.Events, func(e struct{ Type string }) bool { return e.Type == event })
	}
	answer := `{"commands": []}`
	switch {
	case call.Type == "step":
		answer = `"hello"`
	case !happened("step_created"):
		answer = `{"commands": [{"type": "runStep", "id": "greeting"}]}`
	case happened("step_completed"):
		answer = `{"commands": [{"type": "complete", "output": "hello"}]}`
	}
	_, _ = io.WriteString(w, answer)
}

// wantGreeting has the server run the workflow of [greet] at functionURL, and checks its output.
func wantGreeting(t *testing.T, serverURL, functionURL string) {
	t.Helper()
	request(t, http.MethodPut, serverURL+"/v1/deployments/greeter", `{"url": "`+functionURL+`"}`)
	run := request(t, http.MethodPost, serverURL+"/v1/runs", `{"workflow": "greet", "deployment": "greeter"}`)
	run = request(t, http.MethodGet, serverURL+"/v1/runs/"+run.ID+"/wait?timeout=60s", "")
	if run.Status != "completed" || run.Output != "hello" {
		t.Errorf("the run is %s with output %q, want completed with hello", run.Status, run.Output)
	}
}

// run is what the test reads of a response.
type run struct{ ID, Status, Output string }

// request makes a request to the API, which must succeed.
func request(t *testing.T, method, url, body string) run {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: got %s, %s (%v)", method, url, resp.Status, answer, err)
	}
	var decoded run
	if err := json.Unmarshal(answer, &decoded); err != nil {
		t.Fatalf("%s %s: %s: %v", method, url, answer, err)
	}
	return decoded
}

// TestDeployHasNoGo checks that deploy holds manifests only.
func TestDeployHasNoGo(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("deploy", func(path string, d fs.DirEntry, err error) error {
		found++
		if filepath.Ext(path) == ".go" {
			t.Errorf("%s is Go", path)
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("found %d files, %v", found, err)
	}
}

// text returns the content of a file.
func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
