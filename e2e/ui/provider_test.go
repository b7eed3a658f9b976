package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/handlers/oidc/oidctest"
)

// TestSignInByTheProvider signs people in on the pages of an identity provider, which are another site.
func TestSignInByTheProvider(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	provider := oidctest.New(t)
	i := newInstallation(t, "/a/b", "STEPWELL_OIDC_ISSUER="+provider.Issuer, "STEPWELL_OIDC_ACCESS=default:read=support",
		"STEPWELL_OIDC_CLIENT_ID="+oidctest.ClientID, "STEPWELL_OIDC_CLIENT_SECRET="+oidctest.ClientSecret,
		"STEPWELL_OIDC_SCOPES=profile,email")
	provider.Register(t, i.web+"/ui/-/provider/return")
	provider.Put(t, "anna", "support")
	provider.Put(t, "eve")
	anna, eve := newTab(t, i.web), newTab(t, i.web)
	enter := func(b *tab, name string) {
		b.allow("401")
		b.allow(provider.Issuer) // is another origin, and has no icon
		b.open("/ui/default/runs")
		b.shows("Sign in with localhost:")
		b.accessible()
		b.until("the provider's page", `document.querySelector('a[href$="/-/provider"]')?.click() ?? location.pathname === "/login/username"`)
		b.fill("#username", name)
		b.fill("#password", oidctest.Password)
		b.click("Login")
	}
	enter(anna, "anna")
	anna.until("the project", `document.querySelector(".role")?.innerText === "read"`)
	enter(eve, "eve")
	eve.shows("None of your groups opens a project here.", "Sign in with localhost:")
	eve.accessible()
	eve.look("no-access")

	anna.open("/ui/default/runs")
	anna.shows("There are no runs yet")

	admin := newTab(t, i.web)
	i.enter(admin, "admin")
	admin.open("/ui/default/access")
	admin.shows("anna@example.com", "a person’s")
}
