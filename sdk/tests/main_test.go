package tests

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// program is the server's binary, and databaseURL the Postgres of all servers, each of which has a schema of its own.
var program, databaseURL string

func TestMain(m *testing.M) {
	flag.Parse()
	if path := os.Getenv(ledgerVariable); path != "" {
		fmt.Fprintln(os.Stderr, serveKilled(path, os.Getenv("SDK_TESTS_LAST_LIFE") == "true"))
		os.Exit(1)
	}
	if point := os.Getenv(pointVariable); point != "" {
		fmt.Fprintln(os.Stderr, hangAt(os.Getenv(embeddedVariable), point))
		os.Exit(1)
	}
	if schema := os.Getenv(embeddedVariable); schema != "" {
		fmt.Fprintln(os.Stderr, embedAndHang(schema))
		os.Exit(1)
	}
	if name := os.Getenv(workerVariable); name != "" {
		if err := runWorker(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "40") // each takes a quarter of a second
	}
	_ = os.Setenv("STEPWELL_API_KEY", adminKey) // for the command replay; the name is valid
	code, err := withPostgres(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withPostgres builds the server and runs the tests with the Postgres of TEST_DATABASE_URL, or one that the server
// starts.
func withPostgres(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "stepwell-sdk-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // for the user of Postgres, if this one is root
		return 0, err
	}
	program = filepath.Join(dir, "stepwell")
	build := exec.Command("go", "build", "-o", program, "./cmd/stepwell")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the server: %w\n%s", err, out)
	}
	if databaseURL = os.Getenv("TEST_DATABASE_URL"); databaseURL != "" {
		return run(), nil
	}
	dev, found, err := startProcess(exec.Command(program, "dev"), regexp.MustCompile(`psql '([^']+)'`),
		"STEPWELL_DATA_DIR="+filepath.Join(dir, "postgres"), "STEPWELL_LISTEN=127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.stop(syscall.SIGTERM)) }()
	databaseURL = found
	return run(), nil
}

// process is a running server, app or worker.
type process struct{ *harness.Process }

// startProcess starts a process with nothing in its environment but paths and the given variables. It returns the match
// of ready in the output.
func startProcess(cmd *exec.Cmd, ready *regexp.Regexp, env ...string) (p process, found string, err error) {
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "STEPWELL_LOG=json")
	p.Process, found, err = harness.Launch(filepath.Base(cmd.Path), cmd, ready)
	return p, found, err
}

// stop kills the process, or has it end by itself, and waits for its end.
func (p process) stop(s syscall.Signal) error {
	if s == syscall.SIGKILL {
		p.Kill()
		return nil
	}
	return p.Terminate()
}
