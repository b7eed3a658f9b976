package access

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
)

// TestClientsBecomeInvalid: keys by revocation and expiry, sessions by their end or that of their key, and the projects
// of a session apart.
func TestClientsBecomeInvalid(t *testing.T) {
	t.Parallel()
	keys, c := newKeys(t)
	if _, err := NewProjects(keys.pool, c.now).Put(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	sessions := NewSessions(keys.pool, "secret", c.now)
	enter := func(cookie string, with Opened) string {
		t.Helper()
		cookie, err := sessions.Enter(t.Context(), cookie, with)
		if err != nil {
			t.Fatal(err)
		}
		return cookie
	}
	kept, _ := keys.mint(t)
	revoked, _ := keys.mint(t)
	soon := t0.Add(time.Minute)
	expires, _, err := keys.Mint(t.Context(), admin.Key{Project: "default", Name: "k", Role: admin.RoleRead, ExpiresAt: &soon})
	if err != nil {
		t.Fatal(err)
	}
	both := enter(enter("", Opened{"default", &revoked}), Opened{"shop", nil})
	ended := enter("", Opened{"default", &kept})
	of := func(cookie string) admin.SessionID { return sessionID(cookie) }
	clients := []admin.Client{
		{Key: kept.ID}, {Session: of(both), Project: "shop"}, // these stay
		{Key: revoked.ID}, {Key: expires.ID}, {Session: of(both), Project: "default"}, {Session: of(ended), Project: "default"},
		{Session: of(ended), Project: "shop"}, {Session: of("none"), Project: "shop"}, {Key: "key_none"}, // these never were
	}
	want := func(valid ...int) {
		t.Helper()
		wanted := map[admin.Client]bool{}
		for _, i := range valid {
			wanted[clients[i]] = true
		}
		got, err := keys.Valid(t.Context(), clients)
		if diff := cmp.Diff(wanted, got); err != nil || diff != "" {
			t.Errorf("valid (-want +got):\n%s%v", diff, err)
		}
	}
	want(0, 1, 2, 3, 4, 5)
	c.advance(time.Minute)
	if err := keys.Revoke(t.Context(), "default", revoked.ID); err != nil {
		t.Fatal(err)
	}
	if err := sessions.End(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	want(0, 1)
	c.advance(maxIdle)
	want(0)
}
