package tools

import "github.com/stepwell-dev/stepwell/e2e/harness"

// The names of what is shared with the other packages of black-box tests.
const patience = harness.Timeout

var (
	cleanEnv    = harness.CleanEnv
	eventually  = harness.Eventually
	skipIfShort = harness.SkipIfShort
)
