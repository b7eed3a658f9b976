package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// shippingFlow comes to a stop at the approval, with a map that is done but for one item, and then fails and is undone.
const shippingFlow = `flow: shipping
describe: Ships an order
deployment: depot
steps:
  reserve: {call: reserve, undo: {call: release}}
  check: {needs: reserve, when: "input.amount > 1000.0", call: check}
  charge: {needs: [reserve, check], call: charge, undo: {call: refund}, catch: [{codes: [declined], to: invoice}]}
  invoice: {call: invoice}
  parcels: {needs: reserve, map: input.parcels, tolerate: 1, do: {call: pack}}
  agree:
    needs: [charge, parcels]
    approval:
      title: "Order ${input.id}"
      by: [anna, role:finance]
      deadline: 72h
      form: {type: object, required: [limit, reason], properties: {limit: {type: number, maximum: 500, description: In euros.}, reason: {enum: [usual, gift]}, tags: {type: array, items: {type: string}}, gift: {type: boolean, default: true}, more: {}}}
  ship: {needs: agree, call: ship}
`

// TestFlowPages looks at a flow, its versions, and the graph of a run as it goes on, fails and is undone, at the root and
// below a path.
func TestFlowPages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		admin.open("/ui/default/flows")
		admin.shows("There are no flows")
		admin.accessible()
		depot := httptest.NewServer(http.HandlerFunc(serveDepot))
		i.t.Cleanup(depot.Close)
		i.call("PUT", "/v1/deployments/depot", map[string]any{"url": depot.URL}, nil)
		i.call("POST", "/v1/flows", map[string]any{"document": "flow: shipping\ndeployment: depot\nsteps: {ship: {call: ship}}\n"}, nil)
		i.call("POST", "/v1/flows", map[string]any{"document": shippingFlow}, nil)
		i.call("PUT", "/v1/flows/shipping/aliases/prod", map[string]any{"version": 1}, nil)
		run := i.shippingScene(admin)
		i.flowScene(admin, run)
		i.runGraphScene(admin, guest, run)
		i.largestFlowScene(admin)
		guest.hasNone("flows", "There is no flow with this name")
	})
}

// serveDepot is the function of the steps: cards are declined, one parcel is lost, and nothing is shipped.
func serveDepot(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Step struct {
			Name  string
			Input json.RawMessage
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	w.Header().Set("Content-Type", "application/json")
	code := map[string]string{"charge": "declined", "ship": "strike"}[call.Step.Name]
	if call.Step.Name == "pack" && string(call.Step.Input) == "3" {
		code = "lost"
	}
	if code != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprintf(w, `{"error": {"message": "no", "code": %q}}`, code)
		return
	}
	_, _ = fmt.Fprint(w, `{"output": {"id": 7}}`)
}

// shippingScene starts a run from the page of the flow.
func (i *installation) shippingScene(b *tab) (run string) {
	b.open("/ui/default/flows")
	b.rows(1)
	b.shows("shipping", "shipping@2", "active")
	b.seen("flows")
	run = i.start("shipping", map[string]any{"deployment": "latest", "input": map[string]any{"id": "7", "amount": 25, "parcels": []int{1, 2, 3, 4}}})
	i.wait(run, "hook_created")
	b.click("shipping")
	b.shows("shipping@2", "prod → 1", "an undo", "if charge fails with declined", "needs: reserve, when:", short(run))
	return run
}

// flowScene looks at both versions of the flow.
func (i *installation) flowScene(b *tab, run string) {
	b.until("seven boxes and eight lines", `document.querySelectorAll(".graph .box").length === 7 && document.querySelectorAll(".graph path.line").length === 8`)
	b.until("one line is that of a catch", `document.querySelector(".graph path.caught")`)
	b.seen("flow")
	b.click("1")
	b.until("the first version", `location.search === "?version=1" && document.querySelectorAll(".graph .box").length === 1`)
	b.click("2")
	b.until("the second version", `document.querySelectorAll(".graph .box").length === 7`)
	b.click("Start …")
	b.until("the form", `document.querySelector("dialog input[name=workflow]")?.value === "shipping"`)
	b.open("/ui/default/flows/shipping")
	b.until("the graph, above the runs", `document.querySelectorAll(".graph .box").length === 7`)
	b.click(short(run))
	b.until("the graph of the run", `location.pathname.endsWith("/graph")`)
}

