package ui

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestDashboard goes through the dashboard as a person does, at the root and below a path.
func TestDashboard(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bothBases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			b := newTab(t, i.web)
			signInScene(b)
			i.emptyScene(b)
			order, refund := i.listScene(b)
			i.runScene(b, order)
			phoneScene(b, order)
			i.failedScene(b, refund)
			i.actionsScene(b, order)
			i.keyboardScene(b)
			i.lostScene(b)
			signOutScene(b)
		})
	}
}

func signInScene(b *tab) {
	b.allow("401")
	b.open("/")
	b.shows("Sign in to Stepwell")
	b.accessible()
	b.look("signin")
	b.fill("input[name=key]", "wrong")
	b.click("Sign in")
	b.shows("This is no valid key")
	b.fill("input[name=key]", apiKey)
	b.click("Sign in")
	b.shows("Runs")
	if leaked := evaluate[string](b, `document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)`); leaked != "" &&
		evaluate[bool](b, `(document.cookie + JSON.stringify(localStorage)).includes(`+quote(apiKey)+`) || document.cookie !== ""`) {
		b.t.Errorf("scripts can read %q", leaked)
	}
}

func (i *installation) emptyScene(b *tab) {
	b.open("/ui/default/runs")
	b.shows("There are no runs yet", "Start a run")
	b.accessible()
	b.look("empty")
}

func (i *installation) listScene(b *tab) (order, refund string) {
	order = i.start("order", map[string]any{
		"key": "customer-7", "attributes": map[string]string{"customer": "7", "tier": "very gold"}, "input": map[string]any{"items": []int{1, 2}},
	})
	refund = i.start("refund", map[string]any{"attributes": map[string]string{"customer": "9"}})
	reminder := i.start("reminder", nil)
	i.start("order", map[string]any{"delay": "2h"})
	i.wait(order, "hook_created")
	i.wait(refund, "run_failed")
	i.wait(reminder, "wait_created")
	b.shows("reminder", "card_declined", "customer-7", "scheduled") // the page reads the list again by itself
	b.accessible()
	b.look("runs")
	b.click("failed")
	b.until("only failed runs", `document.querySelectorAll("table.runs tbody tr").length === 1`)
	b.until("the filter in the address", `location.search === "?q=status%3Afailed"`)
	b.do(chromedp.NavigateBack())
	b.until("all runs again", `document.querySelectorAll("table.runs tbody tr").length === 4`)
	b.click("tier=very gold")
	b.until("the runs with the attribute", `document.querySelectorAll("table.runs tbody tr").length === 1`)
	b.click(`Remove filter tier="very gold"`)
	b.until("all runs once more", `document.querySelectorAll("table.runs tbody tr").length === 4`)
	b.fill("#filter", "colour:red")
	b.press(kb.Enter)
	b.shows("“colour” is not a field")
	b.fill("#filter", "workflow:none")
	b.press(kb.Enter)
	b.shows("No run matches")
	b.look("nomatch")
	b.click("Show all runs")
	return order, refund
}

func (i *installation) runScene(b *tab, order string) {
	b.open("/ui/default/runs/" + order + "/log")
	b.shows("Nobody has resumed hook approval", "hook_created", "step_completed", "customer-7")
	b.accessible()
	b.look("log")
	b.open("/ui/default/runs/" + order + "/data")
	b.shows("items", "The run has not ended.")
	b.accessible()
	b.click("Bytes")
	b.shows("7b 22 69 74 65 6d 73")
	b.look("data")
	b.open("/ui/default/runs/" + order + "/steps")
	b.shows("charge", "reserve", "from the start of the run")
	b.accessible()
	b.look("steps")
	b.open("/ui/default/runs/" + order + "/hooks")
	b.shows("approval", "open")
	b.accessible()
	b.look("hooks")
	b.open("/ui/default/runs/" + order + "/log?type=step_completed")
	b.until("two events", `document.querySelectorAll("button.event").length === 2`)
	evaluate[chromedp.Void](b, `document.querySelector("button.event").click()`)
	b.shows("9007199254740993") // not rounded
	i.refusedLogScene(b, order)
	b.accessible()
	b.look("event")
}

// phoneScene sees the pages of a narrow screen: one row at the top, a bar with the current page and all others behind More,
// and the timeline of a run in the upper half.
func phoneScene(b *tab, order string) {
	b.do(chromedp.EmulateViewport(390, 844))
	b.open("/ui/default/limits")
	b.until("the header in one row", `document.querySelector(".top").getBoundingClientRect().height < 60`)
	const visible = `[...document.querySelectorAll(".side a, .side .more")].filter((e) => e.checkVisibility())`
	b.until("the bar with the current page", visible+`.map((e) => e.innerText).join() === "Overview,Runs,Waiting,Limits,More"`)
	b.until("nothing is cut off", visible+`.every((e) => e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= 390) &&
		document.scrollingElement.scrollWidth <= 390`)
	b.click("More")
	b.until("all pages", visible+`.some((e) => e.innerText === "Collections")`)
	b.accessible()
	b.shot("more-390")
	b.click("Triggers")
	b.until("the menu is closed", `location.pathname.endsWith("/triggers") && `+visible+`.length === 5`)
	b.open("/ui/default/runs/" + order)
	b.until("the timeline begins in the upper half", `document.querySelector(".tl-row")?.getBoundingClientRect().top < 422`)
	b.shot("run-390")
	b.click("About the run")
	b.shows("customer-7")
	b.do(chromedp.EmulateViewport(1400, 900))
}

