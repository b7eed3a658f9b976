package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// navigation is where the entries of the navigation lead.
const navigation = `[...document.querySelectorAll(".side a")].map((a) => new URL(a.href).pathname + new URL(a.href).search)`

// TestNavigationByRole opens every entry of the navigation, with a key of each role that may sign in: none leads to an error.
func TestNavigationByRole(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "")
	i.wait(i.start("order", nil), "hook_created")
	for role, entries := range map[string]int{"admin": 17, "write": 15, "read": 15, "metadata": 15, "invoke": 2} {
		var made struct{ Key string }
		i.call("POST", "/v1/keys", map[string]any{"name": role, "role": role}, &made)
		b := newTab(t, i.web)
		b.allow("401")
		b.open("/")
		b.fill("input[name=key]", made.Key)
		b.click("Sign in")
		b.shows("Sign out")
		b.until("the page", `document.querySelector("main.page h1, main.page h2")`)
		found := evaluate[[]string](b, navigation)
		if len(found) != entries {
			t.Errorf("%s: %d entries, want %d: %v", role, len(found), entries, found)
		}
		for _, path := range found {
			b.open(path)
			b.until("the page "+path, `document.querySelector("main.page h1, main.page h2") && !document.querySelector(".loading")`)
			if wrong := evaluate[string](b, `document.querySelector(".trouble")?.innerText ?? ""`); wrong != "" {
				t.Errorf("%s: %s says %s", role, path, wrong)
			}
		}
		if role == "invoke" {
			i.invokeScene(b)
		}
	}
}

// invokeScene does what a key of the role invoke may do: start a run, look it up, and vote.
func (i *installation) invokeScene(b *tab) {
	b.open("/ui/default/overview")
	b.isLive()
	run := i.startApproval()
	b.shows("What this key may do", "Approvals: 1")
	b.accessible()
	b.narrow()
	b.look("invoke")
	b.click("Start a run …")
	b.fill("dialog input[name=workflow]", "order")
	b.click("Start the run")
	b.shows("Deployment", "shop")
	b.open("/ui/default/runs")
	b.shows("This page is not for your key", "This needs a key of the role admin, write, read or metadata.")
	b.open("/ui/default/overview")
	b.fill("#filter", run)
	b.click("Show it")
	b.shows("Shall it go on?", "for anna")
	b.accessible()
	b.look("invoke-run")
	b.fill("[name=as]", "anna")
	b.click("Approve Shall it go on?")
	i.wait(run, "run_completed")
	b.until("that it is over", `document.querySelector(".pill")?.innerText.includes("completed")`)
}

// startApproval starts a flow that waits for an approval.
func (i *installation) startApproval() string {
	i.call("POST", "/v1/flows", map[string]any{
		"document": "flow: asks\nsteps: {agree: {approval: {title: \"Shall it go on?\", by: [anna]}}}\n",
	}, nil)
	run := i.start("asks", map[string]any{"deployment": "latest"})
	i.wait(run, "hook_created")
	return run
}
