package e2e

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// The names of what is shared with the other packages of black-box tests.
const (
	patience = harness.Patience
	pollTime = harness.PollTime
)

type process = harness.Process

var (
	cleanEnv    = harness.CleanEnv
	eventually  = harness.Eventually
	skipIfShort = harness.SkipIfShort
)

// startProcess starts a program and returns what it says once it is ready: the submatch of the pattern.
// It is stopped with the test at the latest, which has to go well.
func startProcess(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*process, string) {
	t.Helper()
	p, said := harness.Start(t, name, cmd, ready)
	t.Cleanup(func() { p.Stop(t) })
	return p, said
}
