package tests

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the server's binary, and databaseURL the Postgres of all servers, each of which has a schema of its own.
var program, databaseURL string

func TestMain(m *testing.M) {
	flag.Parse()
	if path := os.Getenv(ledgerVariable); path != "" {
		fmt.Fprintln(os.Stderr, serveKilled(path, os.Getenv("SDK_TESTS_LAST_LIFE") == "true"))
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

// startTimeout limits the start of a process: a new Postgres takes some seconds on a busy machine.
const startTimeout = 2 * time.Minute

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	out    *output
	exited chan error
}

// startProcess starts a process with nothing in its environment but paths and the given variables. It returns the match
// of ready in the output.
func startProcess(cmd *exec.Cmd, ready *regexp.Regexp, env ...string) (p *process, found string, err error) {
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "STEPWELL_LOG=json")
	p = &process{cmd, &output{ready: ready, found: make(chan string, 1)}, make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() { p.exited <- cmd.Wait() }()
	select {
	case found = <-p.out.found:
		return p, found, nil
	case err := <-p.exited:
		return nil, "", fmt.Errorf("%v has ended: %w\n%s", cmd.Args, err, p.out)
	case <-time.After(startTimeout):
		_ = p.stop(syscall.SIGKILL)
		return nil, "", fmt.Errorf("%v is not ready after %s\n%s", cmd.Args, startTimeout, p.out)
	}
}

// stop sends a signal and waits for the end of the process.
func (p *process) stop(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	err := <-p.exited
	if s == syscall.SIGKILL {
		return nil
	}
	return err
}

// output is what a process prints.
type output struct {
	ready *regexp.Regexp
	found chan string

	mu   sync.Mutex
	text bytes.Buffer
	done bool
}

// Write implements [io.Writer].
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	if m := o.ready.FindSubmatch(o.text.Bytes()); m != nil && !o.done {
		o.done = true
		o.found <- string(m[1])
	}
	return len(data), nil
}

// String returns all of it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
