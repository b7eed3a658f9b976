package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestTimeline looks at a run with retries, equal steps at the same time, children and a hook.
func TestTimeline(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base, "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
			app := httptest.NewServer(newCrew())
			t.Cleanup(app.Close)
			i.call("PUT", "/v1/deployments/crew", map[string]any{"url": app.URL}, nil)
			run := i.start("assembly", map[string]any{"deployment": "crew"})
			b := newTab(t, i.web)
			b.open("/ui/default/runs/" + run + "/timeline")
			b.until("three attempts at a step", hasRow("charge, step, completed, 3 attempts"))
			b.until("equal steps in one row", hasRow("item, 8 steps, 1 failed"))
			b.until("a child", hasRow("ship, child run, running"))
			b.until("a hook", hasRow("approval, hook, open"))
			b.accessible()
			b.look("timeline")
			timelineAxisScene(b)
			timelineKeyboardScene(b)
			timelineColoursScene(b)
		})
	}
}

// hasRow is true if the tree has a row whose label begins with a text.
func hasRow(label string) string {
	return `[...document.querySelectorAll("[role=row]")].some((r) => r.ariaLabel.startsWith(` + quote(label) + `))`
}

// rowsAt is the number of rows at a level of the tree.
func rowsAt(level int) string {
	return fmt.Sprintf(`document.querySelectorAll('[role=row][aria-level="%d"]').length`, level)
}

const activeRow = `document.getElementById(document.querySelector("[role=treegrid]").getAttribute("aria-activedescendant"))?.ariaLabel`

func timelineAxisScene(b *tab) {
	b.until("quiet time is cut", `document.querySelector(".tl-gap")`)
	b.until("the line of code of a wait", hasRow("cool-down, wait, at order.go:41"))
	b.until("no bar is higher than its row", `[...document.querySelectorAll(".tl-row *")].every((e) => e.getBoundingClientRect().height <= 28)`)
	b.look("timeline-cut")
	b.click("Zoom in")
	b.until("the window in the address", `/from=.*&to=/.test(location.search)`)
	b.press("0")
	b.until("all is shown", `location.search === ""`)
	mouse := func(kind input.DispatchMouseEventType, place, wheel float64, modifiers int64, selector string) {
		box := evaluate[map[string]float64](b, `(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector(`+quote(selector)+`).getBoundingClientRect())`)
		send(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{
			Type: kind, X: box["x"] + box["width"]*place, Y: box["y"] + box["height"]/2, DeltaX: 0.1, DeltaY: wheel, Modifiers: modifiers,
			Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1,
		})
	}
	mouse(input.DispatchMouseEventTypeMouseWheel, 0.1, -400, 2, ".tl-head .tl-bar")
	b.until("the wheel zooms", `/from=/.test(location.search)`)
	b.press("0")
	b.until("all is shown again", `location.search === ""`)
	for _, step := range []struct {
		kind  input.DispatchMouseEventType
		place float64
	}{{input.DispatchMouseEventTypeMousePressed, 0.1}, {input.DispatchMouseEventTypeMouseMoved, 0.4}, {input.DispatchMouseEventTypeMouseReleased, 0.4}} {
		mouse(step.kind, step.place, 0, 0, ".tl-strip")
	}
	b.until("dragging selects a window", `/from=/.test(location.search) && parseFloat(document.querySelector(".tl-strip i").style.width) < 40`)
	b.do(chromedp.Reload())
	b.until("the window of the address", `Math.abs(parseFloat(document.querySelector(".tl-strip i")?.style.width) - 30) < 15`)
	b.click("Fit")
	evaluate[chromedp.Void](b, `[...document.querySelectorAll("label")].find((l) => l.innerText.includes("Cut quiet")).click()`)
	b.until("an even axis", `!document.querySelector(".tl-gap")`)
	b.until("all is shown", `location.search === ""`)
}

