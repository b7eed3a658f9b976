package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/handlers/oidc/oidctest"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
)

// company is a server, and the identity provider by which people sign in to its dashboard.
type company struct {
	*oidctest.Provider

	t   *testing.T
	url string // of the server
}

const companyKey = "0123456789abcdef"

func newCompany(t *testing.T) *company {
	t.Helper()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.Listen = fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	s.config.PublicURL = "http://" + s.config.Listen
	s.config.Open, s.config.APIKey = false, companyKey
	c := &company{oidctest.New(t), t, s.config.PublicURL}
	c.Register(t, c.url+"/ui/-/provider/return")
	s.config.Provider = providerConfig{
		Issuer: c.Issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		Access:      "default:admin=sre; shop:write=developers; shop:read=everybody; missing:read=everybody",
		GroupsClaim: "groups", Scopes: []string{"profile", "email"},
	}
	mustStart(t, s)
	c.api("PUT", "/v1/projects/shop", http.StatusOK)
	return c
}

// api makes a request of an operator, and returns the answer.
func (c *company) api(method, path string, want int) (answer map[string]any) {
	c.t.Helper()
	r, _ := http.NewRequestWithContext(c.t.Context(), method, c.url+path, nil)
	r.Header.Set("Authorization", "Bearer "+companyKey)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want || len(text) > 0 && json.Unmarshal(text, &answer) != nil {
		c.t.Fatalf("%s %s: got %d %s", method, path, resp.StatusCode, text)
	}
	return answer
}

