package ui

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestOverview goes from the first run to failures that need attention, and from a chart to the runs behind it.
func TestOverview(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base, "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
			b := newTab(t, i.web)
			i.beginScene(b)
			i.attentionScene(b)
			i.chartScene(b)
		})
	}
}

// beginScene follows the steps to the first run, with what the page says to paste into a shell: the steps tick themselves,
// and the run's page opens by itself.
func (i *installation) beginScene(b *tab) {
	var shop struct{ URL string }
	i.call("GET", "/v1/deployments/shop", nil, &shop)
	i.call("DELETE", "/v1/deployments/shop", nil, nil)
	b.open("/ui/default/overview")
	b.shows("Start an app", "Register it", "Start a run", "cat > hello.py", "stepwell deployments add hello")
	b.accessible()
	b.narrow()
	b.look("begin")
	b.click("Workflow SDK")
	b.shows("npm i "+i.web+"/clients/world.tgz", "STEPWELL_URL="+i.web)
	b.click("Go")
	b.shows("export STEPWELL_URL="+i.web, "NewWorkflow")
	b.click("Flow, no code")
	b.shows("cat > hello.yaml")
	folder := i.t.TempDir()
	pasted := evaluate[[]string](b, `[...document.querySelectorAll(".begin > li > div > .command code")].map((e) => e.innerText)`)
	if len(pasted) != 3 {
		i.t.Fatalf("the page has %q", pasted)
	}
	i.shell(folder, pasted[0]+"\n"+pasted[1])
	b.shows("hello@1 is registered")
	start := evaluate[[]string](b, `[...document.querySelectorAll(".begin > li > div > .command code")].map((e) => e.innerText)`)
	i.shell(folder, "export STEPWELL_URL="+i.web+"\n"+strings.Join(start, "\n"))
	b.until("the page of the run", `/\/default\/runs\/wrun_/.test(location.pathname) && document.querySelector("h1")?.innerText === "hello"`)
	i.call("PUT", "/v1/deployments/shop", map[string]any{"url": shop.URL}, nil)
	b.open("/ui/default/overview")
	b.shows("All is well: nothing needs attention.", "Slowest open runs", "No run has failed.")
}

// shell has a shell execute what one pastes into it.
func (i *installation) shell(folder, text string) {
	i.t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		i.t.Fatal(err)
	}
	cmd := exec.CommandContext(i.t.Context(), "sh", "-e")
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(text)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatalf("%s: %v\n%s", text, err, out)
	}
}

// attentionScene lets runs fail, and removes a deployment that a run needs.
func (i *installation) attentionScene(b *tab) {
	i.call("PUT", "/v1/deployments/spare", map[string]any{"url": i.server}, nil)
	i.start("order", map[string]any{"deployment": "spare", "delay": "1s"})
	i.call("DELETE", "/v1/deployments/spare", nil, nil)
	for range 10 {
		i.start("refund", nil)
	}
	harness.Eventually(i.t, "two things need attention", func() bool {
		var wants struct{ Data []any }
		i.call("GET", "/v1/attention", nil, &wants)
		return len(wants.Data) == 2
	})
	b.open("/ui/default/overview")
	b.shows("10 runs of refund failed in the last hour; usually none does", "spare is not registered: 1 message waiting", "card_declined")
	b.until("numbers in the navigation", `["failures", "deployments", "queue"].map((p) =>
		document.querySelector("nav a[href$='/" + p + "']").dataset.count ?? "").join() === "1,1,"`)
	b.accessible()
	b.look("overview")
	b.click("Look: spare is not registered: 1 message waiting")
	b.until("the deployments", `location.pathname.endsWith("/default/deployments")`)
	b.do(chromedp.NavigateBack())
	b.shows("Needs attention")
}