func timelineKeyboardScene(b *tab) {
	evaluate[chromedp.Void](b, `document.querySelector("[role=treegrid]").focus()`)
	b.press(kb.Home)
	b.until("the first row", activeRow+`?.startsWith("charge")`)
	b.press(kb.ArrowRight)
	b.until("its attempts", rowsAt(2)+` === 3`)
	b.press(kb.ArrowLeft)
	b.until("closed", rowsAt(2)+` === 0`)
	b.press("e")
	b.until("the failed one of many", activeRow+`?.startsWith("item, step, failed") && document.querySelector(".panel")?.innerText.includes("failed, broken")`)
	b.until("the steps of one name", rowsAt(2)+` === 8`)
	b.accessible()
	b.look("timeline-panel")
	b.press("e")
	b.until("the next failure", `document.querySelector(".panel")?.innerText.includes("retrying, busy")`)
	b.press(kb.ArrowDown)
	b.press(kb.ArrowLeft)
	b.until("folded", rowsAt(2)+` === 0`)
	for _, child := range []string{"ship", "depot", "box"} {
		b.press(kb.ArrowDown)
		b.until("on "+child, activeRow+`?.startsWith(`+quote(child+", child run")+`)`)
		b.press(kb.ArrowRight)
		b.until("within "+child, `document.querySelector('[role=row].active + [role=row]')?.ariaLevel > document.querySelector('[role=row].active').ariaLevel
			&& !document.body.innerText.includes("Reading …")`)
	}
	b.until("three deep", rowsAt(4)+` > 0 && `+hasRow("pack, step, completed"))
	b.press("n")
	b.until("what it waits for", `document.querySelector('[role=row][aria-selected="true"]')?.ariaLabel.startsWith("label, hook, open")`)
	b.accessible()
	b.look("timeline-children")
	b.press(kb.Escape)
	b.until("no panel", `!document.querySelector(".panel")`)
	b.click("failed")
	b.until("what failed", rowsAt(1)+` === 2`)
	b.click("all")
}

// timelineColoursScene takes a picture with the colours of the system alone, which shapes must carry.
func timelineColoursScene(b *tab) {
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	b.until("shapes", `getComputedStyle(document.querySelector(".tl-seg")).forcedColorAdjust === "none"`)
	b.shot("timeline-forced")
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
}

// crew is the function of a run with all that a timeline shows.
type crew struct {
	mu    sync.Mutex
	calls map[string]int
}

func newCrew() *crew { return &crew{calls: map[string]int{}} }

// called counts a call of a step and returns its number.
func (c *crew) called(step string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[step]++
	return c.calls[step]
}

func (c *crew) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type   string
		Run    struct{ ID, Workflow string }
		Step   struct{ ID string }
		Events []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case call.Type == "step" && call.Step.ID == "item-3":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error": {"code": "broken", "message": "It is broken."}}`)
	case call.Type == "step" && call.Step.ID == "charge" && c.called(call.Run.ID) < 3:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"error": {"code": "busy", "message": "The bank is busy."}}`)
	case call.Type == "step":
		_, _ = fmt.Fprint(w, `{"output": 1}`)
	case len(call.Events) > 2: // all has been asked for
		_, _ = fmt.Fprint(w, `{"commands": []}`)
	default:
		_, _ = fmt.Fprintf(w, `{"commands": [%s]}`, crewCommands[call.Run.Workflow])
	}
}

var crewCommands = map[string]string{
	"assembly": `{"type": "runStep", "id": "charge", "retry": {"backoff": "1s", "factor": 1}},` +
		strings.Join(items(8), ",") + `, {"type": "startChild", "id": "ship", "workflow": "ship"},
		{"type": "wait", "id": "cool-down", "for": "1s", "at": "order.go:41"}, {"type": "openHook", "id": "approval"}`,
	"ship":  `{"type": "startChild", "id": "depot", "workflow": "depot"}, {"type": "openHook", "id": "pickup"}`,
	"depot": `{"type": "startChild", "id": "box", "workflow": "box"}`,
	"box":   `{"type": "runStep", "id": "pack"}, {"type": "openHook", "id": "label"}`,
}

func items(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"type": "runStep", "id": "item-%d", "name": "item"}`, i)
	}
	return list
}