// refusedLogScene filters a log that cannot be read: it is asked for once, and again when somebody wants it.
func (i *installation) refusedLogScene(b *tab, order string) {
	evaluate[chromedp.Void](b, `(() => {
		const real = fetch;
		window.refused = 0;
		window.fetch = (...r) => /type=step_failed/.test(r[0]) && ++refused ? Promise.reject(new TypeError("no network")) : real(...r);
		window.heal = () => { window.fetch = real; };
	})()`)
	b.choose("select[aria-label='Event type']", "step_failed")
	b.shows("The server cannot be reached.")
	const frames = `new Promise((done) => { let n = 0; const next = () => (++n > 30 ? done(refused) : requestAnimationFrame(next)); next(); })`
	if n := evaluate[int](b, frames); n != 1 {
		b.t.Errorf("the log was asked for %d times", n)
	}
	evaluate[chromedp.Void](b, `heal()`)
	b.click("Try again")
	b.shows("No event matches")
	b.open("/ui/default/runs/" + order + "/log?type=step_completed")
	b.until("two events again", `document.querySelectorAll("button.event").length === 2`)
	evaluate[chromedp.Void](b, `document.querySelector("button.event").click()`)
	b.shows("9007199254740993")
}

func (i *installation) failedScene(b *tab, refund string) {
	b.open("/ui/default/runs/" + refund + "/data")
	b.shows("card_declined", "The card that ends in 4242 was declined.")
	b.look("failed")
	b.open("/ui/default/runs/wrun_01JD5A8R8D0000000000000000")
	b.allow("404")
	b.shows("There is no run with this ID")
	b.isLive() // of all else it is told
	b.accessible()
	b.look("norun")
}

func (i *installation) actionsScene(b *tab, order string) {
	b.open("/ui/default/runs/" + order)
	b.click("Cancel …")
	b.shows("This cannot be undone")
	b.accessible()
	b.look("cancel")
	b.click("Close")
	dialogsScene(b)
	b.until("actions that fit the run", `[...document.querySelectorAll(".actions button")].map((e) => e.innerText).join() === "Rerun …,Pause …,Cancel …"`)
	b.click("Resume …") // in the box
	b.until("the hook is read", `document.querySelector("dialog select")?.value === "approval"`)
	b.look("resume")
	b.fill("dialog textarea", `{"approved": x}`)
	b.shows("“x” begins no value in line 1, column 14")
	b.fill("dialog textarea", `{"approved": true}`)
	b.click("Resume")
	b.shows("Completed")
	b.until("actions that fit the ended run", `[...document.querySelectorAll(".actions button")].map((e) => e.innerText).join() === "Rerun …"`)
	b.click("Rerun …")
	b.click("Start the copy")
	b.until("the copy", `!location.pathname.includes(`+quote(order)+`) && document.querySelector("h1")?.innerText === "order"`)
	b.click("Cancel …")
	b.fill("dialog input", "ordered twice")
	b.click("Cancel the run")
	b.shows("ordered twice", "cancelled")
	b.until("no dialog, which would take the keys", `!document.querySelector("dialog")`)
}

// dialogsScene opens a dialog in the moment in which another one is closed: the event close of the first, which comes
// later, does not close the second, which gives the focus back in the end.
func dialogsScene(b *tab) {
	b.t.Helper()
	for _, how := range []string{`[...first.querySelectorAll("button")].find((e) => e.innerText === "Close").click()`, `first.requestClose()`} {
		b.click("Cancel …")
		b.shows("This cannot be undone")
		evaluate[chromedp.Void](b, `(() => {
			const first = document.querySelector("dialog");
			const closed = new Promise((done) => first.addEventListener("close", done));
			const second = [...document.querySelectorAll(".actions button")].find((e) => e.innerText === "Rerun …");
			`+how+`;
			second.click();
			return closed.then(() => new Promise(requestAnimationFrame));
		})()`)
		b.until("the second dialog stays after "+how, `document.querySelector("dialog[open] h2")?.innerText === "Start a copy of this run"`)
		b.press(kb.Escape)
		b.until("the focus is back where a dialog was opened", `!document.querySelector("dialog") && document.activeElement.innerText === "Cancel …"`)
	}
}

