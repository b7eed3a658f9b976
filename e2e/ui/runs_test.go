package ui

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestRunsList uses the list of runs as a tool, at the root and below a path.
func TestRunsList(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base, "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
			b := newTab(t, i.web)
			runs := i.runsToFind(b)
			i.reasonScene(b)
			i.wayBackScene(b)
			i.filterScene(b)
			i.nothingScene(b)
			i.selectScene(b)
			i.bulkScene(b)
			i.titleScene(b)
			i.startScene(b)
			i.paletteScene(b, runs[0])
			if base == "" {
				everyPageScene(b)
			}
		})
	}
}

// runsToFind starts 104 reminders, a refund and two orders, and returns the orders.
func (i *installation) runsToFind(b *tab) []string {
	i.start("refund", map[string]any{"attributes": map[string]string{"customer": "9"}})
	orders := []string{i.start("order", map[string]any{"key": "customer-7"}), i.start("order", nil)}
	for range 104 {
		i.start("reminder", map[string]any{"attributes": map[string]string{"tier": "gold"}, "delay": "1h"})
	}
	i.wait(orders[0], "hook_created")
	i.wait(orders[1], "hook_created")
	b.open("/ui/default/runs")
	b.shows("107 runs, newest first")
	b.until("a page of rows", rows(100))
	return orders
}

// rows is true if the list has this many rows.
func rows(n int) string {
	return fmt.Sprintf(`document.querySelector("table.runs")?.ariaRowCount === "%d"`, n+1)
}

// reasonScene: each row says why its run is not done.
func (i *installation) reasonScene(b *tab) {
	row := func(workflow string) string {
		return `[...document.querySelectorAll("table.runs tr")].find((r) => r.innerText.includes("` + workflow + `"))?.innerText`
	}
	b.until("a run that starts later", `/scheduled[^]*it starts later · goes on in/.test(`+row("reminder")+`)`)
	b.open("/ui/default/runs?q=workflow%3Aorder")
	b.until("a run that waits", `/waiting[^]*waits for hook approval · for \d/.test(`+row("order")+`)`)
	b.accessible()
	b.look("reasons")
	b.open("/ui/default/runs?q=status%3Anonsense")
	b.shows("“nonsense” is not a status")
	if evaluate[bool](b, `!!document.querySelector("table.runs, .toolbar, .selection") || /\d runs/.test(document.body.innerText)`) {
		b.problem("a filter that nobody can read lists runs")
	}
	b.accessible()
	b.look("misread")
}

// wayBackScene goes from the list to runs and back, by the browser, by keyboard and by the path.
func (i *installation) wayBackScene(b *tab) {
	b.open("/ui/default/runs?q=" + url.QueryEscape("status:pending tier=gold"))
	b.until("a page of rows", rows(100))
	current := `document.querySelector("nav.side [aria-current=page]")?.innerText`
	b.until("the page in the navigation", current+` === "Runs"`)
	scrollTo := func(y int) {
		evaluate[chromedp.Void](b, fmt.Sprintf(`scrollTo(0, %d)`, y))
		b.until("the row", `document.getElementById("run-60")`)
	}
	scrollTo(1700)
	if n := evaluate[int](b, `document.querySelectorAll("*").length`); n > 3000 {
		b.problem("the page has %d elements", n)
	}
	id := evaluate[string](b, `document.getElementById("run-60").title`)
	isBack := `document.activeElement?.title === "` + id + `" && Math.abs(scrollY - 1700) < 40 && location.search.includes("tier%3Dgold")`
	open := func() {
		evaluate[chromedp.Void](b, `document.getElementById("run-60").click()`)
		b.until("the run", `location.pathname.endsWith("`+id+`") && document.querySelector("h1")?.innerText === "reminder"`)
	}
	open()
	b.do(chromedp.NavigateBack())
	b.until("the list as it was", isBack)
	open()
	b.press("u")
	b.until("the list as it was", isBack)
	open()
	b.press("]")
	b.until("the next run", `/runs\/wrun_/.test(location.pathname) && !location.pathname.endsWith("`+id+`")`)
	b.press("[")
	b.until("the run again", `location.pathname.endsWith("`+id+`") && document.querySelector("h1")`)
	evaluate[chromedp.Void](b, `document.querySelector(".crumbs a").click()`)
	b.until("the list as it was", isBack)
}