// TestLongTimeline opens a run of 100,000 events: it is read in few requests, and a part at a time.
func TestLongTimeline(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	run := i.start("reminder", nil)
	i.wait(run, "wait_created")
	i.lengthen(run)
	b := newTab(t, i.web)
	b.open("/ui/default/runs")
	b.shows("reminder")
	b.open("/ui/default/runs/" + run + "/timeline")
	b.until("sums by name", hasRow("item, 8572 steps"))
	b.until("the browser has recorded the requests", `performance.getEntriesByType("resource").flatMap(
		(e) => decodeURIComponent(e.name).match(/v1\/runs\/\w+\/timeline/g) ?? []).length >= 2`)
	read := evaluate[struct {
		Ms, Bytes float64
		Requests  []string
	}](b, `(() => { const all = performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"));
		return { ms: Math.max(...all.filter((e) => e.name.includes("timeline")).map((e) => e.responseEnd)), bytes: all.reduce((sum, e) => sum + Math.max(e.transferSize, e.encodedBodySize), 0),
			requests: all.flatMap((e) => decodeURIComponent(e.name).match(/v1\/runs\/\w+\/timeline[^&]*/g) ?? []) }; })()`)
	t.Logf("a run of 100,000 events: the answers for the timeline came after %.0f ms; %.0f bytes; %q", read.Ms, read.Bytes, read.Requests)
	if read.Bytes > 250_000 || len(read.Requests) != 2 {
		t.Errorf("%.0f bytes and the requests %q; want at most 250,000 bytes, and two of the timeline", read.Bytes, read.Requests)
	}
	b.shows("10,000 steps, the first ones, are summed up by name")
	b.until("what it waits for", hasRow("tomorrow, wait, sleeping"))
	b.accessible()
	b.look("timeline-long")
	b.press("e")
	b.until("failed steps alone", rowsAt(2)+` >= 5 && `+hasRow("item, step, failed"))
	b.click("Later steps")
	b.shows("of a later part")
	b.until("few rows", `document.querySelectorAll("[role=row]").length < 60`)
	few := i.start("order", nil)
	i.wait(few, "hook_created")
	b.openLog(few)
	small := b.heap()
	b.openLog(run)
	large := b.heapUntil(small + 1)
	t.Logf("the heap of the log of ten events has %.1f MB, of 100,000 events %.1f MB", small, large)
	if large > small+1 {
		t.Errorf("the log of 100,000 events needs %.1f MB, that of ten %.1f MB", large, small)
	}
}

// openLog opens the log of a run.
func (b *tab) openLog(run string) {
	b.t.Helper()
	b.open("/ui/default/runs/" + run + "/log")
	b.until("events", `document.querySelectorAll("button.event").length >= 8`)
	b.isLive()
}

// lengthen gives a run 33,333 more steps, of which every 1,000th failed.
func (i *installation) lengthen(run string) {
	i.t.Helper()
	db := i.connect()
	for _, sql := range []string{
		`UPDATE runs SET last_seq = last_seq + 3 * 33333, created_at = created_at - interval '1 hour',
			started_at = started_at - interval '1 hour' WHERE id = $1`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, result_seq, created_at, updated_at,
			started_at, completed_at)
		SELECT id, 's' || i, CASE WHEN i % 7 = 0 THEN 'check' ELSE 'item' END, CASE WHEN i % 1000 = 0 THEN 'failed' ELSE 'completed' END,
			1, spec_version, last_seq - 3 * i + 1, last_seq - 3 * i + 3, at, at, at + interval '5 ms', at + interval '20 ms' + i % 90 * interval '1 ms'
		FROM runs, generate_series(1, 33333) i, LATERAL (SELECT created_at + (33333 - i) * interval '40 ms' AS at) x WHERE id = $1`,
		`INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT project, id, last_seq - 3 * i + n,
			CASE WHEN n = 3 AND i % 1000 = 0 THEN 'step_failed' ELSE ('{step_created,step_started,step_completed}'::text[])[n] END, 's' || i, spec_version,
			created_at + (33333 - i) * interval '40 ms' + n * interval '5 ms', '{"stepName": "item"}', '1'::xid8
		FROM runs, generate_series(1, 33333) i, generate_series(1, 3) n WHERE id = $1`,
		`ANALYZE`,
	} {
		args := []any{run}
		if sql == `ANALYZE` {
			args = nil
		}
		if _, err := db.Exec(i.t.Context(), sql, args...); err != nil {
			i.t.Fatal(err)
		}
	}
}