func (i *installation) keyboardScene(b *tab) {
	b.press("gr")
	b.until("the list", `location.pathname.endsWith("/default/runs")`)
	b.until("rows", `document.querySelectorAll("table.runs tbody tr").length === 5`)
	evaluate[chromedp.Void](b, `document.querySelector(".skip").click()`)
	b.until("the page has the focus", `document.activeElement.id === "content"`)
	b.press("jjk")
	b.until("the first run has the focus", `document.activeElement?.id === "run-0"`)
	b.press(kb.Enter)
	b.until("the run", `document.getElementById("tab-steps")`)
	b.press("s")
	b.until("the steps", `location.pathname.endsWith("/steps")`)
	b.press("u")
	b.until("the list again", `document.getElementById("filter")`)
	b.press("/")
	b.until("the filter has the focus", `document.activeElement?.id === "filter"`)
	evaluate[chromedp.Void](b, `document.activeElement.blur()`)
	b.until("the form's button", `[...document.querySelectorAll("button")].some((e) => e.innerText === "Start a run …")`)
	evaluate[chromedp.Void](b, `[...document.querySelectorAll("button")].find((e) => e.innerText === "Start a run …").focus()`)
	b.press(kb.Enter)
	b.until("the form", `document.querySelector("dialog") !== null`)
	b.press(kb.Escape)
	b.until("the focus is back where the form was opened", `!document.querySelector("dialog") && document.activeElement.innerText === "Start a run …"`)
	evaluate[chromedp.Void](b, `(() => {
		const real = fetch;
		const lines = (reads) => reads.map((_, n) => JSON.stringify({n, status: 200, body: {data: [null]}}) + "\n").join("");
		window.fetch = async (...r) => /v1\/workflows/.test(r[0]) ? new Response(lines(new URL(r[0], location).searchParams.getAll("read"))) : real(...r);
	})()`)
	b.press("gw")
	b.shows("This page has a fault")
	b.accessible()
	b.press("gr")
	b.until("a page without a fault", `document.querySelectorAll("table.runs tbody tr").length === 5`)
	b.press("?")
	b.shows("Shortcuts")
	b.until("each shortcut in one line, beside what it does", `[...document.querySelectorAll(".keys div")].every((e) =>
		e.querySelector("kbd").getClientRects().length === 1 && e.querySelector("kbd").getBoundingClientRect().right <= e.querySelector("dd").getBoundingClientRect().left)`)
	b.accessible()
	b.look("help")
	b.click("Close")
}

// lostScene revokes the key while its page is open: the page stays, asks for a key, and goes on.
func (i *installation) lostScene(b *tab) {
	var key struct{ ID, Key string }
	i.call("POST", "/v1/keys", map[string]any{"name": "guest", "role": "read"}, &key)
	b.click("Sign out")
	b.fill("input[name=key]", key.Key)
	b.click("Sign in")
	b.until("rows", `document.querySelectorAll("table.runs tbody tr").length === 5`)
	b.until("the role", `document.querySelector(".role").innerText === "read"`)
	b.press("?")
	b.shows("Shortcuts")
	b.allow("ERR_INCOMPLETE_CHUNKED_ENCODING") // the live connection ends
	i.call("DELETE", "/v1/keys/"+key.ID, nil, nil)
	b.shows("Your session is over")
	b.until("the page stays", `document.querySelectorAll("table.runs tbody tr").length === 5`)
	b.accessible()
	b.look("over")
	b.fill("input[name=key]", apiKey)
	b.click("Sign in")
	b.until("the page goes on", `!document.querySelector(".over") && document.querySelectorAll("table.runs tbody tr").length === 5`)
	b.until("what was open still is", `[...document.querySelectorAll("dialog")].some((e) => e.innerText.includes("Shortcuts"))`)
	b.click("Close")
}

func signOutScene(b *tab) {
	b.click("Sign out")
	b.shows("Enter a key of the project default")
}

// TestLongLogIsNotLoadedWhole opens a run with many events, jumps to its middle, and counts what was read.
func TestLongLogIsNotLoadedWhole(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	run := i.start("reminder", nil)
	i.wait(run, "wait_created")
	var seq struct {
		Attributes map[string]string
	}
	const changes = 1500
	for n := range changes {
		i.call("PATCH", "/v1/runs/"+run+"/attributes", map[string]any{"attributes": map[string]string{"n": time.Duration(n).String()}}, &seq)
	}
	b := newTab(t, i.web)
	b.open("/ui/default/runs/" + run + "/log#e800")
	b.until("the event in the middle", `[...document.querySelectorAll("button.event")].some((e) => e.innerText.includes("800") && e.ariaPressed === "true")`)
	b.until("few rows", `document.querySelectorAll(".event").length < 100`)
	pages := evaluate[int](b, `performance.getEntriesByType("resource").filter((e) => e.name.includes("limit=200&payloads=false")).length`)
	if pages > 3 {
		t.Errorf("%d pages of the log were read, want those around the event", pages)
	}
	b.look("longlog")
}
