package harness

import (
	"os"
	"regexp"
	"strings"
)

// foreign is what would configure a server, an app or a tool in some other way than a test wants.
var foreign = regexp.MustCompile(`^(DATABASE_URL=|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT=|EFFECTS_FILE=|DEBUG=)`)

// CleanEnv is our environment without what is foreign, and with what is given.
func CleanEnv(more ...string) []string {
	env := []string{"NO_COLOR=1"}
	for _, variable := range os.Environ() {
		if !foreign.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, more...) // of two that are the same, the later counts
}
