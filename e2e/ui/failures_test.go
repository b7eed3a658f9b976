package ui

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestWorkflowsAndFailures looks at workflows and failed runs, starts the failed ones again, and compares two runs.
func TestWorkflowsAndFailures(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			b := newTab(t, i.web)
			b.allow("401")
			var orders []string
			for n := range 2 {
				orders = append(orders, i.start("order", map[string]any{"input": map[string]any{"id": 9007199254740992 + n, "same": true}}))
			}
			for range 3 {
				i.wait(i.start("refund", nil), "run_failed")
			}
			for _, id := range orders {
				i.wait(id, "hook_created")
			}
			i.call("POST", "/v1/runs/"+orders[0]+"/hooks/approval/resume", map[string]any{"payload": true}, nil)
			i.wait(orders[0], "run_completed")
			i.counted("refund", 3)
			i.counted("order", 2)
			b.open("/ui/default/workflows")
			b.fill("input[name=key]", apiKey)
			b.click("Sign in")
			i.workflowsScene(b)
			i.rerunScene(b)
			i.withoutPayloadsScene(b)
			i.forkScene(b)
			compareScene(b, orders[0], orders[1])
		})
	}
}

// counted waits until the statistics have as many runs of a workflow.
func (i *installation) counted(workflow string, runs int64) {
	i.t.Helper()
	harness.Eventually(i.t, "count of "+workflow, func() bool {
		var stats struct {
			Data []struct{ Total struct{ Created int64 } }
		}
		i.call("GET", "/v1/stats/runs?step=1h&workflow="+workflow, nil, &stats)
		return len(stats.Data) == 1 && stats.Data[0].Total.Created >= runs
	})
}

func (i *installation) workflowsScene(b *tab) {
	row := func(name string) string {
		return `[...document.querySelectorAll("table.numbers tbody tr")].find((e) => e.innerText.startsWith(` + quote(name) + `))`
	}
	b.until("the failed refunds", row("refund")+`?.innerText.includes("3 (100 %)")`)
	b.until("the open order", row("order")+`?.querySelector("[data-label=open]").innerText === "1"`)
	b.accessible()
	b.look("workflows")
	b.click("1h")
	b.until("the hour in the address", `location.search === "?in=1h"`)
	b.click("order")
	b.shows("By deployment", "No run has failed in 1h")
	b.until("the steps in order", `[...document.querySelectorAll("table:nth-of-type(2) td:first-child")].map((e) => e.innerText).join() === "charge,reserve"`)
	b.until("the link that starts a run", `document.querySelector("a[href$='/runs?start=order']")`)
	b.accessible()
	b.look("workflow")
}

// rerunScene opens the dialog, whose dry run starts nothing, and starts a copy of each failed run.
func (i *installation) rerunScene(b *tab) {
	b.click("Failures")
	b.shows("card_declined", "The card that ends in … was declined.")
	b.until("the number of runs", `document.querySelector("[data-label=runs]").innerText === "3"`)
	b.shows("after deployment shop was changed")
	b.accessible()
	b.narrow()
	if part := onTablet[float64](b, `document.querySelector(".groups .what").offsetWidth / document.querySelector(".groups").offsetWidth`); part < 0.4 {
		b.t.Errorf("on a tablet, the messages have %.0f %% of the width", 100*part)
	}
	b.look("failures")
	b.click("Rerun all …")
	b.shows("3 runs match, 3 can be rerun; 0 will be left alone", "The step and the message do not count.")
	b.accessible()
	b.look("rerun")
	if n := i.runsOf("refund"); n != 3 {
		b.t.Errorf("after the dry run there are %d refunds, want 3", n)
	}
	b.click("Rerun 3 runs")
	b.shows("3 runs started again.")
	b.click("Close")
	harness.Eventually(b.t, "the copies fail in turn", func() bool { return i.runsOf("refund&status=failed") == 6 })
	b.click("1h") // reads the groups again
	b.until("the copies that failed in turn", `document.querySelector("[data-label=runs]").innerText === "6"`)
	if n := i.runsOf("refund"); n != 6 {
		b.t.Errorf("after the rerun there are %d refunds, want 6", n)
	}
	b.click("These runs")
	b.until("the failed runs", `document.querySelectorAll("table.runs tbody tr").length === 6`)
	b.shows("error:card_declined")
}

// withoutPayloadsScene looks at the failures with a key of the role metadata.
func (i *installation) withoutPayloadsScene(b *tab) {
	var key struct{ Key string }
	i.call("POST", "/v1/keys", map[string]any{"name": "support", "role": "metadata"}, &key)
	b.click("Sign out")
	b.fill("input[name=key]", key.Key)
	b.click("Sign in")
	b.until("the role", `document.querySelector(".role").innerText === "metadata"`)
	b.click("Failures")
	b.shows("card_declined")
	b.until("no message", `!document.body.innerText.includes("was declined")`)
	b.until("no rerun", `[...document.querySelectorAll("button")].find((e) => e.innerText === "Rerun all …").disabled`)
	b.click("Sign out")
	b.fill("input[name=key]", apiKey)
	b.click("Sign in")
	b.until("the role", `document.querySelector(".role").innerText === "admin"`)
}

// forkScene goes on from the failure of a run, and from an event of its log: the runs name each other.
func (i *installation) forkScene(b *tab) {
	var list struct{ Data []struct{ ID string } }
	i.call("GET", "/v1/runs?workflow=refund&order=asc&limit=1", nil, &list)
	run := list.Data[0].ID
	b.open("/ui/default/runs/" + run)
	b.click("Go on from the failure …")
	b.shows("What is finished is not done again.")
	b.accessible()
	b.look("fork")
	b.click("Start the fork")
	b.until("the fork, which names its original", `!location.pathname.includes(`+quote(run)+`) && document.querySelector(".facts a[href*=\"`+run+`/log\"]")`)
	b.open("/ui/default/runs/" + run + "/log#e2")
	b.click("Go on from here …")
	b.shows("keeps the first 2 events")
	b.click("Start the fork")
	b.until("the second fork", `!location.pathname.includes(`+quote(run)+`) && document.body.innerText.includes("goes on from")`)
	b.open("/ui/default/runs/" + run)
	b.until("both forks", `[...document.querySelectorAll(".facts dt")].find((e) => e.innerText === "forks")?.nextSibling.querySelectorAll("a").length === 2`)
}

func (i *installation) runsOf(workflow string) int {
	i.t.Helper()
	var list struct{ Data []any }
	i.call("GET", "/v1/runs?workflow="+workflow, nil, &list)
	return len(list.Data)
}

func compareScene(b *tab, first, second string) {
	b.open("/ui/default/compare")
	b.shows("Select two in Runs")
	b.shows("Choose two runs")
	b.fill("input[name=a]", first)
	b.fill("input[name=b]", second)
	b.click("Compare")
	b.shows("9007199254740992", "9007199254740993", "B has none.", "charge", "reserve")
	b.until("both in the address", fmt.Sprintf(`location.search === "?a=%s&b=%s"`, first, second))
	if evaluate[bool](b, `document.querySelector(".diff").innerText.includes("same")`) {
		b.t.Error("what is equal is shown as a difference")
	}
	b.accessible()
	b.look("compare")
	b.do(chromedp.NavigateBack())
	b.shows("Choose two runs")
}
