package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

const (
	clockKey = "sk_failover_clock_0123456789abcdef0123456789abcdef"
	// clockAhead is how far the server's clock is ahead of the database's.
	clockAhead = 2 * time.Minute
)

// TestClockAheadDelaysNothing runs a workflow that waits for two seconds, on a Postgres whose clock is behind the
// server's. All due times are the database's, so the run takes as long as with equal clocks.
func TestClockAheadDelaysNothing(t *testing.T) {
	harness.SkipIfShort(t)
	f := httptest.NewServer(http.HandlerFunc(waitTwoSeconds))
	defer f.Close()
	_, url := harness.StartFastServer(t, postgresBehind(t), clockKey, "STEPWELL_DELIVERIES=1") // so that all messages need tickets
	call := func(method, path, body string) string {
		t.Helper()
		r := harness.Send(t.Context(), http.DefaultClient, method, url+path, clockKey, []byte(body))
		return string(r.Want(t, http.StatusOK, http.StatusCreated).Body)
	}
	call(http.MethodPut, "/v1/deployments/f", fmt.Sprintf(`{"url": %q}`, f.URL))
	started := time.Now()
	var run struct{ ID string }
	if err := json.Unmarshal([]byte(call(http.MethodPost, "/v1/runs", `{"workflow": "nap", "deployment": "f"}`)), &run); err != nil {
		t.Fatal(err)
	}
	ended := call(http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=60s", "")
	took := time.Since(started)
	t.Logf("the run took %s", took)
	if took > clockAhead-time.Second || !strings.Contains(ended, `"completed"`) {
		t.Errorf("the run took %s, want about 2 s although the clocks differ by %s: %s", took, clockAhead, ended)
	}
}

// waitTwoSeconds is the function of a workflow that waits.
func waitTwoSeconds(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	answer := `{"commands": [{"type": "wait", "id": "w", "for": "2s"}]}`
	switch {
	case bytes.Contains(body, []byte(`"wait_completed"`)):
		answer = `{"commands": [{"type": "complete", "output": 1}]}`
	case bytes.Contains(body, []byte(`"wait_created"`)):
		answer = `{"commands": []}`
	}
	_, _ = io.WriteString(w, answer)
}

// postgresBehind starts a Postgres whose clock is behind that of the machine, and returns the address of its database.
func postgresBehind(t *testing.T) string {
	t.Helper()
	dir := harness.OpenDir(t)
	moved := movedPrograms(t, dir)
	options := localpg.Options{Dir: filepath.Join(dir, "db"), Relaxed: true, InstalledOnly: true}
	path := os.Getenv("PATH")
	if err := os.Setenv("PATH", moved+string(os.PathListSeparator)+path); err != nil {
		t.Fatal(err)
	}
	server, err := localpg.Start(t.Context(), options)
	if err := os.Setenv("PATH", path); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server.DSN()
}

// movedPrograms writes programs that run those of Postgres with a moved clock, and returns their folder.
func movedPrograms(t *testing.T, dir string) string {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(libraries) == 0 || len(programs) == 0 {
		t.Fatal("libfaketime or Postgres is missing: scripts/need postgres faketime installs them on Debian")
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\nLD_PRELOAD=%s FAKETIME=-%ds FAKETIME_DONT_FAKE_MONOTONIC=1 exec %s \"$@\"\n",
			libraries[0], int(clockAhead.Seconds()), filepath.Join(filepath.Dir(programs[len(programs)-1]), name))
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}
