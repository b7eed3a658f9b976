package stepwell_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestDocumentsHaveTheLinesOfTheSDK: each line that the server knows has its row in each document that lists them.
func TestDocumentsHaveTheLinesOfTheSDK(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"docs/protocol.md", "docs/workflow-sdk.md", "clients/world/README.md"} {
		for _, line := range entities.SDKLines {
			spec := fmt.Sprint(line.Mints)
			if line.Oldest < line.Mints {
				spec = fmt.Sprintf("%d, %d with a setting", line.Mints, line.Oldest)
			}
			rowed := false
			for row := range strings.Lines(text(t, document)) {
				rowed = rowed || strings.Contains(row, "| "+line.Name+" | `workflow` "+line.Releases) &&
					strings.Contains(row, " | "+spec+" | ")
			}
			if !rowed {
				t.Errorf("%s has no row of line %s, workflow %s, spec version %s", document, line.Name, line.Releases, spec)
			}
		}
	}
}

// TestPackageKnowsTheLinesOfTheSDK: @stepwell/world accepts the versions of the lines, and names the newest one.
func TestPackageKnowsTheLinesOfTheSDK(t *testing.T) {
	t.Parallel()
	source := text(t, "clients/world/lib/sdk.js")
	oldest, newest := entities.SDKLines[0], entities.SDKLines[len(entities.SDKLines)-1]
	for _, want := range []string{
		fmt.Sprintf("const OLDEST_SPEC = %d;", oldest.Oldest), fmt.Sprintf("const NEWEST_SPEC = %d;", newest.Mints),
		"(npm i workflow@~" + newest.Releases[strings.LastIndex(newest.Releases, " ")+1:] + ")",
	} {
		if !strings.Contains(source, want) {
			t.Errorf("clients/world/lib/sdk.js has no %q", want)
		}
	}
}
