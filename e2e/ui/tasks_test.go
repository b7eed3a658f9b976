package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// mostActs is how many acts a task may take.
const mostActs = 3

// person does a task with the keyboard alone: it can do what has these methods, and they count.
type person struct {
	b *tab
	// acts is how often something was chosen: a button, a link, a row, a shortcut. Typing into a field is none.
	acts int
}

// goes presses the shortcut of a page.
func (p *person) goes(keys, what, expression string) {
	p.b.t.Helper()
	p.b.pressUntil(keys, what, expression)
	p.acts++
}

// chooses moves to what has the name, and presses Enter.
func (p *person) chooses(name string) {
	p.b.t.Helper()
	p.b.tabTo(name)
	p.b.press(kb.Enter)
	p.acts++
}

// ticksBox moves to a box and presses Space.
func (p *person) ticksBox(name string) {
	p.b.t.Helper()
	p.b.tabTo(name)
	p.b.press(" ")
	p.acts++
}

// types writes into the field that has the focus.
func (p *person) types(text string) {
	p.b.t.Helper()
	if strings.ContainsAny(text, "{[") {
		p.b.t.Errorf("a person writes JSON: %s", text)
	}
	p.b.typeText(text)
}

// sends presses Enter in a form.
func (p *person) sends() {
	p.b.t.Helper()
	p.b.press(kb.Enter)
	p.acts++
}

// TestTasksByKeyboard does what people open the dashboard for, each from the page where it begins, with three acts at most,
// with the keyboard alone, and without JSON.
func TestTasksByKeyboard(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "")
	s := i.taskScene()
	b := newTab(t, i.web)
	b.allow("401")
	for _, task := range []struct {
		name string
		// from is the page where the task begins, and shows what it shows then.
		from, shows string
		do          func(*person)
	}{
		{"sign in on a link to an event", "runs/" + s.order + "/log#e1", "Sign in to Stepwell", s.signIn},
		{"why a run is stuck", "overview", "Last failures", s.why},
		{"rerun all that failed with one error", "overview", "Last failures", s.rerun},
		{"cancel 205 runs", "runs", "reminder", s.cancel},
		{"find the run of order 12345", "overview", "Last failures", s.find},
		{"approve", "overview", "Last failures", s.approve},
		{"what a run waits for at a limit, and who has it", "runs?q=workflow:invoice", short(s.waiter), s.limit},
		{"the next ticks of a schedule", "overview", "Last failures", s.ticks},
		{"pause a schedule", "overview", "Last failures", s.pause},
		{"compare two runs", "runs?q=workflow:order", short(s.order), s.compare},
		{"the step of a flow that failed, in its graph", "runs?q=workflow:shipping", short(s.shipping), s.graph},
		{"read an input of megabytes", "runs?q=key:big", short(s.big), s.payload},
		{"the slowest step", "runs?q=workflow:shipping", short(s.shipping), s.slowest},
		{"sign out", "overview", "Last failures", signOut},
	} {
		b.open("/ui/default/" + task.from)
		b.shows(task.shows)
		p := &person{b: b}
		task.do(p)
		t.Logf("%s: %d acts", task.name, p.acts)
		if p.acts > mostActs {
			t.Errorf("%s takes %d acts", task.name, p.acts)
		}
	}
}

func (s tasks) signIn(p *person) {
	p.b.tabTo("key")
	p.types(apiKey)
	p.sends()
	p.b.until("the event of the address", `location.pathname.endsWith("/log") && location.hash === "#e1"
		&& document.querySelector("button.event[aria-expanded=true], .event[aria-selected=true], tr[aria-selected=true], .panel")?.innerText.includes("run_created")`)
}

func (s tasks) why(p *person) {
	p.goes("gr", "the runs", `document.querySelector("table.runs tbody tr")`)
	p.b.press("/")
	p.types("deployment:legacy")
	p.sends()
	p.b.shows("deployment legacy is unreachable")
}

func (s tasks) rerun(p *person) {
	p.goes("gf", "the failures", `document.body.innerText.includes("card_declined")`)
	p.chooses("Rerun all …")
	p.b.shows("4 runs match")
	p.chooses("Rerun 4 runs")
	p.b.shows("4 runs started again.")
}

func (s tasks) cancel(p *person) {
	p.b.press("/")
	p.types("workflow:reminder")
	p.sends()
	p.b.shows("205 runs")
	p.chooses("Cancel all …")
	p.b.shows("Type 205 to go on")
	p.b.tabTo("typed")
	p.types("205")
	p.sends()
	p.b.shows("205 runs cancelled.")
}

