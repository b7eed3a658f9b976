package oidc

import (
	"errors"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/oidc/oidctest"
)

// TestGroupsGiveTheRoleWithTheMostRights: whatever their order, for names as directories have them, too.
func TestGroupsGiveTheRoleWithTheMostRights(t *testing.T) {
	t.Parallel()
	a, err := ParseAccess(" shop:metadata = all ; shop:admin=CN=sre,OU=x;shop:read=all; eu:shop:write=devs;;")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		groups []string
		want   map[entities.Project]admin.Role
	}{
		{nil, map[entities.Project]admin.Role{}},
		{[]string{"All", "CN=sre"}, map[entities.Project]admin.Role{}},
		{[]string{"all"}, map[entities.Project]admin.Role{"shop": admin.RoleRead}},
		{[]string{"all", "CN=sre,OU=x"}, map[entities.Project]admin.Role{"shop": admin.RoleAdmin}},
		{[]string{"devs", "all"}, map[entities.Project]admin.Role{"shop": admin.RoleRead, "eu:shop": admin.RoleWrite}},
	} {
		if got := a.of(func(g string) bool { return slices.Contains(tt.groups, g) }); !maps.Equal(got, tt.want) {
			t.Errorf("%q: got %v, want %v", tt.groups, got, tt.want)
		}
	}
}

// TestAnswersAreForTheirAttempt: a code is worth nothing without the secrets of the browser that asked.
func TestAnswersAreForTheirAttempt(t *testing.T) {
	t.Parallel()
	const redirect = "http://127.0.0.1:1/return"
	issuer := oidctest.New(t)
	issuer.Register(t, redirect)
	issuer.Put(t, "anna", "sre")
	p, err := New(Config{
		Issuer: issuer.Issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, GroupsClaim: "groups",
		Scopes: []string{"email"}, Access: Access{{"sre", "default", admin.RoleAdmin}}, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	asked := access.NewAttempt()
	end := func(with access.Attempt) (access.Person, error) {
		address, err := p.Begin(t.Context(), redirect, asked)
		if err != nil {
			t.Fatal(err)
		}
		jar, _ := cookiejar.New(nil) // never fails
		code := issuer.SignIn(t, http.Client{Jar: jar}, address, "anna").Query().Get("code")
		return p.End(t.Context(), redirect, code, with)
	}
	person, err := end(asked)
	if err != nil || person.Subject != issuer.Issuer+" anna" || person.Name != "anna@example.com" ||
		person.Grants["default"] != admin.RoleAdmin {
		t.Errorf("got %+v, %v", person, err)
	}
	other := asked
	other.Nonce = access.NewAttempt().Nonce
	if _, err := end(other); !errors.Is(err, errNonce) {
		t.Errorf("another nonce: got %v", err)
	}
	other = asked
	other.Verifier = access.NewAttempt().Verifier
	if _, err := end(other); err == nil {
		t.Error("another verifier was accepted")
	}
}
