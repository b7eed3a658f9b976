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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestServeRefusesToStartOpen unless someone has a key to it, or it is told to.
func TestServeRefusesToStartOpen(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	start := func(change func(*config)) error {
		t.Helper()
		s := newServer(t, dsn, roleAPI)
		s.config.Open = false
		change(&s.config)
		err := s.start(t.Context())
		if err == nil {
			s.stop(context.Background())
		}
		return err
	}
	asIs := func(*config) {}
	if err := start(asIs); !errors.Is(err, errNoKey) {
		t.Errorf("without a key: got %v, want errNoKey", err)
	}
	if err := start(func(c *config) { c.APIKey = "k" }); err != nil {
		t.Errorf("with a key in the environment: %v", err)
	}
	if err := start(func(c *config) { c.Open = true }); err != nil {
		t.Errorf("told to: %v", err)
	}

	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	now := time.Now()
	keys := access.NewKeys(pool, func() time.Time { return now })
	mint := func(role admin.Role, life time.Duration) admin.Key {
		t.Helper()
		k := admin.Key{Project: entities.DefaultProject, Name: "k", Role: role}
		if life > 0 {
			at := now.Add(life)
			k.ExpiresAt = &at
		}
		made, _, err := keys.Mint(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	mint(admin.RoleWrite, 0)
	now = now.Add(-time.Hour) // so that the next one has expired by now
	mint(admin.RoleAdmin, time.Minute)
	now = time.Now()
	admin := mint(admin.RoleAdmin, time.Hour)
	if err := start(asIs); err != nil {
		t.Errorf("with an admin key in the database: %v", err)
	}
	if err := keys.Revoke(t.Context(), admin.Project, admin.ID); err != nil {
		t.Fatal(err)
	}
	if err := start(asIs); !errors.Is(err, errNoKey) {
		t.Errorf("with keys that are of no use: got %v, want errNoKey", err)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"127.0.0.1:8788": true, "127.9.9.9:0": true, "[::1]:1": true, "localhost:1": true,
		":8788": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "": false,
		"127.0.0.1.example.com:1": false,
	} {
		if got := loopback(listen); got != want {
			t.Errorf("%q: got %v", listen, got)
		}
	}
}

// TestDevAsksForKeysWhereOthersCanConnect, and says so where it does not.
func TestDevAsksForKeysWhereOthersCanConnect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen, key string
		status      int // of a request without a key; 0 if it does not start
		logged      string
	}{
		{"127.0.0.1:0", "", http.StatusOK, "no API key is asked for"},
		{"127.0.0.1:0", "k", http.StatusUnauthorized, ""},
		{"0.0.0.0:0", "k", http.StatusUnauthorized, ""},
		{"0.0.0.0:0", "", 0, ""},
	} {
		c := newServer(t, testdb.New(t), roleAll).config
		c.Open, c.Listen, c.APIKey = false, tt.listen, tt.key
		ctx, cancel := context.WithCancel(t.Context())
		var banner, logged bytes.Buffer
		out, done := newSignalling(&banner, "psql"), make(chan error, 1)
		go func() { done <- devCmd{}.Run(ctx, out, c, slog.New(slog.NewTextHandler(&logged, nil))) }()
		select {
		case <-out.seen:
			_, addr, _ := strings.Cut(banner.String(), "up at http://")
			addr, _, _ = strings.Cut(addr, "\n")
			got := request(t, http.MethodGet, "http://"+strings.Replace(addr, "[::]", "127.0.0.1", 1)+"/v1/runs", "")
			if got.StatusCode != tt.status {
				t.Errorf("%+v: got %s", tt, got.Status)
			}
			if got := named(t, addr, "attacker.example"); tt.status == http.StatusOK && got != http.StatusForbidden {
				t.Errorf("%+v: a page whose name leads here got %d", tt, got)
			}
			if strings.Contains(banner.String(), c.DatabaseURL) {
				t.Errorf("the banner has the URL of the database, in which there may be a password: %s", &banner)
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
		case err := <-done:
			cancel()
			if tt.status != 0 || !errors.Is(err, errNoKey) {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		if got := strings.Contains(logged.String(), "no API key is asked for"); got != (tt.logged != "") {
			t.Errorf("%+v: logged %s", tt, &logged)
		}
	}
}

// named is the status of a request without a key that calls the server by a name.
func named(t *testing.T, addr, name string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+strings.Replace(addr, "[::]", "127.0.0.1", 1)+"/v1/runs", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = name
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
