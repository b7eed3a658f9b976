package access

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestFloodOfUnknownKeysLeavesConnections looks up many well-formed texts that are no keys.
func TestFloodOfUnknownKeysLeavesConnections(t *testing.T) {
	t.Parallel()
	const size = maxLookups + 3
	dsn := testdb.New(t)
	open := func(conns int32) *pgxpool.Pool {
		t.Helper()
		return testdb.Connect(t, dsn, func(c *pgxpool.Config) { c.MaxConns = conns })
	}
	pool, watcher := open(size), open(1)
	s := NewKeys(pool, func() time.Time { return t0 })
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	for range 10 * size {
		flood.Go(func() { _, _ = s.Lookup(ctx, newText("")) })
	}
	for deadline := time.Now().Add(time.Minute); ; {
		waiting := count(t, watcher, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%api_keys%'`)
		if waiting == maxLookups {
			break
		}
		if waiting > maxLookups || time.Now().After(deadline) {
			t.Fatalf("%d lookups have a connection, want %d", waiting, maxLookups)
		}
	}
	short, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	if _, err := pool.Exec(short, `SELECT 1`); err != nil {
		t.Errorf("another query: %v", err)
	}
}

// TestSignInsAndOutsLeaveConnections: a project signs in once at a time, and sign-outs with invented cookies have as many
// connections as lookups.
func TestSignInsAndOutsLeaveConnections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		want  int
		flood func(s *Sessions, keys []Opened, n int) error
	}{
		{"sign-ins of two projects", 2, func(s *Sessions, keys []Opened, n int) error {
			_, err := s.Enter(context.Background(), "", keys[n%2])
			return err
		}},
		{"sign-outs", maxLookups, func(s *Sessions, _ []Opened, _ int) error {
			return s.End(context.Background(), randomText())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, keys := newSessions(t, "busy", "other")
			watcher := s.pool
			config := s.pool.Config()
			config.MaxConns = 12
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			s.pool = pool
			tx, err := watcher.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), `LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE`); err != nil {
				t.Fatal(err)
			}
			var flood sync.WaitGroup
			for n := range 40 {
				flood.Go(func() {
					if err := tt.flood(s, keys, n); err != nil {
						t.Error(err)
					}
				})
			}
			for deadline := time.Now().Add(time.Minute); ; {
				waiting := count(t, watcher, `
					SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%sessions%'`)
				if held := int(pool.Stat().AcquiredConns()); held > tt.want {
					t.Errorf("%d have a connection, want at most %d", held, tt.want)
					break
				}
				if waiting == tt.want {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("%d wait in the database, want %d", waiting, tt.want)
					break
				}
			}
			_ = tx.Rollback(context.Background())
			flood.Wait()
		})
	}
}

// TestWaitingLookupsShareOneQuery: once one lookup has read the key, the others find it in the cache.
func TestWaitingLookupsShareOneQuery(t *testing.T) {
	t.Parallel()
	s, _ := newKeys(t)
	made, text := s.mint(t)
	if !s.lookups.TryAcquire(maxLookups) {
		t.Fatal("a lookup is under way")
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if k, err := s.Lookup(t.Context(), text); err != nil || k.ID != made.ID {
				t.Errorf("got %+v, %v", k, err)
			}
		})
	}
	before := s.pool.Stat().AcquireCount()
	s.lookups.Release(1) // from now on one lookup at a time
	all.Wait()
	if n := s.pool.Stat().AcquireCount() - before; n != 1 {
		t.Errorf("%d queries, want 1", n)
	}
}
