package ui

import (
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestTriggerPages makes, uses, changes and deletes a trigger, at the root and below a path.
func TestTriggerPages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		addTriggerScene(admin)
		i.historyScene(admin)
		admin.pause()
		admin.look("trigger-paused")
		admin.resume()
		i.editTriggerScene(admin)
		i.guestTriggerScene(guest)
		i.webhookTriggerScene(admin)
		admin.open("/ui/default/triggers/paid")
		admin.remove()
		admin.shows("pushed")
	})
}

func addTriggerScene(b *tab) {
	b.open("/ui/default/triggers")
	b.shows("There are no triggers")
	b.accessible()
	b.click("New trigger …")
	b.fill("dialog input[name=name]", "paid")
	b.fill("dialog input[name=workflow]", "reminder")
	b.fill("dialog input[name=source]", "order.paid")
	b.fill("dialog input[name=condition]", "data.amount >")
	b.fill("dialog textarea", `{"id": 9007199254740993, "of": "${data.order}"}`)
	b.click("More")
	b.fill("dialog input[name=key]", "order-${data.order}")
	b.fill("dialog input[name=attributes]", `customer="${data.customer}"`)
	b.click("Copy as curl or CLI")
	b.shows("triggers put paid reminder --signal order.paid --condition 'data.amount >' --key 'order-${data.order}'")
	b.accessible()
	b.narrow()
	b.look("trigger-add")
	b.allow("400")
	b.click("Create it")
	b.until("the condition is refused", `document.querySelector("dialog .trouble")`)
	b.fill("dialog input[name=condition]", "data.amount > 100")
	b.click("Create it")
	b.shows("signal order.paid", "data.amount > 100", "active", "9007199254740993", "No event has come yet")
	b.accessible()
}

// historyScene posts signals of which one starts a run, one is skipped, and two are refused.
func (i *installation) historyScene(b *tab) {
	for _, data := range []map[string]any{
		{"amount": 120, "order": "7", "customer": "c7"}, {"amount": 20}, {"amount": 120, "order": "7", "customer": "c7"}, {"amount": 120},
	} {
		i.call("POST", "/v1/signals/order.paid", map[string]any{"data": data}, nil)
		i.settled()
	}
	b.rows(4)
	b.shows("started", "skipped", "the condition is false: data.amount > 100", "refused", "start.input")
	b.seen("trigger")
	run := i.trigger().Last[3].RunID
	b.click(short(run))
	b.shows("$trigger", "paid")
	b.open("/ui/default/triggers")
	b.rows(1)
	b.shows("paid", "signal order.paid", "active")
	b.seen("triggers")
	b.click("paid")
	b.rows(4)
}

// settled waits until there is no work of triggers.
func (i *installation) settled() {
	i.t.Helper()
	harness.Eventually(i.t, "the signal is dispatched", func() bool {
		for _, work := range []string{"signal", "trigger"} {
			var list struct{ Data []any }
			if i.call("GET", "/v1/messages?work="+work, nil, &list); len(list.Data) > 0 {
				return false
			}
		}
		return true
	})
}

// trigger returns the trigger as the API has it.
func (i *installation) trigger() (g struct {
	On    struct{ Signal struct{ Condition string } }
	Start map[string]any
	Last  []struct{ RunID string }
}) {
	i.t.Helper()
	i.call("GET", "/v1/triggers/paid", nil, &g)
	return g
}

// editTriggerScene changes the condition, and adds a limit. What the form does not show stays.
func (i *installation) editTriggerScene(b *tab) {
	i.call("PUT", "/v1/limits/stripe", map[string]any{"perKey": 5}, nil)
	b.click("Edit …")
	b.fill("dialog input[name=condition]", "data.amount > 10")
	b.click("More")
	b.fill("dialog details textarea", `{"limits": [{"name": "stripe", "key": "${data.customer}"}]}`)
	b.accessible()
	b.click("Change it")
	b.shows("data.amount > 10", "stripe=${data.customer}")
	g := i.trigger()
	if g.On.Signal.Condition != "data.amount > 10" || g.Start["key"] != "order-${data.order}" || g.Start["limits"] == nil || g.Start["input"] == nil {
		b.t.Errorf("got %+v, want the rest unchanged", g)
	}
}

// guestTriggerScene sees what became of events without what conditions and inputs say, and may do nothing.
func (i *installation) guestTriggerScene(b *tab) {
	i.t.Helper()
	b.open("/ui/default/triggers/paid")
	b.rows(4)
	b.shows("skipped", "Not shown to keys of the role metadata.")
	b.isReadOnly()
	if html := evaluate[string](b, `document.documentElement.outerHTML`); strings.Contains(html, "data.amount") || strings.Contains(html, "9007199254740993") {
		b.t.Error("the page shows the condition or the input to the role metadata")
	}
	b.hasNone("triggers", "There is no trigger with this name")
}

// webhookTriggerScene adds a trigger with a URL, and calls it.
func (i *installation) webhookTriggerScene(b *tab) {
	b.open("/ui/default/triggers")
	b.click("New trigger …")
	b.choose("dialog select[name=kind]", "webhook")
	b.fill("dialog input[name=name]", "pushed")
	b.fill("dialog input[name=workflow]", "reminder")
	b.click("Create it")
	b.shows("webhook", "/hooks/trg_", "The event.")
	b.accessible()
	var g struct{ Path string }
	i.call("GET", "/v1/triggers/pushed", nil, &g)
	i.call("POST", g.Path, map[string]any{"ref": "main"}, nil)
	b.rows(1)
	b.shows("started")
}
