package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// forkText says from which event of which run a run goes on; empty for none.
func forkText(f *api.ForkOf) string {
	if f == nil {
		return ""
	}
	text := fmt.Sprintf("%s, event %d", f.RunID, f.Events)
	if again := againText(f.Steps, f.Children); again != "" {
		text += ", where " + again
	}
	return text
}

// againText says what becomes of the steps and child runs that were open where forks go on; empty if none were.
func againText(steps, children int64) string {
	var parts []string
	if steps > 0 {
		parts = append(parts, fmt.Sprintf("steps were open, which are executed again: %d", steps))
	}
	if children > 0 {
		parts = append(parts, fmt.Sprintf("child runs were open, which are started again as new runs: %d", children))
	}
	return strings.Join(parts, "; ")
}

type forkCmd struct {
	rerunCmd
	At int64 `field:"-" placeholder:"NUMBER" help:"Keep this many events; by default, those before the step that failed."`
}

// Run starts a run that goes on from the place in the log of the run with the ID, or from the failures of those that
// the flags select.
func (c forkCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	if c.At != 0 {
		if c.ID == "" {
			return usageErrorf("--at needs the ID of a run")
		}
		return c.copy(ctx, k, s, jsonBody{"at": c.At})
	}
	return c.copy(ctx, k, s, jsonBody{"from": "failure"})
}
