package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestServerAway: while the server is down, lists that were read are shown wherever one comes from, with when that was. A page
// whose program was not loaded says why, and appears when the server is back.
func TestServerAway(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base, "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
			i.call("PUT", "/v1/schedules/nightly", map[string]any{"workflow": "reminder", "deployment": "shop", "cron": "0 3 * * *"}, nil)
			i.start("reminder", map[string]any{"delay": "1h"})
			b := newTab(t, i.web)
			b.allow("Failed to load resource")
			b.open("/ui/default/schedules")
			b.shows("nightly", "0 3 * * *")
			b.click("Runs")
			b.until("the run", rows(1))
			i.kill()
			b.click("Schedules")
			b.shows("What is shown was read", "nightly", "0 3 * * *", "no answer since")
			b.look("away")
			b.click("Runs")
			b.shows("What is shown was read")
			b.until("the run", rows(1))
			b.click("Failed today")
			b.until("a list that was not read", `document.querySelector(".trouble") && !document.querySelector(".trouble").innerText.includes("What is shown")`)
			b.click("Failures")
			b.shows("This page could not be loaded", "The server does not answer.")
			b.accessible()
			b.look("away-page")
			i.restart()
			b.until("the page", `document.querySelector("h1")?.innerText === "Failures"`)
			b.click("Schedules")
			b.shows("nightly")
			b.until("no trouble", `!document.querySelector(".trouble")`)
		})
	}
}
