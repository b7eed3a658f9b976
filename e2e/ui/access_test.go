package ui

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestAccess goes through the pages access and servers, and through the ways in.
func TestAccess(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	for name, base := range bothBases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			b, guest := newTab(t, i.web), newTab(t, i.web)
			i.codeScene(b, guest)
			i.revokeScene(b, guest)
			signingKeyScene(b)
			secretScene(b)
			guest.shows("Your session is over") // seconds after its key was revoked
			i.auditScene(b)
			i.serversScene(b)
			i.projectScene(b)
		})
	}
}

// choose chooses an option of a list.
func (b *tab) choose(field, value string) {
	b.t.Helper()
	find := `document.querySelector(` + quote(field) + `)`
	b.until("the option "+value+" of "+field, `[...(`+find+`?.options ?? [])].some((o) => o.value === `+quote(value)+`)`)
	evaluate[chromedp.Void](b, `(() => { const e = `+find+`; e.value = `+quote(value)+`; e.dispatchEvent(new Event("change", {bubbles: true})); })()`)
}

// codeScene opens the address that "stepwell ui" opens, twice: it signs in once. A browser with a session asks first.
func (i *installation) codeScene(b, guest *tab) {
	var made struct{ Code string }
	i.call("POST", "/v1/ui/codes", nil, &made)
	link := "/ui/-/login#code=" + made.Code
	b.open(link)
	b.until("the project", `location.pathname.endsWith("/ui/default/overview") && document.querySelector(".role")?.innerText === "admin"`)
	guest.allow("401")
	guest.allow("ERR_INCOMPLETE_CHUNKED_ENCODING") // the live view ends with its session
	guest.open(link)
	guest.shows("This link has expired")
	guest.until("no code in the address", `!location.href.includes("code")`)
	guest.accessible()
	guest.look("link-over")

	i.call("POST", "/v1/ui/codes", nil, &made)
	b.open("/ui/-/login#code=" + made.Code)
	b.shows("This link opens a project with the key of whoever made it.")
	b.accessible()
	b.look("link-asks")
	b.click("Open the project")
	b.until("the project", `location.pathname.endsWith("/ui/default/overview") && document.querySelector(".role")?.innerText === "admin"`)
}

// revokeScene makes a key, signs in with it in another browser, and revokes it.
func (i *installation) revokeScene(b, guest *tab) {
	b.open("/ui/default/access")
	b.click("New key …")
	b.fill("dialog input[name=name]", "guest")
	b.accessible()
	b.look("key-make")
	b.click("Create it")
	b.shows("The key guest. It is shown only now.", "guest")
	b.accessible()
	b.look("access-keys")
	text := evaluate[string](b, `document.querySelector(".once code").innerText`)
	guest.fill("input[name=key]", text)
	guest.click("Sign in")
	guest.until("the role", `document.querySelector(".role")?.innerText === "read"`)
	guest.open("/ui/default/access")
	guest.shows("Only admins see this page")
	guest.open("/ui/default/runs")
	guest.shows("There are no runs yet")
	b.click("I have kept it")
	b.until("no key", `!document.body.innerText.includes(`+quote(text)+`)`)
	b.click("Revoke guest …")
	b.shows("This cuts off, for good", "1 session of the dashboard")
	b.accessible()
	b.look("key-revoke")
	b.click("Revoke the key")
	b.shows("revoked")
}

// signingKeyScene replaces a signing key by the three steps.
func signingKeyScene(b *tab) {
	step := func(n string) string {
		return `document.querySelectorAll(".guide li")[` + n + `]?.ariaCurrent === "step"`
	}
	b.click("Signing keys")
	b.shows("Calls are not signed")
	b.look("signing-none")
	b.click("New signing key")
	b.shows("swsk_")
	b.click("I have kept it")
	b.until("the first step", step("0"))
	old := evaluate[string](b, `document.querySelector("table td").innerText`)
	b.click("New signing key")
	b.shows("swsk_", "old: signs calls, too")
	b.until("the second step", step("1"))
	b.accessible()
	b.look("signing")
	b.click("Delete the old key …")
	b.shows("Functions that know only this key refuse all calls.")
	b.look("signing-delete")
	b.click("Delete the key")
	b.until("one key, the new one", `document.querySelectorAll("table tbody tr").length === 1 && !document.querySelector("table").innerText.includes(`+quote(old)+`)`)
}

func secretScene(b *tab) {
	b.click("Secrets")
	b.click("New secret …")
	b.fill("dialog input[name=name]", "stripe")
	b.fill("dialog textarea", "whsec_planted")
	b.click("Set it")
	b.click("Replace stripe …")
	b.shows("Replace the values of stripe")
	b.click("Close")
	b.accessible()
	b.look("access-secrets")
	if text := evaluate[string](b, `document.documentElement.outerHTML`); len(text) == 0 || evaluate[bool](b, `document.documentElement.outerHTML.includes("whsec_planted")`) {
		b.t.Error("the page has the value of a secret")
	}
	b.click("Sessions")
	b.shows("STEPWELL_API_KEY", "this browser")
	b.accessible()
	b.look("access-sessions")
}

func (i *installation) auditScene(b *tab) {
	b.click("Audit")
	b.shows("key.create", "key.revoke", "signing_key.remove", "secret.put", "guest")
	b.accessible()
	b.look("access-audit")
	b.click("key.revoke")
	b.until("only this action", `location.search === "?action=key.revoke" && document.querySelectorAll("table tbody tr").length === 1`)
	b.click("guest")
	b.until("only this key", `location.search.startsWith("?subject=key_") && document.querySelectorAll("table tbody tr").length === 2`)
	b.click("Show all")
	b.until("all entries", `document.querySelectorAll("table tbody tr").length > 5`)
}

func (i *installation) serversScene(b *tab) {
	b.open("/ui/default/servers")
	b.shows("alive", "1 server delivers, 0 deliveries under way", "No run is stranded.")
	b.accessible()
	b.look("servers")
}

// projectScene creates a project and enters it as an operator.
func (i *installation) projectScene(b *tab) {
	b.open("/ui/default/access/projects")
	b.click("New project …")
	b.fill("dialog input[name=name]", "shop")
	b.click("Create it")
	b.shows("shop")
	b.accessible()
	b.look("access-projects")
	b.open("/ui/default/runs")
	b.choose(".project select", " enter shop")
	b.shows("Enter the project shop")
	b.accessible()
	b.look("enter")
	b.click("Enter")
	b.until("the other project", `location.pathname.endsWith("/ui/shop/overview") && document.querySelector(".role").innerText === "read"`)
	var audit struct {
		Data []struct{ Actor, Action string }
	}
	i.call("GET", "/v1/audit?project=shop&action=key.create", nil, &audit)
	if len(audit.Data) != 1 || audit.Data[0].Actor != "STEPWELL_API_KEY" {
		b.t.Errorf("audit: got %+v", audit.Data)
	}
	b.press("gr")
	b.until("its runs", `location.pathname.endsWith("/ui/shop/runs")`)
	evaluate[chromedp.Void](b, `history.go(-2)`)
	b.until("the first project", `location.pathname.endsWith("/ui/default/runs")`)
	b.click("Start a run …")
	b.shows("Input of the last run")
	evaluate[chromedp.Void](b, `history.go(2)`)
	b.until("the form stays in its project", `location.pathname.endsWith("/ui/shop/runs") && !document.querySelector("dialog[open]")`)
	b.choose(".project select", " key")
	b.shows("Open another project")
	b.accessible()
	b.look("add-key")
}
