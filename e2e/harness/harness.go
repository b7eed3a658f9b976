package harness

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// Patience is how long anything may take that is not a matter of time itself: long, for a busy machine.
	Patience = 5 * time.Minute
	// PollTime is how long to wait between two looks.
	PollTime = 20 * time.Millisecond
)

// workDir holds what the tests build, until all have ended.
var workDir string

// WorkDir is a folder that the tests of the package share, until all have ended.
func WorkDir() string { return workDir }

// Main is for TestMain: it runs the tests with a WorkDir. So many of them run at once, unless -parallel says
// otherwise: they wait most of their time.
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
	run()
}

// SkipIfShort skips what is not for go test -short.
func SkipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
}

// Eventually waits until the condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(PollTime)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, Patience)
		case <-tick.C:
		}
	}
}
