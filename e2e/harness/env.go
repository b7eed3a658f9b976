package harness

import (
	"os"
	"regexp"
	"strings"
)

// foreign matches environment variables that would change the configuration of a server, an app or a tool under test.
var foreign = regexp.MustCompile(`^(DATABASE_URL=|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT=|EFFECTS_FILE=|DEBUG=)`)

// CleanEnv returns the environment without foreign variables and proxy settings, plus the given variables.
func CleanEnv(more ...string) []string {
	env := []string{"NO_COLOR=1"}
	for _, variable := range os.Environ() {
		if !foreign.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, more...) // the last of several duplicates wins
}
