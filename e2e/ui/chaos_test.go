package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestLiveThroughChaos breaks something while runs go on, again and again: it kills the server, ends the connections to
// the database, takes the network from the pages, and hides them. After each fault the list and the log show what the
// API says. There are four faults, or as many as E2E_CHAOS says.
func TestLiveThroughChaos(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("E2E_CHAOS")); err == nil {
		rounds = n
	}
	c := newChaos(t)
	for n := range rounds {
		fault := c.faults()[n%4]
		t.Logf("round %d: %s", n+1, fault.name)
		c.startRuns()
		fault.begin()
		c.startRuns()
		fault.end()
		c.startRuns()
		c.isShown()
	}
	c.list.isLive()
	c.log.isLive()
}

// chaos is an installation, a tab that shows the list of runs, and one that shows the log of a run.
type chaos struct {
	*installation

	list, log *tab
	run       string
	started   int
}

func newChaos(t *testing.T) *chaos {
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	c := &chaos{installation: i, list: newTab(t, i.web), log: newTab(t, i.web), run: i.start("reminder", nil)}
	i.wait(c.run, "wait_created")
	c.list.open("/ui/default/runs")
	c.log.open("/ui/default/runs/" + c.run + "/log")
	for _, b := range c.tabs() {
		b.allow("ERR_") // the server does not answer
		b.allow("50")   // or the database does not
		b.isLive()
		b.hideAtOnce()
	}
	return c
}

func (c *chaos) tabs() []*tab { return []*tab{c.list, c.log} }

// fault is something that breaks, and that is mended.
type fault struct {
	name       string
	begin, end func()
}

func (c *chaos) faults() []fault {
	each := func(do func(*tab)) func() {
		return func() {
			for _, b := range c.tabs() {
				do(b)
			}
		}
	}
	nothing := func() {}
	return []fault{
		{"the server is killed", c.restart, nothing},
		{"the network is away", each(func(b *tab) { b.offline(true) }), each(func(b *tab) { b.offline(false) })},
		{"the database ends its connections", func() {
			c.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		}, nothing},
		{"the pages are hidden", each(func(b *tab) { b.pretend(true) }), each(func(b *tab) { b.pretend(false) })},
	}
}

// offline takes the network from the page, or gives it back.
func (b *tab) offline(away bool) {
	b.t.Helper()
	send(b, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: away, DownloadThroughput: -1, UploadThroughput: -1}},
	})
}

// startRuns starts three runs, and lets the log grow.
func (c *chaos) startRuns() {
	c.t.Helper()
	for _, workflow := range []string{"order", "refund", "reminder"} {
		c.insist("POST", "/v1/runs", map[string]any{"workflow": workflow, "deployment": "shop"}, nil)
	}
	c.started++
	c.insist("PATCH", "/v1/runs/"+c.run+"/attributes", map[string]any{"attributes": map[string]string{"round": strconv.Itoa(c.started)}}, nil)
}

// insist calls the API until it answers. So a run may be started twice.
func (c *chaos) insist(method, path string, body, into any) {
	c.t.Helper()
	harness.Eventually(c.t, method+" "+path, func() bool { return c.try(method, path, body, into) })
}

// try calls the API and reports whether it answered as it should.
func (c *chaos) try(method, path string, body, into any) bool {
	data, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.server+path, bytes.NewReader(data))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode < 300 && (into == nil || json.NewDecoder(resp.Body).Decode(into) == nil)
}

// isShown waits until all runs rest, and both pages show what the API says.
func (c *chaos) isShown() {
	c.t.Helper()
	want, got := "", ""
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("the API says\n%s\n\nthe pages show\n%s\n\nthe page of the log:\n%s", want, got, c.log.text())
		}
	})
	harness.Eventually(c.t, "the pages show what the API says", func() bool {
		shown := evaluate[[]string](c.list, `[...document.querySelectorAll("table.runs tbody:not(.away) tr")].map((r) =>
			[r.querySelector("a").title, r.cells[1].innerText.trim(), r.cells[7].innerText].join(" "))`)
		rows, quiet := c.rows(len(shown))
		log := evaluate[[]string](c.log, `[...document.querySelectorAll("button.event")].map((e) =>
			[e.querySelector(".num").innerText, e.querySelector(".type").innerText.trim(), e.querySelector(".note").innerText].join(" ").trim())`)
		events := c.events(len(log))
		want, got = strings.Join(append(rows, events...), "\n"), strings.Join(append(shown, log...), "\n")
		return quiet && want == got && len(shown) >= min(50, 3*c.started+1) && len(log) > 0
	})
}

// rows returns the newest runs as the list shows them, and whether all of them rest.
func (c *chaos) rows(n int) (rows []string, quiet bool) {
	var list struct {
		Data []struct {
			ID, Status string
			LastSeq    int
			Reason     struct{ Verdict string }
		}
	}
	if !c.try("GET", "/v1/runs?limit=1000&include=reason", nil, &list) {
		return nil, false
	}
	quiet = true
	for _, r := range list.Data[:min(n, len(list.Data))] {
		rows = append(rows, fmt.Sprintf("%s %s %d", r.ID, cmp.Or(r.Reason.Verdict, r.Status), r.LastSeq))
		quiet = quiet && (r.Status == "failed" || r.Reason.Verdict == "waiting" && r.LastSeq > 2)
	}
	return rows, quiet && (n == len(list.Data) || n >= 50)
}

// events returns the last events of the run as the log shows them.
func (c *chaos) events(n int) (rows []string) {
	var list struct {
		Data []struct {
			Seq  int
			Type string
			Data struct {
				WorkflowName, ResumeAt string
				Changes                []struct{ Key, Value string }
			}
		}
	}
	if !c.try("GET", "/v1/runs/"+c.run+"/events?limit=1000&payloads=false", nil, &list) {
		return nil
	}
	for _, e := range list.Data[max(0, len(list.Data)-n):] {
		note := e.Data.WorkflowName
		if e.Data.ResumeAt != "" {
			note = "until " + e.Data.ResumeAt
		}
		for _, change := range e.Data.Changes {
			note = change.Key + " = " + change.Value
		}
		rows = append(rows, strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Seq, e.Type, note)))
	}
	return rows
}