func (i *installation) filterScene(b *tab) {
	b.open("/ui/default/runs")
	b.click("failed")
	b.until("the failed run", rows(1))
	b.click("running")
	b.until("failed and running ones", rows(3))
	b.until("the address", `location.search === "?q=status%3Arunning%2Cfailed"`)
	b.do(chromedp.NavigateBack())
	b.until("the failed run again", rows(1))
	b.open("/ui/default/runs?q=" + url.QueryEscape("deployment:shop created:24h status:failed,running"))
	b.until("what the link says", rows(3))
	evaluate[chromedp.Void](b, `(() => { const s = document.querySelector("select[aria-label=Order]");
		s.value = "ended"; s.dispatchEvent(new Event("change", {bubbles: true})); })()`)
	b.until("those that have ended", rows(1))
	b.shows("1 run, last ended first")
	b.until("the order in the address", `location.search.endsWith("&order=ended")`)
	b.click("Columns")
	evaluate[chromedp.Void](b, `[...document.querySelectorAll(".columns label")].find((l) => l.innerText === "customer").click()`)
	b.until("a column for the attribute", `[...document.querySelectorAll("th")].some((h) => h.innerText === "customer")`)
	b.accessible()
	b.look("columns")
	b.click("The usual ones")
	b.until("the usual columns", `![...document.querySelectorAll("th")].some((h) => h.innerText === "customer")`)
}

// nothingScene: a filter that matches no run says which term leaves nothing, and takes the title of a workflow for its name.
func (i *installation) nothingScene(b *tab) {
	b.open("/ui/default/runs?q=" + url.QueryEscape("workflow:reminder tier=gold order=1"))
	b.shows("No run matches", "without order=1: 104 runs")
	if strings.Contains(b.text(), "without tier=gold") {
		b.problem("a term is blamed that changes nothing")
	}
	b.accessible()
	b.narrow()
	b.look("nothing")
	b.click("without order=1: 104 runs")
	b.until("the runs without it", rows(100))
	b.open("/ui/default/runs?q=" + url.QueryEscape("status:failed tier=gold order=1"))
	b.shows("None matches without one of its terms either.")
}

// titleScene finds a workflow of the Workflow SDK by its title.
func (i *installation) titleScene(b *tab) {
	i.placeOrder()
	b.open("/ui/default/runs")
	b.fill("#filter", "workflow:placeorder")
	b.press(kb.Enter)
	b.until("the run", rows(1)+` && location.search === "?q=" + encodeURIComponent(`+quote("workflow:"+sdkWorkflow)+`)`)
	b.shows("workflow:placeOrder")
	b.do(chromedp.NavigateBack())
	b.until("the list before", `location.search === ""`)
}

// selectScene selects rows by keyboard alone.
func (i *installation) selectScene(b *tab) {
	b.open("/ui/default/runs?q=workflow%3Aorder")
	b.until("both orders", rows(2))
	b.press("jx")
	b.shows("1 selected")
	b.press("jX")
	b.shows("2 selected")
	b.accessible()
	b.look("selected")
	b.click("Compare")
	b.until("the comparison", `/compare\?a=wrun_.*&b=wrun_/.test(location.href)`)
	b.do(chromedp.NavigateBack())
	b.until("both orders again", rows(2))
}

func (i *installation) bulkScene(b *tab) {
	b.open("/ui/default/runs?q=" + url.QueryEscape("created:24h"))
	b.until("a page of rows", rows(100))
	b.press("jx")
	b.click("or all 107 runs that match")
	b.shows("107 runs selected")
	b.click("Cancel …")
	b.shows("107 runs match, 106 have not ended; 1 will be left alone.", "Type the number to go on.")
	b.accessible()
	b.look("bulk")
	b.fill("input[name=reason]", "the wrong reminders")
	b.fill("input[name=typed]", "106")
	b.click("Cancel 106 runs")
	b.shows("106 runs cancelled.")
	b.look("bulkdone")
	b.click("Close")
	b.until("no run is open", `![...document.querySelectorAll("table.runs .status")].some((s) => s.innerText !== "cancelled")`)
	var count struct{ Count int }
	if i.call("GET", "/v1/runs/count?status=pending&status=running", nil, &count); count.Count != 0 {
		b.t.Errorf("%d runs are open", count.Count)
	}
	b.open("/ui/default/runs?q=workflow%3Aorder")
	b.until("both orders", rows(2))
	b.click("Select all rows")
	b.click("Rerun …")
	b.shows("2 runs selected, 2 can be rerun; 0 will be left alone.")
	b.click("Rerun 2 runs")
	b.shows("2 runs started again.")
	b.click("Close")
	b.until("the copies", rows(4))
}

