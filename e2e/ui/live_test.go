package ui

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestLive: pages follow what happens elsewhere without polling, and show afterwards what the API says.
func TestLive(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			b := newTab(t, i.web)
			b.allow("401")
			b.open("/ui/default/runs")
			b.fill("input[name=key]", apiKey)
			b.click("Sign in")
			b.isLive()
			i.followScene(b)
			i.logScene(b)
			i.pauseScene(b)
			i.hiddenScene(b)
		})
	}
}

// isLive waits until the page is told what changes.
func (b *tab) isLive() {
	b.t.Helper()
	b.until("the live connection", `document.querySelector("button.live.live")`)
}

// followScene starts runs elsewhere. The page reads the list for none of them, and keeps its place when it is not at the top.
func (i *installation) followScene(b *tab) {
	b.shows("There are no runs yet")
	lists := `performance.getEntriesByType("resource").filter((e) => /v1\/runs\?/.test(e.name)).length`
	first := i.start("reminder", nil)
	b.until("the run appears", `document.querySelectorAll("table.runs tbody tr").length === 1`)
	before := evaluate[int](b, lists)
	i.wait(first, "wait_created")
	b.until("its row follows", `document.querySelector("table.runs tbody").innerText.includes("sleeps · until")`)
	b.press("j")
	for range 40 {
		i.start("reminder", map[string]any{"delay": "1h"})
	}
	b.until("the focus goes down with its row", `document.activeElement.id === "run-40"`)
	b.press("x")
	b.until("its own row is selected", `document.querySelector("table.runs tbody:last-of-type tr:last-child input")?.checked`)
	b.click("Clear")
	rows := `document.querySelectorAll("table.runs tbody tr").length`
	b.until("all rows", rows+` === 41`)
	evaluate[chromedp.Void](b, `window.scrollTo(0, 400)`)
	b.until("away from the top", `window.scrollY > 300`)
	i.start("reminder", map[string]any{"delay": "1h"})
	i.start("reminder", map[string]any{"delay": "1h"})
	b.shows("2 new runs match: show")
	if got := evaluate[int](b, rows); got != 41 {
		b.t.Errorf("%d rows are shown, want the new ones to wait", got)
	}
	b.accessible()
	b.look("live")
	b.click("2 new runs match: show")
	b.until("the new rows", rows+` === 43`)
	if after := evaluate[int](b, lists); after > before+2 { // a call may end without an event
		b.t.Errorf("the list was read %d times meanwhile", after-before)
	}
}

// logScene watches the log of a run that goes on.
func (i *installation) logScene(b *tab) {
	run := i.start("order", nil)
	i.wait(run, "hook_created")
	b.open("/ui/default/runs/" + run + "/log")
	b.shows("hook_created")
	b.isLive()
	pages := `performance.getEntriesByType("resource").filter((e) => /events\?/.test(e.name)).length`
	before := 0
	for n, shelf := range []string{"12", "13"} {
		i.call("PATCH", "/v1/runs/"+run+"/attributes", map[string]any{"attributes": map[string]string{"shelf": shelf}}, nil)
		b.shows("attr_set", "shelf = "+shelf)
		if n == 0 {
			before = evaluate[int](b, pages) // the page has read all by now
		}
	}
	if after := evaluate[int](b, pages); after != before {
		b.t.Errorf("the log was read %d times meanwhile", after-before)
	}
	i.call("POST", "/v1/runs/"+run+"/hooks/approval/resume", map[string]any{"payload": true}, nil)
	b.shows("run_completed", "Completed")
	b.look("livelog")
}

// pauseScene freezes the list.
func (i *installation) pauseScene(b *tab) {
	b.press("gr")
	b.until("the list", `document.querySelectorAll("table.runs tbody tr").length === 44`)
	b.isLive()
	b.press("p")
	b.shows("paused")
	i.start("reminder", map[string]any{"delay": "1h"})
	b.shows("paused, 1 run has changed")
	b.accessible()
	b.look("paused")
	if got := evaluate[int](b, `document.querySelectorAll("table.runs tbody tr").length`); got != 44 {
		b.t.Errorf("%d rows while it is paused", got)
	}
	b.press("p")
	b.until("what was withheld", `document.querySelectorAll("table.runs tbody tr").length === 45`)
}

// pretend lets the page believe that it is hidden or visible.
func (b *tab) pretend(hidden bool) {
	b.t.Helper()
	evaluate[chromedp.Void](b, fmt.Sprintf(`(() => {
		Object.defineProperty(document, "hidden", {value: %t, configurable: true});
		document.dispatchEvent(new Event("visibilitychange"));
	})()`, hidden))
}

// hideAtOnce makes the while short after which a hidden page leaves its connection.
func (b *tab) hideAtOnce() {
	b.t.Helper()
	evaluate[chromedp.Void](b, `(() => {
		const timeout = window.setTimeout;
		window.setTimeout = (f, ms, ...more) => timeout(f, ms === 30000 ? 50 : ms, ...more);
	})()`)
}

// hiddenScene hides the tab: after a while it has no connection. Visible again it catches up.
func (i *installation) hiddenScene(b *tab) {
	b.hideAtOnce()
	evaluate[chromedp.Void](b, `(() => {
		const fetch = window.fetch;
		window.live = [];
		window.fetch = (address, options) => {
			if (address.includes("/v1/live")) window.live.push(options.signal);
			return fetch(address, options);
		};
	})()`)
	b.press("go")
	b.until("a connection of the overview", `window.live.length > 0`) // else the list may keep the one that it has
	b.press("gr")
	b.until("the list", `document.querySelectorAll("table.runs tbody tr").length === 45`)
	b.isLive()
	b.until("a connection", `window.live.some((s) => !s.aborted)`)
	b.pretend(true)
	b.until("no connection", `window.live.every((s) => s.aborted) && !document.querySelector("button.live")`)
	i.start("reminder", map[string]any{"delay": "1h"})
	if n := evaluate[int](b, `window.live.filter((s) => !s.aborted).length`); n > 0 {
		b.t.Errorf("%d connections while it is hidden", n)
	}
	b.pretend(false)
	b.until("it has caught up", `document.querySelectorAll("table.runs tbody tr").length === 46`)
	b.isLive()
}

// TestSevenTabs opens seven tabs of one browser one after the other. A browser has six connections to a server.
func TestSevenTabs(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	i.start("reminder", nil)
	first := newTab(t, i.web)
	before := first
	for n := range 7 {
		b := first
		if n > 0 {
			ctx, _ := chromedp.NewContext(first.ctx)
			b = &tab{t: t, ctx: ctx, web: i.web}
		}
		b.open("/ui/default/runs")
		b.until("the run", `document.querySelectorAll("table.runs tbody tr").length === 1`)
		b.isLive()
		if n > 0 {
			before.until("the hidden tab has left its connection", `!document.querySelector("button.live")`)
		}
		// Time alone does not end the connection of a hidden tab.
		evaluate[chromedp.Void](b, `(() => { const timeout = window.setTimeout;
			window.setTimeout = (f, ms, ...more) => timeout(f, ms === 30000 ? 1e9 : ms, ...more); })()`)
		b.pretend(true)
		before = b
	}
}
