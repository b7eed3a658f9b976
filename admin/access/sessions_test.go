package access

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// newSessions returns sessions, and for each project a key of it.
func newSessions(t *testing.T, projects ...entities.Project) (s *Sessions, keys []Opened) {
	t.Helper()
	pool := testdb.Pool(t)
	now := func() time.Time { return t0 }
	for _, project := range projects {
		if _, err := NewProjects(pool, now).Put(t.Context(), project, nil); err != nil {
			t.Fatal(err)
		}
		k, _, err := NewKeys(pool, now).Mint(t.Context(), admin.Key{Project: project, Name: "k", Role: admin.RoleRead})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, Opened{Project: project, Key: &k})
	}
	return NewSessions(pool, "", now), keys
}

func (s *Sessions) enter(t *testing.T, cookie string, with Opened) string {
	t.Helper()
	cookie, err := s.Enter(t.Context(), cookie, with)
	if err != nil {
		t.Error(err)
	}
	return cookie
}

// projects returns what a session has opened, according to the database.
func (s *Sessions) projects(t *testing.T, cookie string) (list []entities.Project) {
	t.Helper()
	opened, err := NewSessions(s.pool, s.environment, s.now).Opened(t.Context(), cookie)
	if err != nil {
		t.Error(err)
	}
	for _, o := range opened {
		list = append(list, o.Project)
	}
	return list
}

// TestSignInDoesNotReopenWhatEnds signs in to a second project while an admin ends the session for the first one, and
// while the session signs out, or in, in another tab: the sign-in waits for them.
func TestSignInDoesNotReopenWhatEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*pgx.Batch, admin.SessionID){
		"an admin ends it": func(b *pgx.Batch, id admin.SessionID) { closeProject(b, id, "shop") },
		"signed out":       deleteSession,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, keys := newSessions(t, "shop", "office")
			cookie := s.enter(t, "", keys[0])
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var b pgx.Batch
			end(&b, s.ID(cookie))
			if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
				t.Fatal(err)
			}
			var fresh string
			var entered sync.WaitGroup
			entered.Go(func() { fresh = s.enter(t, cookie, keys[1]) })
			for deadline := time.Now().Add(time.Minute); count(t, s.pool, `
				SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0; {
				if time.Now().After(deadline) {
					t.Fatal("the sign-in does not wait")
				}
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			entered.Wait()
			if got := s.projects(t, fresh); len(got) != 1 || got[0] != "office" {
				t.Errorf("got %v, want only the project of the sign-in", got)
			}
		})
	}
}

// TestACodeIsRedeemedOnce redeems a code many times at once.
func TestACodeIsRedeemedOnce(t *testing.T) {
	t.Parallel()
	s, keys := newSessions(t, "shop")
	code, err := s.Code(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	var redeemed atomic.Int64
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			switch opened, err := s.Redeem(t.Context(), code); {
			case err == nil && opened.Key.ID == keys[0].Key.ID:
				redeemed.Add(1)
			case !errors.Is(err, admin.ErrSessionNotFound):
				t.Errorf("got %+v, %v", opened, err)
			}
		})
	}
	if racers.Wait(); redeemed.Load() != 1 {
		t.Errorf("redeemed %d times, want once", redeemed.Load())
	}
}

// TestCodesNameTheirCell: a code opens a project in the cell that has made it.
func TestCodesNameTheirCell(t *testing.T) {
	t.Parallel()
	s, keys := newSessions(t, "shop")
	before, err := s.Code(t.Context(), keys[0])
	check.NoError(t, err)
	s.InCell("eu1")
	code, err := s.Code(t.Context(), keys[0])
	check.NoError(t, err)
	s.InCell("us1")
	_, err = s.Redeem(t.Context(), code)
	if wrong, ok := errors.AsType[*entities.WrongCellError](err); !ok || wrong.In != "eu1" || wrong.Here != "us1" {
		t.Errorf("in another cell: got %v", err)
	}
	s.InCell("eu1")
	for _, c := range []string{code, before} {
		if _, err := s.Redeem(t.Context(), c); err != nil {
			t.Errorf("%.8s…: %v", c, err)
		}
	}
}

// TestInventedCookiesEvictNoSession: requests with invented cookies cost those with a session nothing.
func TestInventedCookiesEvictNoSession(t *testing.T) {
	t.Parallel()
	s, keys := newSessions(t, "shop")
	s.known, s.unknown = newLRU[admin.SessionID, sessionState](1), newLRU[admin.SessionID, sessionState](1)
	cookie := s.enter(t, "", keys[0])
	queries := func(cookies ...string) int64 {
		before := s.pool.Stat().AcquireCount()
		for _, c := range cookies {
			if _, err := s.Opened(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
		return s.pool.Stat().AcquireCount() - before
	}
	invented := randomText()
	if got := queries(cookie); got == 0 {
		t.Error("a session was known before it was read")
	}
	if got := queries(invented, randomText(), randomText()); got != 3 {
		t.Errorf("three invented cookies: %d queries, want 3", got)
	}
	if got := queries(cookie, "short", cookie+"long"); got != 0 {
		t.Errorf("a session that was just read, and texts that are no cookies: %d queries, want none", got)
	}
}

// TestTheAgeOfASession signs in again with a session of 24 days: with the key of another project, which does not make
// the first project last longer, and with another key of the same project, of which the session then is no older.
func TestTheAgeOfASession(t *testing.T) {
	t.Parallel()
	for another, want := range map[int]int{1: 0, 0: 1} {
		s, keys := newSessions(t, "shop", "office")
		now := t0
		s.now = func() time.Time { return now }
		cookie, days := s.enter(t, "", keys[0]), 0
		use := func(until int) (opened int) {
			for ; days <= until; days += 6 {
				now = t0.Add(time.Duration(days)*24*time.Hour + time.Second)
				opened = len(s.projects(t, cookie))
			}
			return opened
		}
		if use(24) != 1 {
			t.Fatal("a session that is used has ended")
		}
		cookie = s.enter(t, cookie, keys[another])
		if got := use(30); got != want {
			t.Errorf("project %d, after 30 days: %d projects are open, want %d", another, got, want)
		}
	}
}

// TestSignInsCountForTheirProject: a project that has all connections that it can get keeps no other one from signing in.
func TestSignInsCountForTheirProject(t *testing.T) {
	t.Parallel()
	s, keys := newSessions(t, "busy", "other")
	config := s.pool.Config()
	config.MaxConns = 8
	pg.NewConnections(time.Now).Install(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s.pool = pool
	for range 5 { // of the six that projects can have
		conn, err := pool.Acquire(share.For(t.Context(), "busy"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Enter(short, "", keys[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the project got one more connection: %v", err)
	}
	s.enter(t, "", keys[1])
}
