package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestTabsSayHowMuchTheyHave: the tabs of a run's page have counts, also while the run goes on.
func TestTabsSayHowMuchTheyHave(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	run := i.start("order", nil)
	i.wait(run, "hook_created")
	b := newTab(t, i.web)
	b.open("/ui/default/runs/" + run)
	b.isLive()
	tabs := func(want string) {
		t.Helper()
		b.until(want, `[...document.querySelectorAll("[role=tablist] a")].filter((a) => a.querySelector(".badge") && a.id !== "tab-log")
			.map((a) => a.textContent).join() === `+quote(want))
	}
	tabs("Steps2,Hooks and waits1,Family0,Streams0,Store0,Messages0")
	b.accessible()
	b.look("counts")
	i.call("POST", "/v1/runs/"+run+"/hooks/approval/resume", map[string]any{"payload": true}, nil)
	b.shows("Completed")
	tabs("Steps2,Hooks and waits0,Family0,Streams0,Store0,Messages0")
}
