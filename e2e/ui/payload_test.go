package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// oddInput is JSON that parsers and writers of JSON change.
const oddInput = `{"html":"<b>hi</b> & more","hebrew":"\u05e9\u05dc\u05d5\u05dd","emoji":"\ud83d\ude00","half":"\ud83d",` +
	`"big":9007199254740993,"tiny":1e-390,"zero":-0,"twice":1,"twice":2,"long":"` + "\u2028" + `\u0000\/"}`

// stack is an error of JavaScript, in the code of the app and of the language.
const stack = "Error: no stock\n    at reserve (/app/src/stock.ts:12:9)\n    at node:internal/process/task_queues:95:5"

// serveBank is an app whose step fails once with an error of several lines. The workflow "broken" fails.
func serveBank(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type    string
		Attempt int
		Run     struct{ Workflow string }
		Events  []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	failure, err := json.Marshal(map[string]any{
		"code": "no_stock", "message": "two items\nare missing", "details": map[string]any{"stack": stack, "shelf": 7},
	})
	if err != nil {
		panic(err) // of texts
	}
	completed := false
	for _, e := range call.Events {
		completed = completed || e.Type == "step_completed"
	}
	switch {
	case call.Type == "step" && call.Attempt == 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"error": %s}`, failure)
	case call.Type == "step":
		_, _ = fmt.Fprint(w, `{"output": {"receipt": 9007199254740993}}`)
	case call.Run.Workflow == "broken":
		_, _ = fmt.Fprintf(w, `{"commands": [{"type": "fail", "error": %s}]}`, failure)
	case completed:
		_, _ = fmt.Fprint(w, `{"commands": [{"type": "complete", "output": "paid"}]}`)
	default:
		_, _ = fmt.Fprint(w, `{"commands": [{"type": "setStore", "id": "credit", "values": {"<b>balance</b>": 9007199254740993}},
			{"type": "runStep", "id": "charge", "input": {"amount": 12.50}, "retry": {"backoff": "1ms"}}]}`)
	}
}

// TestPayloads reads data in the dashboard: what is stored is shown as it is, found, and copied byte for byte.
func TestPayloads(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			app := httptest.NewServer(http.HandlerFunc(serveBank))
			t.Cleanup(app.Close)
			i.call("PUT", "/v1/deployments/bank", map[string]any{"url": app.URL}, nil)
			b := newTab(t, i.web)
			b.allow("401")
			b.open("/")
			b.fill("input[name=key]", apiKey)
			b.click("Sign in")
			b.shows("There are no runs yet")
			i.copyScene(b)
			i.searchScene(b)
			i.brokenScene(b)
			i.stepScene(b)
			i.storeScene(b)
		})
	}
}

// startRaw starts a run with an input as it is written, and returns the run's ID.
func (i *installation) startRaw(workflow, input string) string {
	i.t.Helper()
	body := fmt.Sprintf(`{"workflow": %q, "deployment": "bank", "input": %s}`, workflow, input)
	var run struct{ ID string }
	if err := json.Unmarshal(i.raw(http.MethodPost, "/v1/runs", body), &run); err != nil {
		i.t.Fatal(err)
	}
	return run.ID
}

func (i *installation) copyScene(b *tab) {
	run := i.startRaw("order", oddInput)
	b.open("/ui/default/runs/" + run + "/data")
	b.shows("<b>hi</b> & more", "שלום", "😀", `\ud83d`, "9007199254740993", "1e-390", "-0", `\u0000/`)
	evaluate[chromedp.Void](b, `Object.defineProperty(navigator, "clipboard", {value: {writeText: async (t) => { window.copied = t; }}})`)
	b.click("Copy")
	b.until("the copy", `window.copied`)
	stored := string(i.raw(http.MethodGet, "/v1/runs/"+run+"/events/1/payload", ""))
	if stored != oddInput {
		b.t.Errorf("the server stores\n%s for\n%s", stored, oddInput)
	}
	if copied := evaluate[string](b, `window.copied`); copied != stored {
		b.t.Errorf("the page copied\n%s of\n%s", copied, stored)
	}
	b.click("Text")
	b.click("Indent")
	b.until("lines", `document.querySelector("pre.raw").innerText.startsWith('{\n  "html": "<b>hi</b> & more",\n')`)
	evaluate[chromedp.Void](b, `(() => { delete window.copied; document.querySelector(".payload-out button").click(); })()`)
	b.until("the same copy of what is indented", `window.copied === `+quote(stored))
}

// searchScene searches in 2.7 MB, where most is closed.
func (i *installation) searchScene(b *tab) {
	var orders strings.Builder
	for n := range 40_000 {
		_, _ = fmt.Fprintf(&orders, `,{"order":"no-%d","items":[{"product":"a table with four legs"}]}`, n)
	}
	run := i.startRaw("order", `{"all":[`+orders.String()[1:]+`],"last":{"deep":{"deeper":{"words":"no-39999 is the last one"}}}}`)
	b.open("/ui/default/runs/" + run + "/data")
	b.shows("[40000]")
	press := `[...document.querySelectorAll(".tree .key")].find((e) => e.innerText.startsWith("last")).click()`
	evaluate[chromedp.Void](b, press)
	b.until("closed by its name", `!document.querySelector(".tree").innerText.includes("deeper")`)
	evaluate[chromedp.Void](b, press)
	b.until("open again", `document.querySelector(".tree").innerText.includes("deeper")`)
	b.fill("input[type=search]", "NO-39999")
	b.shows("1 of 2")
	found := `document.querySelector(".tree-row.found")?.innerText`
	b.until("the first match, at the end of a long list", found+`?.includes('"no-39999"')`)
	b.look("payload-search")
	b.accessible()
	b.press(kb.Enter)
	b.shows("2 of 2")
	b.until("the second match, in what was closed", found+`?.includes("no-39999 is the last one")`)
	b.click("Previous match")
	b.shows("1 of 2")
}

// brokenScene looks at a run that failed: its error is in the box, with its lines.
func (i *installation) brokenScene(b *tab) {
	run := i.startRaw("broken", `1`)
	i.wait(run, "run_failed")
	b.open("/ui/default/runs/" + run)
	b.shows("two items\nare missing", "at reserve (/app/src/stock.ts:12:9)")
	b.until("the frame of the language stands back", `document.querySelector(".why pre.stack .quiet").innerText.includes("node:internal")`)
	b.until("those that failed so", `[...document.querySelectorAll(".why a")].some((a) => a.search.includes("no_stock"))`)
	b.accessible()
	b.look("payload-failed")
}

// stepScene selects a step in the timeline: its input and its output are beside it, and its error while it has none.
func (i *installation) stepScene(b *tab) {
	run := i.startRaw("order", `{}`)
	i.wait(run, "run_completed")
	b.open("/ui/default/runs/" + run)
	b.until("the step", `[...document.querySelectorAll(".tl-row")].some((r) => r.innerText.includes("charge") && (r.click(), true))`)
	b.until("its input and output", `["12.50", "9007199254740993"].every((v) => document.querySelector(".panel").innerText.includes(v))`)
	b.accessible()
	b.look("payload-step")
	b.open("/ui/default/runs/" + run + "/log?type=step_retrying")
	b.until("the event", `document.querySelector("button.event")`)
	evaluate[chromedp.Void](b, `document.querySelector("button.event").click()`)
	b.shows("two items\nare missing", "shelf")
	b.until("the code beside the name, in the log", `document.querySelector("button.event .note")?.checkVisibility()`)
	b.accessible()
	b.look("payload-event")
}

// storeScene reads what a run has written to its store, and goes to the event that wrote it.
func (i *installation) storeScene(b *tab) {
	run := i.startRaw("order", "{}")
	b.open("/ui/default/runs/" + run + "/store")
	b.shows("<b>balance</b>", "9007199254740993")
	b.accessible()
	b.look("store")
	b.click(evaluate[string](b, `document.querySelector("#tab-panel h2 a").innerText`))
	b.until("its event", `location.pathname.endsWith("/log") && document.querySelector("#tab-panel").innerText.includes("store_set")`)
	b.open("/ui/default/runs/" + i.startRaw("broken", "{}") + "/store")
	b.shows("The store of this run is empty")
}