// chartScene reads the failures from the chart, and opens the runs behind them by keyboard and by mouse.
func (i *installation) chartScene(b *tab) {
	const plot = `document.querySelector("[role=slider][aria-label='Failed runs, by workflow']")`
	var failed struct {
		Data []struct{ CompletedAt time.Time }
	}
	i.call("GET", "/v1/runs?status=failed", nil, &failed)
	b.until("the chart", plot)
	evaluate[chromedp.Void](b, plot+`.focus()`)
	b.press(kb.End)
	for range 20 { // the runs ended in one of the last minutes
		if evaluate[bool](b, `/refund [1-9]/.test(`+plot+`.ariaValueText)`) {
			break
		}
		b.press(kb.ArrowLeft)
	}
	at := evaluate[string](b, `String(`+plot+`.ariaValueNow)`)
	b.press(kb.Enter)
	b.until("the runs", `location.pathname.endsWith("/default/runs")`)
	address := evaluate[string](b, `location.search`)
	q, err := url.ParseQuery(strings.TrimPrefix(address, "?"))
	if err != nil {
		i.t.Fatal(err)
	}
	terms := strings.Fields(q.Get("q"))
	if len(terms) != 3 || terms[0] != "status:failed" {
		i.t.Fatalf("the chart opens runs with %q", terms)
	}
	from, err1 := time.Parse(time.RFC3339, strings.TrimPrefix(terms[1], "ended:"))
	to, err2 := time.Parse(time.RFC3339, strings.TrimPrefix(terms[2], "endedbefore:"))
	behind := 0
	for _, run := range failed.Data {
		if !run.CompletedAt.Before(from) && run.CompletedAt.Before(to) {
			behind++
		}
	}
	if err1 != nil || err2 != nil || to.Sub(from) != time.Minute || behind == 0 {
		i.t.Errorf("none of %+v ended in the minute of %q", failed.Data, terms)
	}
	b.do(chromedp.NavigateBack())
	b.until("the chart again", plot)
	evaluate[chromedp.Void](b, `(() => { const e = `+plot+`, box = e.getBoundingClientRect(), n = Number(e.ariaValueMax) + 1;
		e.dispatchEvent(new MouseEvent("click", {bubbles: true, clientX: box.left + (`+at+` + 0.5) / n * box.width})); })()`)
	b.until("the runs again", `location.search.includes("status%3Afailed+ended%3A")`)
	b.do(chromedp.NavigateBack())
	b.until("the page again", plot)
	b.click("Table")
	b.until("all minutes in a table", `document.querySelectorAll(".chart-table tbody tr").length === 60`)
	b.accessible()
	b.click("day")
	b.until("the range in the address", `location.search === "?in=day"`)
	b.until("how long the runs of a workflow take, with the runs behind it", `[...document.querySelectorAll(".latency a")].some((e) =>
		e.innerText === "refund" && /\?q=workflow%3Arefund\+ended%3A/.test(e.href))`)
	b.narrow()
	b.look("overview-day")
	i.heatScene(b)
}

// heatScene sees when the runs of a schedule's workflow start, and opens those of an hour by keyboard.
func (i *installation) heatScene(b *tab) {
	i.call("PUT", "/v1/schedules/refunds", map[string]any{"workflow": "refund", "cron": "0 3 * * *"}, nil)
	b.open("/ui/default/schedules/refunds")
	b.until("the hours with runs", `document.querySelectorAll(".heat a").length > 0`)
	sum := evaluate[int](b, `[...document.querySelectorAll(".heat a")].reduce((sum, e) => sum + Number(e.innerText), 0)`)
	if sum != 10 {
		i.t.Errorf("the map has %d runs, want 10", sum)
	}
	b.seen("heat")
	evaluate[chromedp.Void](b, `document.querySelector(".heat a[tabindex='0']").focus()`)
	b.press(kb.Enter)
	b.until("the runs of the hour", `location.pathname.endsWith("/runs") && location.search.startsWith("?q=workflow%3Arefund+created%3A")
		&& document.querySelectorAll("table.runs tbody tr").length > 0`)
}
