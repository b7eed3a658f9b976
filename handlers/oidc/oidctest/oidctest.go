// Package oidctest provides tests with a real identity provider, a certified implementation of OpenID Connect with
// users in memory. It is built from the module in testdata/provider and stays in Go's build cache.
//
// Only tests may import it.
package oidctest

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/internal/gotool"
)

// The credentials with which a server is registered at the provider, and the password of all users.
const (
	ClientID     = "stepwell"
	ClientSecret = "secret"
	Password     = "verysecure"
)

// Provider is a running provider.
type Provider struct {
	// Issuer is its URL.
	Issuer string

	in  io.Writer
	out *bufio.Scanner
}

// program builds the provider and returns its path.
var program = gotool.Program("github.com/stepwell-dev/stepwell/handlers/oidc/oidctest", "provider")

// New starts a provider, and stops it at the end of the test. With -short it skips the test, because building the
// provider takes long the first time.
func New(t testing.TB) *Provider {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an identity provider")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path) //nolint:gosec // built above
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends it
		_ = cmd.Wait()
	})
	p := &Provider{in: in, out: bufio.NewScanner(out)}
	p.Issuer = p.line(t)
	return p
}

// line returns the next line of the provider's output.
func (p *Provider) line(t testing.TB) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatal("the identity provider has ended")
	}
	return p.out.Text()
}

// Put makes a user, or changes the groups of one. The provider tells the groups in its user info; for users whose name
// begins with token- in the ID token as well.
func (p *Provider) Put(t testing.TB, user string, groups ...string) {
	t.Helper()
	p.ask(t, map[string]any{"user": user, "groups": groups})
}

// Register registers the server to whose address the provider sends browsers back. It must come before all sign-ins.
func (p *Provider) Register(t testing.TB, redirect string) {
	t.Helper()
	p.ask(t, map[string]any{"redirect": redirect})
}

func (p *Provider) ask(t testing.TB, change map[string]any) {
	t.Helper()
	line, _ := json.Marshal(change) // texts
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	p.line(t)
}

var requestID = regexp.MustCompile(`name="id" value="([^"]*)"`)

// SignIn follows the address of a sign-in to the provider, fills in its form, and returns the address to which it sends
// the browser back, which is not followed.
func (p *Provider) SignIn(t testing.TB, browser http.Client, address, user string) (back *url.URL) {
	t.Helper()
	page := p.get(t, &browser, address)
	body, err := io.ReadAll(page.Body)
	id := requestID.FindSubmatch(body)
	if err != nil || id == nil {
		t.Fatalf("%s is no page of the provider: %d %v %s", address, page.StatusCode, err, body)
	}
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), p.Issuer) {
			return nil
		}
		back = r.URL
		return http.ErrUseLastResponse
	}
	answer, err := browser.PostForm(p.Issuer+"/login/username", url.Values{
		"id": {string(id[1])}, "username": {user}, "password": {Password},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if back == nil {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("the provider does not send %s back: %d %s", user, answer.StatusCode, text)
	}
	return back
}

// get returns an answer, whose body is closed at the end of the test.
func (p *Provider) get(t testing.TB, browser *http.Client, address string) *http.Response {
	t.Helper()
	answer, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}