// newBrowser returns a client with cookies that follows no redirects.
func newBrowser() http.Client {
	jar, _ := cookiejar.New(nil) // never fails
	return http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// open requests a page and returns its status, its text, and where it redirects to.
func (c *company) open(b http.Client, address string) (status int, text, location string) {
	c.t.Helper()
	resp, err := b.Get(address)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(body), strings.TrimPrefix(resp.Header.Get("Location"), c.url)
}

// sentBack begins a sign-in and returns the address to which the provider sends the browser back.
func (c *company) sentBack(b http.Client, user string) *url.URL {
	c.t.Helper()
	status, text, at := c.open(b, c.url+"/ui/-/provider")
	if status != http.StatusSeeOther || !strings.HasPrefix(at, c.Issuer+"/") {
		c.t.Fatalf("got %d %s %s", status, at, text)
	}
	follow := http.Client{Jar: b.Jar}
	return c.SignIn(c.t, follow, at, user)
}

// signIn signs a user in, checks where that leads, and returns the projects of the session with the roles.
func (c *company) signIn(b http.Client, user, wantPage string) string {
	c.t.Helper()
	if _, _, page := c.open(b, c.sentBack(b, user).String()); page != wantPage {
		c.t.Errorf("%s signs in: got to %q, want %q", user, page, wantPage)
	}
	return c.projects(b)
}

func (c *company) projects(b http.Client) string {
	c.t.Helper()
	var session struct {
		Projects []struct{ Project, Role, Key string }
	}
	_, text, _ := c.open(b, c.url+"/ui/-/session")
	if err := json.Unmarshal([]byte(text), &session); err != nil {
		c.t.Fatal(err)
	}
	var all []string
	for _, p := range session.Projects {
		all = append(all, p.Project+" "+p.Role+" "+p.Key)
	}
	return strings.Join(all, ", ")
}

// reads reports whether the session may read the runs of a project.
func (c *company) reads(b http.Client, project string) bool {
	c.t.Helper()
	status, _, _ := c.open(b, c.url+"/ui/"+project+"/v1/runs")
	return status == http.StatusOK
}

const (
	failedPage   = "/ui/-/login#provider=failed"
	noAccessPage = "/ui/-/login#provider=no-access"
)

// TestPeopleSignInByTheProvider: groups decide which projects a person opens, with which role, in each session.
func TestPeopleSignInByTheProvider(t *testing.T) {
	t.Parallel()
	c := newCompany(t)
	c.Put(t, "anna", "sre", "everybody", "developers")
	c.Put(t, "token-ben", "everybody")
	c.Put(t, "eve")
	anna, ben := newBrowser(), newBrowser()
	const both = "default admin anna@example.com, shop write anna@example.com"
	if got := c.signIn(anna, "anna", "/ui/default"); got != both {
		t.Errorf("got %q, want %q", got, both)
	}
	if got := c.signIn(ben, "token-ben", "/ui/shop"); got != "shop read token-ben@example.com" {
		t.Errorf("got %q", got)
	}
	if got := c.signIn(newBrowser(), "eve", noAccessPage); got != "" {
		t.Errorf("a person without groups opens %q", got)
	}
	if !c.reads(anna, "shop") || !c.reads(anna, "default") || !c.reads(ben, "shop") || c.reads(ben, "default") {
		t.Error("the sessions do not have the rights of their groups")
	}

	// What the provider changes takes effect at the next sign-in, for open sessions too; caches live for 5 s.
	c.Put(t, "anna", "everybody")
	if got := c.signIn(newBrowser(), "anna", "/ui/shop"); got != "shop read anna@example.com" {
		t.Errorf("after the change: got %q", got)
	}
	harness.Eventually(t, "another role", func() bool { return c.projects(anna) == "shop read anna@example.com" })

	// A key that an admin revokes ends the sessions, and not what the groups allow.
	keys := c.api("GET", "/v1/keys?project=shop", 200)["data"].([]any)
	var ids []string
	for _, k := range keys {
		if k := k.(map[string]any); k["name"] == "anna@example.com" && k["person"] == c.Issuer+" anna" {
			ids = append(ids, k["id"].(string))
		}
	}
	if len(ids) != 1 {
		t.Fatalf("the person has the keys %v in shop, want one", ids)
	}
	c.api("DELETE", "/v1/keys/"+ids[0]+"?project=shop", http.StatusNoContent)
	harness.Eventually(t, "the end of the session", func() bool { return c.projects(anna) == "" })
	if got := c.signIn(anna, "anna", "/ui/shop"); got != "shop read anna@example.com" {
		t.Errorf("after the revocation: got %q", got)
	}
	if n := len(c.api("GET", "/v1/audit?project=shop&action=session.begin", 200)["data"].([]any)); n != 4 {
		t.Errorf("the audit of shop has %d sign-ins, want 4", n)
	}
}

// TestOthersAnswersSignNobodyIn: an answer of the provider is for the browser that asked, once.
func TestOthersAnswersSignNobodyIn(t *testing.T) {
	t.Parallel()
	c := newCompany(t)
	c.Put(t, "anna", "sre")
	attacker, victim := newBrowser(), newBrowser()
	back := c.sentBack(attacker, "anna")
	if got := c.opens(victim, back); got != failedPage { // it never asked
		t.Errorf("without an attempt: got to %q", got)
	}
	c.sentBack(victim, "anna")
	if got := c.opens(victim, back); got != failedPage { // it asked, and gets the answer for another one
		t.Errorf("with another attempt: got to %q", got)
	}
	if got := c.opens(attacker, back); got != "/ui/default" {
		t.Errorf("its own answer: got to %q", got)
	}
	if got := c.opens(attacker, back); got != failedPage {
		t.Errorf("the same answer again: got to %q", got)
	}
	for name, change := range map[string]func(url.Values){
		"no code":      func(q url.Values) { q.Del("code") },
		"another code": func(q url.Values) { q.Set("code", "invented") },
		"refused":      func(q url.Values) { q.Set("error", "access_denied") },
		"no state":     func(q url.Values) { q.Del("state") },
	} {
		b := newBrowser()
		back := c.sentBack(b, "anna")
		q := back.Query()
		change(q)
		back.RawQuery = q.Encode()
		if got := c.opens(b, back); got != failedPage || c.projects(b) != "" {
			t.Errorf("%s: got to %q with %q", name, got, c.projects(b))
		}
	}
}

// opens returns where the answer of the provider leads a browser.
func (c *company) opens(b http.Client, back *url.URL) string {
	c.t.Helper()
	_, _, page := c.open(b, back.String())
	return page
}

// TestServerStartsWithoutItsProvider: keys work while the provider is away, and a sign-in ends with a page that says so.
func TestServerStartsWithoutItsProvider(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.Open, s.config.APIKey, s.config.PublicURL = false, companyKey, "http://127.0.0.1:1"
	s.config.Provider = providerConfig{Issuer: "http://127.0.0.1:1", ClientID: "c", Access: "default:admin=sre"}
	mustStart(t, s)
	c := &company{t: t, url: "http://" + s.Addr()}
	c.api("GET", "/v1/whoami", http.StatusOK)
	if _, _, page := c.open(newBrowser(), c.url+"/ui/-/provider"); page != failedPage {
		t.Errorf("got to %q", page)
	}
	if _, session, _ := c.open(newBrowser(), c.url+"/ui/-/session"); !strings.Contains(session, `"provider":"127.0.0.1:1"`) {
		t.Errorf("got %s", session)
	}
}

func TestProviderSettings(t *testing.T) {
	t.Parallel()
	const issuer, client, access, public = "STEPWELL_OIDC_ISSUER=https://id.test", "STEPWELL_OIDC_CLIENT_ID=c",
		"STEPWELL_OIDC_ACCESS=default:admin=sre", "STEPWELL_PUBLIC_URL=https://s.test"
	if c, err := readConfig([]string{issuer, client, access, public}); err != nil {
		t.Error(err)
	} else if p, err := c.newProvider(); err != nil || p.Host() != "id.test" {
		t.Errorf("got %v, %v", p, err)
	}
	for want, environ := range map[string][]string{
		"STEPWELL_OIDC_ISSUER is not set":               {client},
		"requires STEPWELL_PUBLIC_URL":                  {issuer, client, access},
		"requires STEPWELL_OIDC_CLIENT_ID":              {issuer, access, public},
		"STEPWELL_OIDC_ACCESS: no group has access":     {issuer, client, public},
		"STEPWELL_OPEN and STEPWELL_OIDC_ISSUER":        {issuer, client, access, public, "STEPWELL_OPEN=true"},
		"STEPWELL_OIDC_ISSUER: issuer":                  {"STEPWELL_OIDC_ISSUER=id.test", client, access, public},
		`the role "boss" is not one of`:                 {issuer, client, public, "STEPWELL_OIDC_ACCESS=default:boss=sre"},
		`"default=sre": want PROJECT:ROLE=GROUP`:        {issuer, client, public, "STEPWELL_OIDC_ACCESS=default=sre"},
		`the role "worker" is not one of [admin write `: {issuer, client, public, "STEPWELL_OIDC_ACCESS=default:worker=x"},
	} {
		if _, err := readConfig(environ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