func (s tasks) find(p *person) {
	p.b.press("/")
	p.b.until("the search", `document.activeElement?.role === "combobox"`)
	p.types("order=12345")
	p.b.until("what is found", `document.querySelector("[role=option]")?.innerText.includes("12345")`)
	p.sends()
	p.b.shows(short(s.order))
}

func (s tasks) approve(p *person) {
	p.goes("gh", "what waits", `document.body.innerText.includes("Order 77")`)
	p.b.tabTo("/limit")
	p.types("100")
	p.b.tabTo("/reason")
	p.b.press("u") // selects "usual"
	p.b.tabTo("as")
	p.types("anna")
	p.chooses("Approve")
	p.b.shows("Approved: Order 77.")
}

func (s tasks) limit(p *person) {
	p.chooses(short(s.waiter))
	p.b.shows("It waits for a slot of limit stripe", "1 of 1 are taken", s.holder)
	p.chooses("Open the limit")
	p.b.shows("waits, no. 1")
}

func (s tasks) ticks(p *person) {
	p.goes("gc", "the schedules", `document.body.innerText.includes("nightly")`)
	p.chooses("nightly")
	p.b.until("five ticks", `document.querySelectorAll(".next-ticks li").length === 5`)
}

func (s tasks) pause(p *person) {
	p.goes("gc", "the schedules", `document.body.innerText.includes("nightly")`)
	p.chooses("Pause nightly …")
	p.chooses("Pause it")
	p.b.shows("paused")
}

func (s tasks) compare(p *person) {
	p.ticksBox("Select run " + short(s.order))
	p.ticksBox("Select run " + short(s.second))
	p.chooses("Compare")
	p.b.shows("Only the 0 of 2 that differ")
}

func (s tasks) graph(p *person) {
	p.chooses(short(s.shipping))
	p.chooses("Graph")
	p.b.stage("charge", "failed declined")
}

func (s tasks) payload(p *person) {
	p.chooses(short(s.big))
	p.chooses("Data")
	p.b.shows("items")
}

func (s tasks) slowest(p *person) {
	p.chooses(short(s.shipping))
	p.chooses("Steps")
	p.b.shows("from the start of the run")
}

func signOut(p *person) {
	p.chooses("Sign out")
	p.b.shows("Sign in to Stepwell")
}

// tasks are the runs that the tasks are about.
type tasks struct {
	order, second, shipping, holder, waiter, big string
}

func (i *installation) taskScene() (s tasks) {
	i.call("PUT", "/v1/deployments/legacy", map[string]any{"url": "http://127.0.0.1:1"}, nil)
	i.start("order", map[string]any{"deployment": "legacy"})
	for range 3 {
		i.wait(i.start("refund", nil), "run_failed")
	}
	for range 205 {
		i.start("reminder", map[string]any{"delay": "2h"})
	}
	s.order = i.start("order", map[string]any{"attributes": map[string]string{"order": "12345"}})
	s.second = i.start("order", nil)
	s.big = i.start("refund", map[string]any{"key": "big", "input": map[string]any{"items": strings.Split(strings.Repeat("item 0,", 400_000), ",")}})
	depot := httptest.NewServer(http.HandlerFunc(serveDepot))
	i.t.Cleanup(depot.Close)
	i.call("PUT", "/v1/deployments/depot", map[string]any{"url": depot.URL}, nil)
	i.call("POST", "/v1/flows", map[string]any{"document": shippingFlow}, nil)
	s.shipping = i.start("shipping", map[string]any{
		"deployment": "latest", "input": map[string]any{"id": "77", "amount": 25, "parcels": []int{1, 2, 3, 4}},
	})
	i.call("PUT", "/v1/limits/stripe", map[string]any{"perKey": 1}, nil)
	i.call("PUT", "/v1/policies/invoice", map[string]any{"limits": []any{map[string]any{"name": "stripe", "key": "attributes.customer"}}}, nil)
	i.call("PUT", "/v1/schedules/nightly", map[string]any{"workflow": "order", "cron": "30 2 * * *"}, nil)
	customer := map[string]any{"attributes": map[string]string{"customer": "c7"}}
	harness.Eventually(i.t, "the policy counts", func() bool {
		s.holder = i.start("invoice", customer)
		var slots struct{ Held []any }
		i.call("GET", "/v1/limits/stripe/slots?key=c7", nil, &slots)
		return len(slots.Held) > 0
	})
	s.waiter = i.start("invoice", customer)
	i.wait(s.big, "run_failed")
	i.wait(s.order, "hook_created")
	i.wait(s.second, "hook_created")
	i.wait(s.shipping, "hook_created")
	return s
}
