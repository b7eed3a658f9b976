package tools

import "github.com/stepwell-dev/stepwell/e2e/harness"

// Short names for the harness.
const timeout = harness.Timeout

var (
	cleanEnv    = harness.CleanEnv
	eventually  = harness.Eventually
	skipIfShort = harness.SkipIfShort
)
