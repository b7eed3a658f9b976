package harness

import (
	"cmp"
	"os"
	"regexp"
	"strings"
)

// foreign matches environment variables that would change the configuration of a server, an app or a tool under test.
var foreign = regexp.MustCompile(`^(DATABASE_URL=|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT=|EFFECTS_FILE=|DEBUG=)`)

// Clients of @stepwell/world.
const (
	OwnClient      = "own"
	OfficialClient = "official"
)

// Client returns the client of @stepwell/world that apps use unless a test chooses one: the own one, or the one in
// E2E_CLIENT.
func Client() string { return cmp.Or(os.Getenv("E2E_CLIENT"), OwnClient) }

// CleanEnv returns the environment without foreign variables and proxy settings, plus the client and the given
// variables. With E2E_POOLER, servers reach their database by a pooler.
func CleanEnv(more ...string) []string {
	env := []string{"NO_COLOR=1", "STEPWELL_CLIENT=" + Client()}
	for _, variable := range os.Environ() {
		if !foreign.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, poolerEnv(more)...) // the last of several duplicates wins
}
