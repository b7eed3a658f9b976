package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestQueuePages goes through the pages waiting, queue and deployments, at the root and below a path.
func TestQueuePages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base, "STEPWELL_MAX_DELIVERIES=1", "STEPWELL_FAILURE_WINDOW=0s")
			f := newFlaky(t)
			i.call("PUT", "/v1/deployments/flaky", map[string]any{"url": f.URL}, nil)
			runs := i.parked(4)
			b := newTab(t, i.web)
			b.open("/")
			b.fill("input[name=key]", apiKey)
			b.click("Sign in")
			b.shows("Sign out")
			i.queueScene(b, f, runs)
			i.waitingScene(b)
			i.signalScene(b)
			i.deploymentsScene(b, f)
		})
	}
}

// flaky is a function that fails until it works. Then it completes every run, after a signal if the workflow is "paid".
type flaky struct {
	*httptest.Server

	works atomic.Bool
}

func newFlaky(t *testing.T) *flaky {
	f := &flaky{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Run    struct{ Workflow string }
			Events []struct{ Type string }
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil || !f.works.Load() {
			http.Error(w, "the card service is down", http.StatusBadGateway)
			return
		}
		has := func(kind string) bool {
			return slices.ContainsFunc(call.Events, func(e struct{ Type string }) bool { return e.Type == kind })
		}
		commands := `{"type": "complete"}`
		switch {
		case call.Run.Workflow != "paid" || has("hook_received"):
		case has("hook_created"):
			commands = ``
		default:
			commands = `{"type": "openHook", "id": "payment", "signal": {"name": "order.paid", "condition": "data.order == 7"}}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"commands": [%s]}`, commands)
	}))
	t.Cleanup(f.Close)
	return f
}

// parked starts runs whose messages are parked, and returns them.
func (i *installation) parked(n int) []string {
	i.t.Helper()
	runs := make([]string, n)
	for k := range runs {
		runs[k] = i.start("charge", map[string]any{"deployment": "flaky"})
	}
	harness.Eventually(i.t, "the messages are parked", func() bool { return len(i.messages("parked")) == n })
	return runs
}

// messages returns the messages in a state, by their runs.
func (i *installation) messages(state string) map[string]string {
	i.t.Helper()
	var list struct{ Data []struct{ ID, RunID string } }
	i.call("GET", "/v1/messages?state="+state, nil, &list)
	found := map[string]string{}
	for _, m := range list.Data {
		found[m.RunID] = m.ID
	}
	return found
}

func short(id string) string { return "…" + id[len(id)-8:] }

// rows waits until the page's table has n rows.
func (b *tab) rows(n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d rows", n), fmt.Sprintf(`document.querySelectorAll("main table.list tbody tr").length === %d`, n))
}

func (i *installation) queueScene(b *tab, f *flaky, runs []string) {
	parked := i.messages("parked")
	b.open("/ui/default/queue")
	b.rows(4)
	b.shows("the card service is down", "The function answered with an error", "What it means")
	b.accessible()
	b.look("queue")
	b.click("Discard … " + short(parked[runs[0]]))
	b.click("Discard it")
	b.rows(3)
	f.works.Store(true)
	b.click("Retry " + short(parked[runs[1]]))
	b.accessible()
	b.click("Retry it")
	b.rows(2)
	i.wait(runs[1], "run_completed")
	b.fill("input[name=error]", "no such text")
	b.press(kb.Enter)
	b.shows("No message matches")
	b.fill("input[name=error]", "card service")
	b.press(kb.Enter)
	b.rows(2)
	b.click("Retry all that match …")
	b.shows("2 messages match", "--error-contains 'card service'")
	b.look("retry")
	b.click("Retry 2 messages")
	b.shows("No message matches")
	i.wait(runs[2], "run_completed")
	i.wait(runs[3], "run_completed")
	f.works.Store(false)
	i.parked(2)
	b.click("Remove the filter")
	b.rows(2)
	b.click("Discard all that match …")
	b.click("Discard 2 messages")
	b.shows("There are no such messages")
	f.works.Store(true)
	var audit struct {
		Data []struct {
			Action string
			Detail struct{ Count int }
		}
	}
	i.call("GET", "/v1/audit?limit=1000", nil, &audit)
	counts := map[string]int{}
	for _, a := range audit.Data {
		if strings.HasPrefix(a.Action, "messages.") {
			counts[a.Action] += a.Detail.Count
		}
	}
	if counts["messages.retry"] != 2 || counts["messages.discard"] != 2 {
		b.t.Errorf("the audit counts %v, want 2 of each", counts)
	}
}

