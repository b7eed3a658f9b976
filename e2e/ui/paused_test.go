package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestPausedProject: while a project is paused, every page says so, since when, and who resumes it.
func TestPausedProject(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		run := i.start("reminder", nil)
		i.wait(run, "wait_created")
		i.call("PUT", "/v1/projects/default", map[string]any{"paused": true}, nil)
		for _, page := range []string{"overview", "runs", "runs/" + run, "queue", "deployments", "access"} {
			admin.open("/ui/default/" + page)
			admin.shows("Project default is paused since ", "stepwell projects resume default")
			admin.seen("paused-" + page[:4])
		}
		guest.open("/ui/default/runs")
		guest.shows("Project default is paused since ", "Admins of the project default can resume it.")
		guest.seen("paused-guest")
		i.call("PUT", "/v1/projects/default", map[string]any{"paused": false}, nil)
		for _, b := range []*tab{admin, guest} {
			b.until("nothing about a pause", `!document.body.innerText.includes("is paused")`)
		}
	})
}
