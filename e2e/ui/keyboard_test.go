package ui

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestKeyboardAlone does what matters without a pointer: sign in, skip the navigation, find a run, read its tabs, resume
// its hook, cancel another one from the list, and close a dialog. Whatever has the focus shows it.
func TestKeyboardAlone(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "/a/b")
	order := i.start("order", nil)
	i.wait(order, "hook_created")
	b := newTab(t, i.web)
	b.allow("401")
	b.open("/")
	b.shows("Sign in to Stepwell")
	b.tabTo("key")
	b.typeText(apiKey)
	b.press(kb.Enter)
	b.shows("Sign out")

	b.pressUntil("gr", "the run", `document.querySelector("table.runs tbody tr")`)
	b.tabTo("Skip to the page")
	b.press(kb.Enter)
	b.tabTo("Start a run …")
	b.press("j" + kb.Enter)
	b.shows("Nobody has resumed hook approval")
	b.tabTo("Timeline")
	b.press(kb.ArrowRight + kb.Enter)
	b.until("the log", `location.pathname.endsWith("/log")`)
	b.tabTo("Resume …")
	b.press(kb.Enter)
	b.until("the hook is read", `document.querySelector("dialog select")?.value === "approval"`)
	b.tabTo("Resume")
	b.press(kb.Enter)
	b.shows("Completed ")
	b.until("the focus is not lost in the dialog", `!document.querySelector("dialog")`)

	reminder := i.start("reminder", nil)
	i.wait(reminder, "wait_created")
	b.pressUntil("gr", "both runs", `document.querySelectorAll("table.runs tbody tr").length === 2`)
	b.press("jx")
	b.tabTo("Cancel …")
	b.press(kb.Enter)
	b.until("what would be cancelled", `document.querySelector("dialog .danger:not(:disabled)")`)
	b.tabTo(evaluate[string](b, `document.querySelector("dialog .danger").innerText`))
	b.press(kb.Enter)
	i.wait(reminder, "run_cancelled")

	b.press(kb.Escape)
	b.until("no dialog", `!document.querySelector("dialog[open]")`)
	b.pressUntil("gd", "the deployments", `document.body.innerText.includes("Calls are not signed.")`)
	b.tabTo("New deployment …")
	b.press(kb.Enter)
	b.until("the form", `document.activeElement?.closest("dialog")`)
	b.press(kb.Escape)
	b.until("the focus is back", `document.activeElement?.innerText === "New deployment …"`)
}

// pressUntil presses two keys that must come within a second until a condition holds: a busy machine may be slower, and
// a page that has just been opened may not listen yet.
func (b *tab) pressUntil(keys, what, expression string) {
	b.t.Helper()
	pressed := time.Time{}
	harness.Eventually(b.t, what, func() bool {
		if evaluate[bool](b, `!!(`+expression+`)`) {
			return true
		}
		if time.Since(pressed) > 3*time.Second {
			b.press(keys)
			pressed = time.Now()
		}
		return false
	})
}

// tabTo presses Tab until what has a name has the focus, and checks that the focus is seen.
func (b *tab) tabTo(name string) {
	b.t.Helper()
	const most = 120
	b.until("there is "+name, fmt.Sprintf(`[...document.querySelectorAll("a, button, input, select, [tabindex]")].some((e) => (%s) && !e.disabled)`, named("e", name)))
	for range most {
		b.press(kb.Tab)
		if evaluate[bool](b, named("document.activeElement", name)) {
			if !evaluate[bool](b, `(({outlineStyle, boxShadow}) => outlineStyle !== "none" || boxShadow !== "none")(getComputedStyle(document.activeElement))`) {
				b.t.Errorf("nobody sees that %s has the focus", name)
			}
			return
		}
	}
	b.t.Fatalf("%d times Tab do not lead to %s", most, name)
}

// named is true if an element has a name, as a label, a text, perhaps with a count, or that of a field.
func named(element, name string) string {
	return fmt.Sprintf(`((text) => [%[1]s.ariaLabel, text, text?.replace(/\s*[\d,]+\+?$/, ""), %[1]s.name].includes(%[2]s))
		(%[1]s.innerText?.trim().split("\n")[0])`, element, quote(name))
}
