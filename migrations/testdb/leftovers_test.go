package testdb

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// childEnv makes this test binary a child process that runs only TestChild. Its value is the kind of child: "main"
// calls Main, "bare" does not, "hang" never ends.
const childEnv = "STEPWELL_TESTDB_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "bare", "hang":
		m.Run()
	default:
		Main(m)
	}
}

// TestChild is the test of a child process. Elsewhere it does nothing.
func TestChild(t *testing.T) { //nolint:paralleltest // alone in its process
	kind := os.Getenv(childEnv)
	if kind == "" {
		return
	}
	New(t)
	if _, err := os.Stdout.WriteString("\nready\n"); err != nil {
		t.Fatal(err)
	}
	if kind == "hang" {
		select {}
	}
}

// child starts a child process with its temporary files in tmp and waits until it has a database.
func child(t *testing.T, kind, tmp, databaseURL string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+kind, "TMPDIR="+tmp, "TEST_DATABASE_URL="+databaseURL)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return cmd
		}
	}
	t.Fatal("the child has no database")
	return nil
}

// reachable returns an empty folder that all users can enter.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// clusters returns the folders of throwaway servers in tmp.
func clusters(t *testing.T, tmp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tmp, "stepwell-postgres-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// eventually waits for a condition and fails the test after a minute.
func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited a minute until %s", condition)
		case <-tick.C:
		}
	}
}

func TestMainStopsServer(t *testing.T) {
	t.Parallel()
	tmp := reachable(t)
	cmd := child(t, "main", tmp, "")
	if len(clusters(t, tmp)) != 1 {
		t.Errorf("the child has servers %v, want one", clusters(t, tmp))
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the child failed: %v", err)
	}
	if left := clusters(t, tmp); len(left) > 0 {
		t.Errorf("the child left %v", left)
	}
}

func TestServerDiesWithProcess(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bare", "hang"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tmp := reachable(t)
			cmd := child(t, kind, tmp, "")
			if kind == "hang" {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait() // an error if it was killed
			eventually(t, "the server's folder is gone", func() bool { return len(clusters(t, tmp)) == 0 })
		})
	}
}

func TestDatabasesOfDeadProcessAreDropped(t *testing.T) {
	t.Parallel()
	s, err := localpg.Start(t.Context(), localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(context.Background()) }()
	given := s.DSN()
	left := func() int {
		return query[int](t, given, "SELECT count(*) FROM pg_database WHERE starts_with(datname, $1)", namePrefix)
	}

	dead, living := child(t, "hang", t.TempDir(), given), child(t, "hang", t.TempDir(), given)
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dead.Wait() // an error, as it was killed
	if got := left(); got != 4 {
		t.Errorf("two processes have %d databases, want a template and a clone each", got)
	}
	// Postgres releases a dead process's lock when it notices the broken connection.
	eventually(t, "the next process has dropped only the dead one's databases", func() bool {
		if err := child(t, "main", t.TempDir(), given).Wait(); err != nil {
			t.Fatalf("the next process failed: %v", err)
		}
		return left() == 2
	})
	if living.ProcessState != nil {
		t.Error("the living process has ended")
	}
}

func TestUnreachableServerFailsTest(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=main", "TEST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestChild") ||
		!strings.Contains(string(out), "TEST_DATABASE_URL: connect") {
		t.Errorf("got %v and\n%s\nwant a failure that names TEST_DATABASE_URL", err, out)
	}
}
