package testdb

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// containerID is the ID of the container of a fakeDaemon.
const containerID = "0123456789abcdef"

// fakeDaemon is a Docker daemon with one container, in which Postgres is ready at once.
type fakeDaemon struct {
	port int // where the container's port 5432 is published

	mu      sync.Mutex
	created struct { // what the container was created with
		Image    string
		Env, Cmd []string
	}
	removed bool
}

// newFakeDaemon starts a daemon and returns it with its address.
func newFakeDaemon(t *testing.T) (*fakeDaemon, string) {
	t.Helper()
	published, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = published.Close() })
	d := &fakeDaemon{port: published.Addr().(*net.TCPAddr).Port}
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	return d, "tcp://" + s.Listener.Addr().String()
}

// ServeHTTP implements the part of Docker's API that testcontainers uses.
func (d *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Content-Type", "application/json")
	answer := `{}`
	switch _, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
	case path == "networks":
		answer = `[{"Name": "bridge", "Id": "bridge"}]`
	case path == "containers/create":
		_ = json.NewDecoder(r.Body).Decode(&d.created) // a wrong request is seen in created
		answer = `{"Id": "` + containerID + `"}`
	case path == "containers/"+containerID+"/json":
		env, _ := json.Marshal(d.created.Env) // strings
		answer = fmt.Sprintf(`{"Id": %q, "State": {"Status": "running", "Running": true}, "Config": {"Env": %s},
			"HostConfig": {}, "NetworkSettings": {"Ports": {"5432/tcp": [{"HostIp": "127.0.0.1", "HostPort": "%d"}]}}}`, containerID, env, d.port)
	case path == "containers/"+containerID+"/logs":
		const line = "database system is ready to accept connections\n"
		frame := string([]byte{2, 0, 0, 0, 0, 0, 0, byte(len(line))}) + line // of standard error
		answer = frame + frame
	case path == "containers/"+containerID+"/exec": // looks for the listening port
		answer = `{"Id": "exec"}`
	case path == "exec/exec/start":
		endExec(w)
		return
	case r.Method == http.MethodDelete:
		d.removed = path == "containers/"+containerID
	}
	_, _ = io.WriteString(w, answer)
}

// endExec answers the start of a command, which ends at once without output.
func endExec(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_ = conn.Close()
}

// TestContainerChild is the test of a child process of the kind "container". Elsewhere it does nothing.
func TestContainerChild(t *testing.T) { //nolint:paralleltest // alone in its process
	if os.Getenv(childEnv) != "container" {
		return
	}
	c, err := startContainer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Println("\naddress " + c.dsn)
}

// TestContainerIsConfiguredAndRemoved runs in a child process, because testcontainers looks for the daemon only once per
// process.
func TestContainerIsConfiguredAndRemoved(t *testing.T) {
	t.Parallel()
	daemon, address := newFakeDaemon(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestContainerChild$")
	cmd.Env = append(os.Environ(), childEnv+"=container", "HOME="+t.TempDir(), "DOCKER_HOST="+address,
		"TESTCONTAINERS_RYUK_DISABLED=true", "TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	daemon.mu.Lock()
	defer daemon.mu.Unlock()
	var password string
	for _, variable := range daemon.created.Env {
		if value, ok := strings.CutPrefix(variable, "POSTGRES_PASSWORD="); ok {
			password = value
		}
	}
	want := fmt.Sprintf("address postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, daemon.port)
	if password == "" || !slices.Contains(strings.Split(string(out), "\n"), want) {
		t.Errorf("got\n%s\nwant a line %s", out, want)
	}
	command := "postgres -c fsync=off -c full_page_writes=off -c max_connections=600 -c synchronous_commit=off"
	if got := strings.Join(daemon.created.Cmd, " "); daemon.created.Image != image || got != command {
		t.Errorf("got image %s with %s, want %s with %s", daemon.created.Image, got, image, command)
	}
	if !daemon.removed {
		t.Error("the container was not removed")
	}
}