func (i *installation) startScene(b *tab) {
	b.open("/ui/default/runs?start=order&q=workflow%3Aorder")
	b.until("the workflow is filled in", `document.querySelector("dialog input[name=workflow]")?.value === "order"`)
	b.fill("dialog textarea", "{\"items\": [1,\n x]}")
	b.shows("in line 2, column 2")
	b.fill("dialog textarea", `{"items": [9007199254740993]}`)
	b.fill("dialog input[name=attributes]", `tier="very gold"`)
	b.fill("dialog input[name=key]", "customer-8")
	b.shows("9007199254740993", "--attr 'tier=very gold'", "--key customer-8")
	b.accessible()
	b.look("start")
	b.click("Start the run")
	b.until("the run", `/\/runs\/wrun_/.test(location.pathname) && document.querySelector("h1")?.innerText === "order"`)
	b.shows("customer-8", "very gold")
}

func (i *installation) paletteScene(b *tab, order string) {
	b.press("/")
	b.until("the search has the focus", `document.activeElement?.matches("dialog.palette input")`)
	b.until("actions, pages and lists", `["Cancel …", "Waiting", "Failed today"].every((name) =>
		[...document.querySelectorAll("[role=option] .name")].some((e) => e.innerText === name))`)
	b.typeText(order)
	b.until("the run", `document.querySelector("[role=option]")?.innerText.includes(`+quote(order)+`)`)
	b.accessible()
	b.look("palette")
	b.press(kb.Enter)
	b.until("the run is open", `location.pathname.endsWith(`+quote(order)+`)`)
	b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until("the search has the focus again", `document.activeElement?.matches("dialog.palette input")`)
	b.typeText("tier=gold")
	b.until("the filter", `document.querySelector("[role=option]")?.innerText.includes("tier=gold")`)
	b.press(kb.Enter)
	b.until("the runs with it", `location.search === "?q=tier%3Dgold"`)
	b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until("the search has the focus once more", `document.activeElement?.matches("dialog.palette input")`)
	b.typeText("gold")
	b.until("the value of an attribute", `document.querySelector("[role=option]")?.innerText.includes("tier=gold")`)
	b.shows("Searched workflows, keys and all 2 attribute names.")
	b.accessible()
	b.look("searched")
	b.fill("dialog.palette input", "placeorder")
	b.until("the workflow", `document.querySelector("[role=option]")?.innerText.includes(`+quote(sdkWorkflow)+`)`)
	b.press(kb.Enter)
	b.until("its page", `location.pathname.endsWith("/workflows/" + encodeURIComponent(`+quote(sdkWorkflow)+`)) && document.querySelector("h1")?.innerText === "placeOrder"`)
	b.do(chromedp.NavigateBack())
	b.until("the runs again", `location.search === "?q=tier%3Dgold" && document.querySelector(".page-head button")`)
	b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until("the search has the focus at last", `document.activeElement?.matches("dialog.palette input")`)
	b.typeText("start a")
	b.until("the action of the page", `document.querySelector("[role=option]")?.innerText.includes("Start a run")`)
	b.press(kb.ArrowDown)
	b.press(kb.ArrowUp)
	b.press(kb.Enter)
	b.until("the dialog", `document.querySelector("dialog input[name=workflow]")`)
	b.press(kb.Escape)
	b.until("no dialog", `!document.querySelector("dialog[open]")`)
}

// everyPageScene opens each page, and checks what a person with a narrow window or with forced colours sees.
func everyPageScene(b *tab) {
	for _, page := range []string{
		"Overview", "Runs", "Workflows", "Failures", "Waiting", "Queue", "Deployments", "Servers", "Access",
	} {
		b.click(page)
		b.until("page "+page, `location.pathname.endsWith("/default/`+strings.ToLower(page)+`") && 
			document.querySelector("#content h1, #content h2") && !document.querySelector("#content .loading")`)
		b.narrow()
		b.media("forced-colors", "active")
		b.shot(page + "-forced")
		b.media("", "")
	}
}