// waitingScene resumes a hook by a double click, which counts once.
func (i *installation) waitingScene(b *tab) {
	order, reminder := i.start("order", nil), i.start("reminder", nil)
	i.wait(order, "hook_created")
	i.wait(reminder, "wait_created")
	b.open("/ui/default/waiting/anything")
	b.shows("Waiting has no part “anything”")
	b.open("/ui/default/waiting/hooks")
	b.rows(1)
	b.shows("approval", "order", "a payload")
	b.accessible()
	b.look("waiting")
	b.click("Resume approval of " + short(order))
	b.fill("dialog textarea", `{"approved": true}`)
	b.accessible()
	b.look("resume-one")
	b.do(chromedp.DoubleClick(`dialog button[type=submit]`))
	b.shows("No hook is open")
	i.wait(order, "run_completed")
	var received struct{ Data []any }
	i.call("GET", "/v1/runs/"+order+"/events?type=hook_received", nil, &received)
	if len(received.Data) != 1 {
		b.t.Errorf("the hook was resumed %d times, want once", len(received.Data))
	}
	b.click("Timers")
	b.rows(1)
	b.shows("tomorrow", "reminder", "in 23 h")
	b.accessible()
	b.look("timers")
}

func (i *installation) signalScene(b *tab) {
	run := i.start("paid", map[string]any{"deployment": "flaky"})
	i.wait(run, "hook_created")
	b.click("Signals")
	b.shows("No signal is stored")
	b.click("Send …")
	b.fill("dialog input", "order.paid")
	b.fill("dialog textarea", `{"order": 7, "id": 9007199254740993}`)
	b.accessible()
	b.click("Send")
	b.shows("order.paid", "9007199254740993")
	b.look("signals")
	i.wait(run, "run_completed")
}

// deploymentsScene moves a deployment that cannot be reached: its run goes on.
func (i *installation) deploymentsScene(b *tab, f *flaky) {
	gone := httptest.NewServer(nil)
	gone.Close()
	i.call("PUT", "/v1/deployments/away", map[string]any{"url": gone.URL, "workflows": []string{"charge"}, "build": "7f3a"}, nil)
	run := i.start("charge", map[string]any{"deployment": "away"})
	b.open("/ui/default/deployments")
	b.rows(3)
	b.shows("unreachable", "connection refused", "answers", "Calls are not signed.")
	b.accessible()
	b.narrow()
	if height := onTablet[float64](b, `Math.max(...[...document.querySelectorAll(".reach .small")].map((e) => e.offsetHeight))`); height > 90 {
		b.t.Errorf("on a tablet, the error is %.0f px high: more than four lines", height)
	}
	b.look("deployments")
	b.click("Move … away")
	b.shows("1 message that failed is delivered at once")
	b.fill("dialog input[name=url]", f.URL)
	b.accessible()
	b.look("move")
	b.click("Move it")
	i.wait(run, "run_completed")
	b.until("no deployment is unreachable", `!document.body.innerText.includes("unreachable")`)
	var moved struct {
		URL, Build string
		Workflows  []string
	}
	i.call("GET", "/v1/deployments/away", nil, &moved)
	if moved.URL != f.URL || moved.Build != "7f3a" || len(moved.Workflows) != 1 {
		b.t.Errorf("got %+v, want only its URL changed", moved)
	}
	b.click("Forget … away")
	b.click("Forget it")
	b.rows(2)
	b.click("New deployment …")
	b.fill("dialog input[name=id]", "new")
	b.fill("dialog input[name=url]", "ftp://example.com")
	b.allow("400")
	b.click("Create it")
	b.shows("is not an absolute http or https URL")
	b.fill("dialog input[name=url]", f.URL)
	b.click("Create it")
	b.rows(3)
	b.shows("not called yet")
}
