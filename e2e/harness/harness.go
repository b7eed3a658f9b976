package harness

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const (
	// Timeout limits every wait for an event. It is generous, for busy machines.
	Timeout = 5 * time.Minute
	// PollInterval is the time between two checks of a condition.
	PollInterval = 20 * time.Millisecond
)

// workDir holds the programs that the tests build. It is removed after all tests.
var workDir string

// WorkDir returns a temporary folder that all tests of the package share.
func WorkDir() string { return workDir }

// Main is for TestMain: it runs the tests with a WorkDir. The given number of tests run in parallel, unless the flag
// -parallel is set. It may exceed the number of processors, because the tests mostly wait.
func Main(parallel int, run func()) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(parallel)) // it is a number
	}
	var err error
	if workDir, err = os.MkdirTemp("", "stepwell-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	defer func() { _ = os.RemoveAll(workDir) }()
	defer stopPooler()
	run()
}

// OpenDir returns a temporary folder that other users can enter: Postgres runs as another user for root.
func OpenDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// SkipIfShort skips the test under go test -short.
func SkipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
}

// IsLong reports whether to test in full, as `make test-long` does, rather than in part.
func IsLong() bool { return os.Getenv("STEPWELL_TEST_LONG") != "" }

// Eventually waits until the condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Timeout)
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, Timeout)
		case <-tick.C:
		}
	}
}