// runGraphScene sees the run wait, votes, and sees it fail and be undone, without reading the page anew.
func (i *installation) runGraphScene(b, guest *tab, run string) {
	b.stage("reserve", "completed")
	b.stage("check", "skipped")
	b.stage("charge", "failed declined")
	b.stage("invoice", "completed")
	b.stage("parcels", "completed")
	b.stage("agree", "waiting")
	b.stage("ship", "not begun")
	b.shows("4 of 4, 1 failed")
	b.until("the reason of the step", `[...document.querySelectorAll("#tab-panel tbody tr")].find((row) => row.cells[1].innerText === "agree")
		?.cells[5].innerText.startsWith("Approval agree is not decided")`)
	b.until("since when it waits", `[...document.querySelectorAll(".graph .box")].some((e) => /^agreewaiting · for \d/.test(e.querySelector("text").textContent + e.querySelector("text + text").textContent))`)
	b.seen("run-graph")
	guest.open("/ui/default/runs/" + run + "/graph")
	guest.stage("agree", "waiting")
	b.shows("Approval agree is not decided: it has 0 votes.")
	i.approvalScene(b, run)
	b.stage("reserve", "undone")
	b.stage("ship", "failed strike")
	b.stage("agree", "completed")
	b.look("run-graph-undone")
	b.click("ship")
	b.until("its events", `location.pathname.endsWith("/log") && location.search === "?of=ship"`)
	order := i.start("order", nil)
	b.open("/ui/default/runs/" + order)
	b.shows("Timeline")
	b.until("no graph of a function", `!document.getElementById("tab-graph")`)
}

// choose chooses a value in the form of the approval.
const choose = `(() => { const e = document.querySelector("[name='/reason']"); e.value = '"gift"'; return e.dispatchEvent(new Event("input")); })()`

// approvalScene votes on the page Waiting, without JSON. What is wrong is said at its field, and the name is remembered. On
// the page of the run the same card is in the box that says why.
func (i *installation) approvalScene(b *tab, run string) {
	b.allow("403")
	b.allow("422")
	b.until("the card", `document.querySelector(".why .approval h3")`)
	b.accessible()
	b.look("run-approval")
	b.open("/ui/default/waiting")
	b.shows("Order 7", "for anna or the role finance", "0 of 1 approval", "Due", "in 2 d", "In euros.")
	b.until("the number in the navigation", `document.querySelector(".side [href$='/waiting']").dataset.count === "1"`)
	b.accessible()
	b.narrow()
	b.look("approvals")
	b.click("Approve Order 7")
	b.shows("This is required.")
	b.fill(`[name="/limit"]`, "1000")
	evaluate[bool](b, choose)
	b.click("Approve Order 7")
	b.shows("admin may not vote. This approval is for anna or the role finance.")
	b.fill(`[name="as"]`, "bob")
	b.click("Approve Order 7")
	b.shows("bob may not vote. This approval is for anna or the role finance.")
	b.fill(`[name="as"]`, "anna")
	b.click("Approve Order 7")
	b.until("what the server has found", `document.querySelector("[name='/limit']").closest("label").innerText.includes("500")`)
	b.look("approval-refused")
	b.open("/ui/default/waiting?show=mine")
	b.until("the name is remembered", `document.querySelector("[name=as]")?.value === "anna"`)
	b.fill(`[name="/limit"]`, "100.50")
	evaluate[bool](b, choose)
	b.click("Approve Order 7")
	b.shows("Approved: Order 7.", "No approval waits for you")
	b.until("no number in the navigation", `!document.querySelector(".side [href$='/waiting']").dataset.count`)
	var received struct{ Data []struct{ Payload any } }
	i.call("GET", "/v1/runs/"+run+"/events?type=hook_received&payloads=true", nil, &received)
	vote, _ := json.Marshal(received)
	if !strings.Contains(string(vote), `"form":{"gift":true,"limit":100.5,"reason":"gift"}`) || !strings.Contains(string(vote), `"by":"anna"`) {
		b.t.Errorf("the log has %s", vote)
	}
	b.open("/ui/default/runs/" + run + "/graph")
}

// stage waits until the table says how far a step is.
func (b *tab) stage(step, says string) {
	b.t.Helper()
	b.until(step+" is "+says, `[...document.querySelectorAll("#tab-panel tbody tr")].some((row) =>
		row.cells[1].innerText === `+quote(step)+` && row.cells[0].innerText.trim().replace(/\s+/g, " ") === `+quote(says)+`)`)
}

// largestFlowScene draws a flow with as many steps as there may be.
func (i *installation) largestFlowScene(b *tab) {
	var document strings.Builder
	document.WriteString("flow: large\nsteps:\n")
	for n := range 240 {
		fmt.Fprintf(&document, "  step-%d: {set: 1", n)
		if n >= 8 {
			fmt.Fprintf(&document, ", needs: [step-%d, step-%d]", n-8, n-8+n%5)
		}
		document.WriteString("}\n")
	}
	i.call("POST", "/v1/flows", map[string]any{"document": document.String()}, nil)
	b.open("/ui/default/flows/large")
	b.until("240 boxes", `document.querySelectorAll(".graph .box").length === 240`)
	b.seen("flow-large")
}
