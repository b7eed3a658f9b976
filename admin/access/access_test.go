package access

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

var t0 = time.Date(2026, 11, 21, 1, 41, 43, 197_000_000, time.UTC)

// clock is a clock that tests advance.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newKeys(t *testing.T) (*Keys, *clock) {
	t.Helper()
	c := &clock{at: t0}
	return NewKeys(testdb.Pool(t), c.now), c
}

func (s *Keys) mint(t *testing.T) (admin.Key, string) {
	t.Helper()
	k := admin.Key{Project: entities.DefaultProject, Name: "k", Role: admin.RoleRead}
	made, text, err := s.Mint(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

// audit returns the recorded actions of a project, oldest first.
func audit(t *testing.T, pool *pgxpool.Pool, project entities.Project) []string {
	t.Helper()
	list, _, err := admin.ListActions(t.Context(), pool, project, admin.ActionFilter{}, pg.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, a := range list {
		words = append(words, string(a.Actor)+" "+string(a.Action)+" "+a.Subject)
	}
	return words
}

// count returns the number that a query selects.
func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLookupNeedsTheExactText(t *testing.T) {
	t.Parallel()
	s, _ := newKeys(t)
	made, text := s.mint(t)
	if got, err := s.Lookup(t.Context(), text); err != nil || got.ID != made.ID || got.Role != admin.RoleRead {
		t.Errorf("got %+v, %v, want %+v", got, err, made)
	}
	_, other := s.mint(t)
	for name, wrong := range map[string]string{
		"nothing": "", "ID": string(made.ID), "prefix": made.Prefix, "cut": text[:len(text)-1], "longer": text + "0",
		"other case": strings.ToUpper(text), "one digit": flip(text, 10), "checksum": flip(text, len(text)-1),
		"mixed": text[:20] + other[20:], "well-formed": newText(""),
	} {
		if _, err := s.Lookup(t.Context(), wrong); !errors.Is(err, admin.ErrKeyNotFound) {
			t.Errorf("%s: got %v, want ErrKeyNotFound", name, err)
		}
	}
	if n := count(t, s.pool, `SELECT count(*) FROM api_keys k WHERE k::text LIKE '%' || $1 || '%'`, text[10:]); n != 0 {
		t.Error("the key's text is in the database")
	}
}

// flip returns the text with one character changed.
func flip(text string, at int) string {
	c := byte('0')
	if text[at] == c {
		c = '1'
	}
	return text[:at] + string(c) + text[at+1:]
}

func TestNewTextIsWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		text := newText("")
		cell, ok := parse(text)
		if len(text) != 52 || !ok || cell != "" || seen[text] || !strings.HasPrefix(text, shown(text)) {
			t.Fatalf("%q is not a well-formed, unique key", text)
		}
		seen[text] = true
	}
}

func TestMintRejectsInvalidKeys(t *testing.T) {
	t.Parallel()
	s, _ := newKeys(t)
	past := t0
	for name, tt := range map[string]struct {
		key  admin.Key
		want error
	}{
		"no name":    {admin.Key{Project: entities.DefaultProject, Role: admin.RoleRead}, entities.ErrInvalid},
		"no role":    {admin.Key{Project: entities.DefaultProject, Name: "k"}, entities.ErrInvalid},
		"bad role":   {admin.Key{Project: entities.DefaultProject, Name: "k", Role: "owner"}, entities.ErrInvalid},
		"no project": {admin.Key{Project: "shop", Name: "k", Role: admin.RoleRead}, admin.ErrProjectNotFound},
		"over": {
			admin.Key{Project: entities.DefaultProject, Name: "k", Role: admin.RoleRead, ExpiresAt: &past},
			entities.ErrInvalid,
		},
	} {
		if _, text, err := s.Mint(t.Context(), tt.key); !errors.Is(err, tt.want) || text != "" {
			t.Errorf("%s: got %q, %v, want %v", name, text, err, tt.want)
		}
	}
	if n := count(t, s.pool, `SELECT (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM audit)`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// TestRevocationTakesEffectOnAllServersWithinCacheTime runs two servers on one database.
func TestRevocationTakesEffectOnAllServersWithinCacheTime(t *testing.T) {
	t.Parallel()
	here, c := newKeys(t)
	there := NewKeys(here.pool, c.now)
	made, text := here.mint(t)
	see := func(s *Keys) bool {
		t.Helper()
		k, err := s.Lookup(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return k.Revoked()
	}
	if see(here) || see(there) {
		t.Fatal("the key is revoked already")
	}
	if err := here.Revoke(t.Context(), made.Project, made.ID); err != nil {
		t.Fatal(err)
	}
	c.advance(CacheTime - time.Nanosecond)
	if see(there) {
		t.Error("the other server did not use its cache")
	}
	c.advance(time.Nanosecond)
	if !see(here) || !see(there) {
		t.Errorf("the key is still accepted after %s", CacheTime)
	}
	c.advance(-time.Hour)
	if !see(there) {
		t.Error("setting the clock back revived the key")
	}
}

func TestRevokeIsIdempotentAndPerProject(t *testing.T) {
	t.Parallel()
	s, c := newKeys(t)
	made, _ := s.mint(t)
	other, _ := s.mint(t)
	for range 2 { // the second call changes nothing
		if err := s.Revoke(t.Context(), made.Project, made.ID); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Minute)
	}
	for id, want := range map[admin.KeyID]error{other.ID: admin.ErrKeyNotFound, "key_none": admin.ErrKeyNotFound} {
		if err := s.Revoke(t.Context(), "shop", id); !errors.Is(err, want) {
			t.Errorf("another project: got %v, want %v", err, want)
		}
	}
	if err := s.Revoke(t.Context(), "default", "a b"); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	got, err := admin.KeyByID(t.Context(), s.pool, made.Project, made.ID)
	if err != nil || got.RevokedAt == nil || !got.RevokedAt.Equal(t0) {
		t.Errorf("got %+v, %v, want it revoked at %s", got, err, t0)
	}
	want := []string{
		"server key.create " + string(made.ID), "server key.create " + string(other.ID), "server key.revoke " + string(made.ID),
	}
	if got := audit(t, s.pool, entities.DefaultProject); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("audit: got %q, want %q", got, want)
	}
}

// TestConcurrentRevocationsWriteOneAuditEntry revokes one key from many goroutines (I4).
func TestConcurrentRevocationsWriteOneAuditEntry(t *testing.T) {
	t.Parallel()
	s, _ := newKeys(t)
	made, _ := s.mint(t)
	var goroutines sync.WaitGroup
	for range 16 {
		goroutines.Go(func() {
			if err := s.Revoke(t.Context(), made.Project, made.ID); err != nil {
				t.Error(err)
			}
		})
	}
	goroutines.Wait()
	if got := audit(t, s.pool, entities.DefaultProject); len(got) != 2 {
		t.Errorf("got %q, want one revocation", got)
	}
}

func TestCacheOfUnknownTextsExpiresAndIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache()
	for i := range 10 * maxUnknown {
		c.unknown.Add(hash{byte(i), byte(i >> 8)}, t0)
	}
	if n := c.unknown.Len(); n > maxUnknown {
		t.Errorf("%d are cached", n)
	}
	c.unknown.Add(hash{1}, t0)
	if _, cached, err := c.find(hash{1}, t0); !cached || !errors.Is(err, admin.ErrKeyNotFound) {
		t.Error("an unknown text is not cached")
	}
	if _, cached, _ := c.find(hash{1}, t0.Add(unknownTime)); cached {
		t.Error("an unknown text is cached for too long")
	}
}

func TestLastUseIsWrittenInBatches(t *testing.T) {
	t.Parallel()
	s, c := newKeys(t)
	a, _ := s.mint(t)
	b, _ := s.mint(t)
	usedAt := func(id admin.KeyID) *time.Time {
		t.Helper()
		k, err := admin.KeyByID(t.Context(), s.pool, entities.DefaultProject, id)
		if err != nil {
			t.Fatal(err)
		}
		return k.LastUsedAt
	}
	s.Used(a.ID)
	if usedAt(a.ID) != nil {
		t.Error("the time of use was written with the request")
	}
	c.advance(time.Second)
	s.Used(a.ID)
	if err := s.WriteUsed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := usedAt(a.ID); at == nil || !at.Equal(t0.Add(time.Second)) || usedAt(b.ID) != nil {
		t.Errorf("got %v and %v", at, usedAt(b.ID))
	}
	c.advance(-time.Hour) // as on a server whose clock is behind
	s.Used(a.ID)
	if err := s.WriteUsed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := usedAt(a.ID); !at.Equal(t0.Add(time.Second)) {
		t.Errorf("got %v, which is earlier", at)
	}
}

// TestLastUseIsWrittenOnShutdown by several servers at once, without deadlocks.
func TestLastUseIsWrittenOnShutdown(t *testing.T) {
	t.Parallel()
	first, c := newKeys(t)
	var running sync.WaitGroup
	for range 8 {
		s := NewKeys(first.pool, c.now)
		for range 8 {
			k, _ := s.mint(t)
			s.Used(k.ID)
		}
		ctx, stop := context.WithCancel(t.Context())
		running.Go(func() { s.Run(ctx, slog.New(slog.DiscardHandler)) })
		stop()
	}
	running.Wait()
	if n := count(t, first.pool, `SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL`); n != 64 {
		t.Errorf("got %d keys with a time of use, want 64", n)
	}
}

func TestConcurrentPutsCreateOneProject(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	s := NewProjects(pool, func() time.Time { return t0 })
	var goroutines sync.WaitGroup
	for range 8 {
		goroutines.Go(func() {
			if p, err := s.Put(t.Context(), "shop", nil); err != nil || p.Name != "shop" || !p.CreatedAt.Equal(t0) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
	goroutines.Wait()
	if _, err := s.Put(t.Context(), "a b", nil); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	all, err := admin.ListProjects(t.Context(), pool, t0)
	if err != nil || len(all) != 2 || all[0].Name != "default" || all[1].Name != "shop" {
		t.Errorf("got %v, %v", all, err)
	}
	if got := audit(t, pool, "shop"); len(got) != 1 || got[0] != "server project.create shop" {
		t.Errorf("audit: got %q", got)
	}
}

func oneStart(l admin.Limits) admin.Limits {
	one := int64(1)
	l.DailyStarts = &one
	return l
}

// TestConcurrentLimitsAreAuditedOnce sets the same limit from many goroutines (I4).
func TestConcurrentLimitsAreAuditedOnce(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	s := NewProjects(pool, func() time.Time { return t0 })
	var goroutines sync.WaitGroup
	for range 16 {
		goroutines.Go(func() {
			if p, err := s.Put(t.Context(), "shop", oneStart); err != nil || p.DailyStarts == nil || *p.DailyStarts != 1 {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
	goroutines.Wait()
	want := []string{"server project.create shop", "server project.limit shop"}
	if got := audit(t, pool, "shop"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("audit: got %q, want %q", got, want)
	}
}

// TestActionsRollBackWithoutAuditEntry makes the last write of each action fail.
func TestActionsRollBackWithoutAuditEntry(t *testing.T) {
	t.Parallel()
	s, c := newKeys(t)
	made, _ := s.mint(t)
	if _, err := s.pool.Exec(t.Context(), `ALTER TABLE audit ADD CONSTRAINT silent CHECK (false) NOT VALID`); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"mint": func() error {
			_, _, err := s.Mint(t.Context(), admin.Key{Project: "default", Name: "k", Role: admin.RoleRead})
			return err
		},
		"revoke":  func() error { return s.Revoke(t.Context(), made.Project, made.ID) },
		"project": func() error { _, err := NewProjects(s.pool, c.now).Put(t.Context(), "shop", nil); return err },
		"limits":  func() error { _, err := NewProjects(s.pool, c.now).Put(t.Context(), "default", oneStart); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("%s: got %v, want the constraint's error", name, err)
		}
	}
	n := count(t, s.pool, `
		SELECT (SELECT count(*) FROM api_keys WHERE revoked_at IS NULL) + (SELECT count(*) FROM projects WHERE daily_starts IS NULL)`)
	if n != 2 {
		t.Errorf("got %d rows, want only the key and the default project", n)
	}
}

// TestKeysNameTheirCell looks keys of two cells, and one from before there were cells, up in each. A key whose project
// has moved is in the database of a cell that it does not name.
func TestKeysNameTheirCell(t *testing.T) {
	t.Parallel()
	s, _ := newKeys(t)
	_, before := s.mint(t)
	eu, us := NewKeys(s.pool, s.now).InCell("eu1"), NewKeys(testdb.Pool(t), s.now).InCell("us1")
	made, text, err := eu.Mint(t.Context(), admin.Key{Project: "default", Name: "k", Role: admin.RoleRead})
	if err != nil || !strings.HasPrefix(text, "sw_eu1_") || made.Prefix != text[:len("sw_eu1_")+shownDigits] {
		t.Fatalf("the key %.14s… has the prefix %q, %v", text, made.Prefix, err)
	}
	if got, err := eu.Lookup(t.Context(), text); err != nil || got.ID != made.ID {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := NewKeys(s.pool, s.now).InCell("eu2").Lookup(t.Context(), text); err != nil || got.ID != made.ID {
		t.Errorf("where its project has moved: got %+v, %v", got, err)
	}
	for name, there := range map[entities.Cell]*Keys{"us1": us, "": NewKeys(us.pool, s.now)} {
		_, err := there.Lookup(t.Context(), text)
		wrong, ok := errors.AsType[*entities.WrongCellError](err)
		if !ok || wrong.In != "eu1" || wrong.Here != name {
			t.Errorf("in cell %q: got %v", name, err)
		}
	}
	if _, err := eu.Lookup(t.Context(), before); err != nil {
		t.Errorf("a key without a cell: %v", err)
	}
	for _, wrong := range []string{flip(text, len(text)-1), strings.Replace(text, "eu1", "eu2", 1), "sw_eu1_" + before[3:]} {
		if _, err := eu.Lookup(t.Context(), wrong); !errors.Is(err, admin.ErrKeyNotFound) {
			t.Errorf("%.14s…: got %v, want ErrKeyNotFound", wrong, err)
		}
	}
}
