package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestLimitPages makes a limit and a policy, looks at who holds a slot and who waits, and pauses and deletes them.
func TestLimitPages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		addLimitScene(admin)
		policyScene(admin)
		holder, waiter := i.slotsScene(admin)
		guestLimitScene(guest, holder)
		i.whyLimitScene(admin, waiter)
		deleteLimitScene(admin)
	})
}

func addLimitScene(b *tab) {
	b.open("/ui/default/limits")
	b.shows("There are no limits", "A policy gives the runs of a workflow limits")
	b.click("New limit …")
	b.fill("dialog input[name=name]", "stripe")
	b.fill("dialog input[name=perKey]", "one")
	b.shows("Write whole numbers.")
	b.fill("dialog input[name=perKey]", "1")
	b.fill("dialog input[name=rate]", "100")
	b.fill("dialog input[name=per]", "1m")
	b.fill("dialog input[name=burst]", "10")
	b.click("Copy as curl or CLI")
	b.shows("limits set stripe --per-key 1 --rate 100/1m --burst 10")
	b.accessible()
	b.look("limit-add")
	b.click("Create it")
	b.shows("1 per key · 100 in 1m, 10 at once", "91 in 1m", "Nothing holds a slot")
	b.accessible()
}

func policyScene(b *tab) {
	b.click("Limits")
	b.rows(1)
	b.click("New policy …")
	b.fill("dialog input[name=workflow]", "reminder")
	b.fill("dialog textarea", `[{"name": "stripe", "key": "input.customer"}]`)
	b.allow("400")
	b.accessible()
	b.click("Create it")
	b.until("the expression is refused", `document.querySelector("dialog .trouble")`)
	b.fill("dialog textarea", `[{"name": "stripe", "key": "attributes.customer"}]`)
	b.click("Create it")
	b.rows(2)
	b.shows("stripe=attributes.customer")
	b.accessible()
}

// slotsScene has one run hold the slot of a customer, and another wait for it.
func (i *installation) slotsScene(b *tab) (holder, waiter string) {
	customer := map[string]any{"attributes": map[string]string{"customer": "c7"}}
	harness.Eventually(i.t, "the policy counts", func() bool {
		holder = i.start("reminder", customer)
		var slots struct{ Held []any }
		i.call("GET", "/v1/limits/stripe/slots?key=c7", nil, &slots)
		return len(slots.Held) > 0
	})
	waiter = i.start("reminder", customer)
	i.wait(holder, "wait_created")
	b.open("/ui/default/limits/stripe")
	b.shows("c7", "holds", "waits, no. 1", "the run", "some wait")
	b.seen("limit")
	b.click("Limits")
	b.rows(2)
	b.shows("some wait")
	b.narrow()
	b.look("limits")
	b.click("stripe")
	b.click(short(holder))
	b.shows(holder)
	return holder, waiter
}

// guestLimitScene sees who holds a slot, and may do nothing.
func guestLimitScene(b *tab, holder string) {
	b.open("/ui/default/limits/stripe?key=c7")
	b.shows("holds", short(holder))
	b.isReadOnly()
	b.hasNone("limits", "There is no limit with this name")
}

// whyLimitScene goes from a run that waits to its limit, and gives it a second slot.
func (i *installation) whyLimitScene(b *tab, waiter string) {
	b.open("/ui/default/runs/" + waiter)
	b.shows("It waits for a slot of limit stripe, key c7: 1 of 1 are taken")
	b.accessible()
	b.look("limit-why")
	b.click("Open the limit")
	b.shows("Slots: c7")
	b.click("Pause …")
	b.accessible()
	b.click("Pause it")
	b.shows("paused")
	b.click("Resume …")
	b.click("Resume it")
	b.click("Edit …")
	b.fill("dialog input[name=perKey]", "2")
	b.click("Change it")
	b.shows("2 per key")
	i.wait(waiter, "wait_created")
	b.until("nobody waits", `!document.body.innerText.includes("waits, no.")`)
}

func deleteLimitScene(b *tab) {
	b.click("Delete …")
	b.allow("409")
	b.click("Delete it")
	b.shows("The state does not allow this") // a policy names it
	b.open("/ui/default/limits")
	b.click("Delete …")
	b.click("Delete it")
	b.shows("A policy gives the runs of a workflow limits")
	b.open("/ui/default/limits/stripe")
	b.click("Delete …")
	b.click("Delete it anyway: what waits goes on without it")
	b.accessible()
	b.allow("404") // the page that reads what it has deleted
	b.click("Delete it")
	b.shows("There are no limits")
}
