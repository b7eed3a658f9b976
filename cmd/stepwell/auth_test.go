package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

func TestServeRequiresKeyUnlessOpen(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	start := func(change func(*config)) error {
		t.Helper()
		s := newServer(t, dsn, server.RoleAPI)
		s.config.Open = false
		change(&s.config)
		err := s.start(t.Context())
		if err == nil {
			s.stop(context.Background())
		}
		return err
	}
	unchanged := func(*config) {}
	if err := start(unchanged); !errors.Is(err, server.ErrNoKey) {
		t.Errorf("without a key: got %v, want server.ErrNoKey", err)
	}
	if err := start(func(c *config) { c.APIKey = "k" }); err != nil {
		t.Errorf("with a key in the environment: %v", err)
	}
	if err := start(func(c *config) { c.Open = true }); err != nil {
		t.Errorf("with STEPWELL_OPEN: %v", err)
	}

	pool := testdb.Connect(t, dsn)
	now := time.Now()
	keys := access.NewKeys(pool, func() time.Time { return now })
	mint := func(role admin.Role, lifetime time.Duration) admin.Key {
		t.Helper()
		k := admin.Key{Project: entities.DefaultProject, Name: "k", Role: role}
		if lifetime > 0 {
			at := now.Add(lifetime)
			k.ExpiresAt = &at
		}
		minted, _, err := keys.Mint(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		return minted
	}
	mint(admin.RoleWrite, 0)
	now = now.Add(-time.Hour) // the next key has expired
	mint(admin.RoleAdmin, time.Minute)
	now = time.Now()
	admin := mint(admin.RoleAdmin, time.Hour)
	if err := start(unchanged); err != nil {
		t.Errorf("with an admin key in the database: %v", err)
	}
	if err := keys.Revoke(t.Context(), admin.Project, admin.ID); err != nil {
		t.Fatal(err)
	}
	if err := start(unchanged); !errors.Is(err, server.ErrNoKey) {
		t.Errorf("with unusable keys: got %v, want server.ErrNoKey", err)
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"127.0.0.1:8788": true, "127.9.9.9:0": true, "[::1]:1": true, "localhost:1": true,
		":8788": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "": false,
		"127.0.0.1.example.com:1": false,
	} {
		if got := isLoopback(listen); got != want {
			t.Errorf("%q: got %v", listen, got)
		}
	}
}

// TestDevRequiresKeyUnlessLoopback: without a key it serves only a loopback address, only under its own names, and
// logs that no key is required.
func TestDevRequiresKeyUnlessLoopback(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen, key string
		status      int // of a request without a key; 0 if the server does not start
		logged      string
	}{
		{"127.0.0.1:0", "", http.StatusOK, "no API key is required"},
		{"127.0.0.1:0", "0123456789abcdef", http.StatusUnauthorized, ""},
		{"0.0.0.0:0", "0123456789abcdef", http.StatusUnauthorized, ""},
		{"0.0.0.0:0", "", 0, ""},
	} {
		c := newServer(t, testdb.New(t), server.RoleAll).config
		c.Open, c.Listen, c.APIKey = false, tt.listen, tt.key
		ctx, cancel := context.WithCancel(t.Context())
		var banner, logged bytes.Buffer
		out, done := newSignalWriter(&banner, "psql"), make(chan error, 1)
		go func() { done <- devCmd{}.Run(ctx, out, c, slog.New(slog.NewTextHandler(&logged, nil))) }()
		select {
		case <-out.seen:
			_, addr, _ := strings.Cut(banner.String(), "up at http://")
			addr, _, _ = strings.Cut(addr, "\n")
			got := servertest.Request(t, http.MethodGet, "http://"+strings.Replace(addr, "[::]", "127.0.0.1", 1)+"/v1/runs", "")
			if got.StatusCode != tt.status {
				t.Errorf("%+v: got %s", tt, got.Status)
			}
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
				got := statusForHost(t, method, addr, "attacker.example")
				if tt.status == http.StatusOK && got != http.StatusForbidden {
					t.Errorf("%+v: DNS rebinding: %s: got %d", tt, method, got)
				}
			}
			if strings.Contains(banner.String(), c.DatabaseURL) {
				t.Errorf("the banner contains the database URL, which may contain a password: %s", &banner)
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
		case err := <-done:
			cancel()
			if tt.status != 0 || !errors.Is(err, server.ErrNoKey) {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		if got := strings.Contains(logged.String(), "no API key is required"); got != (tt.logged != "") {
			t.Errorf("%+v: logged %s", tt, &logged)
		}
	}
}

// statusForHost returns the status of a request without a key that has another Host header.
func statusForHost(t *testing.T, method, addr, host string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method,
		"http://"+strings.Replace(addr, "[::]", "127.0.0.1", 1)+"/v1/deployments/shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
