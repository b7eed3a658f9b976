package ui

import (
	"slices"
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

// TestPausedParts pauses and resumes a run, a workflow and a deployment where they are shown. Each says since when it is
// paused, by whom and why, also to a key that may not resume it.
func TestPausedParts(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		run := i.start("reminder", nil)
		i.wait(run, "wait_created")
		i.pausedRunScene(admin, guest, run)
		i.pausedWorkflowScene(admin, guest)
		i.pausedDeploymentScene(admin, guest)
	})
}

// pausesAre checks what is paused.
func (i *installation) pausesAre(want ...string) {
	i.t.Helper()
	var list struct {
		Data []struct{ Kind, Name, Note string }
	}
	i.call("GET", "/v1/pauses", nil, &list)
	got := []string{}
	for _, p := range list.Data {
		got = append(got, p.Kind+" "+p.Name+" "+p.Note)
	}
	if !slices.Equal(got, append([]string{}, want...)) {
		i.t.Errorf("paused: %q, want %q", got, want)
	}
}

// pausedRunScene pauses a run on its page, and resumes it in the box that says why it does not go on.
func (i *installation) pausedRunScene(admin, guest *tab, run string) {
	admin.open("/ui/default/runs/" + run)
	admin.pause()
	admin.until("the state", `document.querySelector(".pill").innerText.trim() === "paused"`)
	admin.shows("is paused by key_", "(the database moves)")
	admin.until("one way to go on", `[...document.querySelectorAll(".run-title button")].every((e) => e.innerText !== "Pause …")`)
	admin.seen("paused-run")
	i.pausesAre("run " + run + " the database moves")
	guest.open("/ui/default/runs/" + run)
	guest.shows("is paused by key_", "(the database moves)")
	guest.until("no way to go on", `[...document.querySelectorAll('[data-kind="paused"] button')].every((e) => e.disabled)`)
	admin.click("Resume the run …")
	admin.accessible()
	admin.click("Resume it")
	admin.until("the sleep", `document.querySelector("section.why.quiet") && !document.querySelector('[data-kind="paused"]')`)
	guest.until("the sleep, by itself", `document.querySelector("section.why.quiet")`)
	guest.isReadOnly()
	i.pausesAre()
}

// pausedWorkflowScene pauses a workflow on its page. A run of it that is started then says so, and resumes the workflow.
func (i *installation) pausedWorkflowScene(admin, guest *tab) {
	admin.open("/ui/default/workflows/reminder")
	admin.pause()
	admin.shows("paused since ", "by key_", ": the database moves")
	admin.seen("paused-workflow")
	guest.open("/ui/default/workflows/reminder")
	guest.shows("paused since ", "by key_", ": the database moves")
	guest.until("no way to go on", `[...document.querySelectorAll("button")].find((e) => e.innerText === "Resume …")?.disabled`)
	guest.open("/ui/default/workflows")
	guest.shows("paused since ")
	run := i.start("reminder", nil)
	admin.open("/ui/default/runs/" + run)
	admin.shows("Workflow reminder is paused by key_")
	admin.click("Resume workflow reminder …")
	admin.click("Resume it")
	i.wait(run, "wait_created")
	i.pausesAre()
	guest.until("nothing of a pause, by itself", `!document.body.innerText.includes("paused since ")`)
}

// pausedDeploymentScene pauses a deployment in the list of deployments, and resumes it there.
func (i *installation) pausedDeploymentScene(admin, guest *tab) {
	admin.open("/ui/default/deployments")
	admin.click("Pause … shop")
	admin.fill("dialog input[name=note]", "charges twice")
	admin.click("Copy as curl or CLI")
	admin.shows("stepwell deployments pause shop --note 'charges twice'")
	admin.accessible()
	admin.click("Pause it")
	admin.shows("paused since ", "by key_", ": charges twice")
	admin.seen("paused-deployment")
	guest.open("/ui/default/deployments")
	guest.shows("paused since ", "by key_", ": charges twice")
	guest.until("no way to go on", `document.querySelector('[aria-label="Resume … shop"]')?.disabled`)
	run := i.start("reminder", nil)
	admin.click("Resume … shop")
	admin.click("Resume it")
	admin.until("nothing of a pause", `!document.body.innerText.includes("paused since ")`)
	i.wait(run, "wait_created")
	i.pausesAre()
}
