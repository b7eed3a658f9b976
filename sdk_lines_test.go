package stepwell_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestDocumentsHaveTheLinesOfTheSDK: each line that the server knows has its row in the document of the protocol.
func TestDocumentsHaveTheLinesOfTheSDK(t *testing.T) {
	t.Parallel()
	for _, line := range entities.SDKLines {
		spec := fmt.Sprint(line.Mints)
		if line.Oldest < line.Mints {
			spec = fmt.Sprintf("%d, %d with a setting", line.Mints, line.Oldest)
		}
		rowed := false
		for _, row := range strings.Split(text(t, "docs/protocol.md"), "\n") {
			rowed = rowed || strings.Contains(row, " | "+line.Name+" | `workflow` "+line.Releases) &&
				strings.Contains(row, " | "+spec+" | ")
		}
		if !rowed {
			t.Errorf("docs/protocol.md has no row of line %s, workflow %s, spec version %s", line.Name, line.Releases, spec)
		}
	}
}
