package ui

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestOrderByThePageAlone starts, breaks and repairs the example order in Python with nothing but the page: of the API
// and the command line, it uses none.
func TestOrderByThePageAlone(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	i.call("DELETE", "/v1/deployments/shop", nil, nil)
	cmd := exec.Command("python3", filepath.Join("..", "..", "examples", "function-python", "order.py"))
	cmd.Env = append(os.Environ(), "PORT=0", "STEPWELL_URL="+i.server)
	app, port := harness.Start(t, "order", cmd, harness.AppReady)
	t.Cleanup(app.Kill)
	b := newTab(t, i.web)
	const wrong = "http://127.0.0.1:1"
	b.open("/")
	b.firstOrder("http://127.0.0.1:" + port)
	b.moveOrders(wrong)
	b.unreachableOrder("http://127.0.0.1:" + port)
	b.wrongOrder()
}

// firstOrder adds the deployment, starts an order and approves it, as the overview suggests.
func (b *tab) firstOrder(url string) {
	b.shows("Three steps to the first one")
	b.shot("play-1-begin")
	b.click("New deployment …")
	b.fill("dialog input[name=id]", "orders")
	b.fill("dialog input[name=url]", url)
	b.shot("play-2-add")
	b.click("Create it")
	b.rows(1)
	b.shot("play-3-added")
	b.click("Overview")
	b.click("Start a run …")
	b.until("the workflow is filled in", `document.querySelector("dialog input[name=workflow]")?.value === "order"`)
	b.fill("dialog textarea", `{"id": "7", "item": "teapot", "amount": 25}`)
	b.shot("play-4-start")
	b.click("Start the run")
	b.shows("Nobody has resumed hook approval")
	b.shot("play-5-hook")
	b.approve()
	b.shot("play-6-done")
}

// approve resumes the hook of the run that the page shows, which then completes.
func (b *tab) approve() {
	b.click("Resume …")
	b.until("the hook is read", `document.querySelector("dialog select")?.value === "approval"`)
	b.click("Resume")
	b.shows("Completed ")
}

// moveOrders tells the server that the app is at another address.
func (b *tab) moveOrders(url string) {
	b.click("Deployments")
	b.click("Move … orders")
	b.until("the URL is read", `document.querySelector("dialog input[name=url]").value !== "" && !document.querySelector("dialog .quiet")?.innerText.includes("Reading")`)
	b.fill("dialog input[name=url]", url)
	b.shot("play-7-move")
	b.click("Move it")
	b.until("the URL", `document.querySelector("main table").innerText.includes(`+quote(url)+`)`)
}

// unreachableOrder starts an order that nobody answers, and finds from the overview why, and what helps.
func (b *tab) unreachableOrder(url string) {
	b.click("Runs")
	b.click("Start a run …")
	b.fill("dialog input[name=workflow]", "order")
	b.click("Input of the last run")
	b.until("the input", `document.querySelector("dialog textarea")?.value.includes("teapot")`)
	b.shot("play-8-again")
	b.click("Start the run")
	b.shows("Deployment orders cannot be reached")
	b.shot("play-9-unreachable")
	b.click("Overview")
	b.shows("orders cannot be reached: 1 message waiting")
	b.shot("play-10-overview")
	b.click("Look: orders cannot be reached: 1 message waiting")
	b.shot("play-11-look")
	b.do(chromedp.NavigateBack())
	b.do(chromedp.NavigateBack())
	b.click("Move orders …")
	b.until("the URL is read", `document.querySelector("dialog input").value === "http://127.0.0.1:1"`)
	b.fill("dialog input", url)
	b.click("Register")
	b.shows("Nobody has resumed hook approval")
	b.approve()
}

// wrongOrder starts an order without an ID, which the function does not understand, and starts it again with one.
func (b *tab) wrongOrder() {
	b.click("Rerun …")
	b.click("With changes …")
	b.until("the input", `document.querySelector("dialog textarea")?.value.includes("teapot")`)
	b.fill("dialog textarea", `{"item": "teapot", "amount": 25}`)
	b.click("Start the run")
	b.shows("KeyError")
	b.shot("play-12-broken")
	b.click("Rerun …")
	b.click("With changes …")
	b.until("the input", `document.querySelector("dialog textarea")?.value.includes("teapot")`)
	b.fill("dialog textarea", `{"id": "8", "item": "teapot", "amount": 25}`)
	b.click("Start the run")
	b.shows("Nobody has resumed hook approval")
	b.approve()
	b.click("Runs")
	b.rows(4)
	b.shot("play-13-runs")
}
