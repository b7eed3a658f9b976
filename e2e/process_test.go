package e2e

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// Short names for the harness.
const (
	timeout      = harness.Timeout
	pollInterval = harness.PollInterval
)

type (
	process  = harness.Process
	response = harness.Response
)

var (
	cleanEnv    = harness.CleanEnv
	eventually  = harness.Eventually
	skipIfShort = harness.SkipIfShort
)

// startProcess starts a program, waits until its output matches the pattern, and returns the submatch. The program is
// stopped at the end of the test, and must then exit cleanly.
func startProcess(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*process, string) {
	t.Helper()
	p, match := harness.Start(t, name, cmd, ready)
	t.Cleanup(func() { p.Stop(t) })
	return p, match
}
