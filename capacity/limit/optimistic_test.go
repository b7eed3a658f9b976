package limit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
)

// newStart returns the statement that creates a run with the uses.
func newStart(run entities.RunID, uses ...entities.LimitUse) (*pg.Conditional, limit.OptimisticStart) {
	var c pg.Conditional
	c.About(pg.Write{Args: []any{run, home}, SQL: `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at)
		SELECT $1::text, $2::text, 'd', 'w', 'pending', 2, '{}', 1, now(), now() WHERE true`})
	return &c, limit.OptimisticStart{Start: limit.Start{RunID: run, Uses: uses}}
}

// take creates a run that takes its slots, and reports whether it did.
func take(ctx context.Context, pool *pgxpool.Pool, run entities.RunID, uses ...entities.LimitUse) (bool, error) {
	c, s := newStart(run, uses...)
	s.Take(c, home, "w")
	return pg.NewSerialCommit(pool).ExecuteConditional(ctx, c)
}

// TestTakesThatRaceNeverExceedALimit has two starts race for the last slot of a limit, in every interleaving of their
// statements. Exactly one gets it. The mutants, which count without the lock or in the statement that waits for it, let
// both have it in some interleaving.
func TestTakesThatRaceNeverExceedALimit(t *testing.T) {
	t.Parallel()
	locked := func(ctx context.Context, pool *pgxpool.Pool, run entities.RunID) error {
		return pg.InTx(ctx, pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			s := limit.Start{RunID: run, Uses: []entities.LimitUse{use("l", "k")}}
			g := limit.OpenGate(&b, home, s.Uses, true)
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
			a, err := g.Admit(s, false)
			if err != nil {
				return err
			}
			b = pgx.Batch{}
			b.Queue(insertRun, run, home)
			g.Insert(&b, s, a)
			return tx.SendBatch(ctx, &b).Close()
		})
	}
	taken := func(ctx context.Context, pool *pgxpool.Pool, run entities.RunID) error {
		_, err := take(ctx, pool, run, use("l", "k"))
		return err
	}
	mutant := func(count string) func(context.Context, *pgxpool.Pool, entities.RunID) error {
		return func(ctx context.Context, pool *pgxpool.Pool, run entities.RunID) error {
			_, err := pool.Exec(ctx, count+`, counted AS (
					SELECT count(*) AS held FROM permits WHERE project = $2 AND name = 'l' AND key = 'k' AND granted_at IS NOT NULL
				), run AS (
					INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
						created_at, updated_at)
					SELECT $1, $2, 'd', 'w', 'pending', 2, '{}', 1, now(), now() FROM locked, counted WHERE held < per_key
					RETURNING id
				)
				INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
				SELECT id, id, $2, 'l', 'k', 'k', 1, now(), now(), now() FROM run`, run, home)
			return err
		}
	}
	for name, c := range map[string]struct {
		one, two func(context.Context, *pgxpool.Pool, entities.RunID) error
		most     int
	}{
		"two that take":       {taken, taken, 1},
		"with one that waits": {taken, locked, 1},
		"mutant without lock": {mutant(`WITH locked AS (SELECT per_key FROM limits)`), taken, 2},
		"mutant that counts early": {
			mutant(`WITH locked AS (SELECT per_key FROM limits WHERE name = 'l' FOR NO KEY UPDATE)`), taken, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			pool := testdb.Connect(t, dsn)
			spec := limit.Spec{PerKey: 1, OnFull: limit.Reject}
			if _, err := limit.NewStore(pool, time.Now).Put(t.Context(), home, "l", spec); err != nil {
				t.Fatal(err)
			}
			one, two := gate.Open(t, dsn, pool, nil), gate.Open(t, dsn, pool, nil)
			least, most := 2, 0
			schedules := gate.Explore(t, one, two, func(s *gate.Schedule) {
				exec(t, pool, `DELETE FROM runs`)
				s.Run(t, func() { checkFull(t, c.one(t.Context(), one.Pool, "wrun_1")) },
					func() { checkFull(t, c.two(t.Context(), two.Pool, "wrun_2")) })
				held, err := heldOf(t.Context(), pool, "l", "k")
				if err != nil {
					t.Fatal(err)
				}
				least, most = min(least, held), max(most, held)
			})
			if least != 1 || most != c.most {
				t.Errorf("in %d interleavings, from %d to %d hold the one slot; want 1 to %d", schedules, least, most, c.most)
			}
		})
	}
}

// checkFull reports an error other than that a limit is full.
func checkFull(t *testing.T, err error) {
	if err != nil && !errors.Is(err, limit.ErrFull) {
		t.Error(err)
	}
}

// TestTakeLeavesToOthersWhatIsNotFree says when a start does not take its slots: it leaves no trace then.
func TestTakeLeavesToOthersWhatIsNotFree(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for name, spec := range map[string]limit.Spec{
		"keys": {PerKey: 2}, "all": {Total: 2}, "paused": {PerKey: 2, Paused: true}, "other": {PerKey: 2},
		"rate": {Rate: 100, Per: time.Second}, "fair": {Total: 2, Fair: true},
	} {
		if _, err := s.Put(t.Context(), home, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, pool, 0, 1, use("keys", "taken"), use("all", "x"))
	exec(t, pool, `UPDATE permits SET granted_at = now()`)
	wait(t, pool, 1, 1, use("keys", "awaited"))
	exec(t, pool, `UPDATE permits SET not_before = now() + interval '1 hour' WHERE granted_at IS NULL`)
	costly := func(u entities.LimitUse) entities.LimitUse { u.Cost = 2; return u }
	for i, c := range []struct {
		what  string
		uses  []entities.LimitUse
		takes bool
	}{
		{"room for one", []entities.LimitUse{use("keys", "taken")}, true},
		{"no room with the key", []entities.LimitUse{use("keys", "taken")}, false},
		{"another key", []entities.LimitUse{costly(use("keys", "free"))}, true},
		{"no room for two with all keys", []entities.LimitUse{costly(use("all", "y"))}, false},
		{"room for one with all keys", []entities.LimitUse{use("all", "y")}, true},
		{"no room with all keys", []entities.LimitUse{use("all", "z")}, false},
		{"somebody waits", []entities.LimitUse{use("keys", "awaited")}, false},
		{"more than there will ever be", []entities.LimitUse{{Name: "keys", Key: "k", Cost: 3}}, false},
		{"paused", []entities.LimitUse{use("paused", "k")}, false},
		{"a rate", []entities.LimitUse{use("rate", "k")}, false},
		{"turns of tenants", []entities.LimitUse{use("fair", "k")}, false},
		{"no such limit", []entities.LimitUse{use("gone", "k")}, false},
		{"one of two is full", []entities.LimitUse{use("other", "k"), use("all", "k")}, false},
		{"two of two are free", []entities.LimitUse{use("other", "k"), use("keys", "k")}, true},
	} {
		run := entities.RunID(fmt.Sprintf("wrun_new_%02d", i))
		took, err := take(t.Context(), pool, run, c.uses...)
		if err != nil || took != c.takes {
			t.Errorf("%s: took its slots: %v, error %v; want %v", c.what, took, err, c.takes)
		}
		want := 0
		if c.takes {
			want = len(c.uses)
		}
		var held, runs int
		err = pool.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM permits WHERE holder = $1 AND granted_at IS NOT NULL),
				(SELECT count(*) FROM runs WHERE id = $1)`, run).Scan(&held, &runs)
		if err != nil || held != want || (runs == 1) != c.takes {
			t.Errorf("%s: it holds %d slots, there are %d such runs, error %v; want %d slots", c.what, held, runs, err, want)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM limits WHERE name = 'other' FOR NO KEY UPDATE`); err != nil {
		t.Fatal(err)
	}
	took, err := take(t.Context(), pool, "wrun_locked", use("keys", "free too"), use("other", "free"))
	if err != nil || took {
		t.Errorf("one of two limits is locked: took its slots: %v, error %v; want neither to wait nor to take", took, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyThatChangedIsNotTaken, and neither is one that there was not.
func TestPolicyThatChangedIsNotTaken(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	if _, err := s.Put(t.Context(), home, "l", limit.Spec{PerKey: 5}); err != nil {
		t.Fatal(err)
	}
	create := func(run entities.RunID, p *limit.Policy) bool {
		t.Helper()
		c, start := newStart(run, use("l", "k"))
		start.Policy = p
		start.Take(c, home, "w")
		took, err := pg.NewSerialCommit(pool).ExecuteConditional(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	put := func(key string) *limit.Policy {
		t.Helper()
		p, err := s.PutPolicy(t.Context(), limit.Policy{
			Project: home, Workflow: "w", Limits: []limit.PolicyUse{{Name: "l", Key: key}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	first := put(`'a'`)
	if create("wrun_none", nil) || !create("wrun_first", first) {
		t.Error("a start without the policy took its slot, or one with it did not")
	}
	second := put(`'b'`)
	if create("wrun_old", first) || !create("wrun_second", second) {
		t.Error("a start with the old policy took its slot, or one with the new did not")
	}
}

// TestAwaitedOfKnowsAllKeysOfATotal: a slot that is free with one key may be awaited with another.
func TestAwaitedOfKnowsAllKeysOfATotal(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for name, spec := range map[string]limit.Spec{"keys": {PerKey: 1}, "all": {Total: 1}, "quiet": {Total: 1}} {
		if _, err := s.Put(t.Context(), home, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, pool, 0, 1, use("keys", "awaited"), use("all", "awaited"))
	freed := []limit.Bucket{
		{Name: "keys", Key: "awaited"}, {Name: "keys", Key: "x"}, {Name: "all", Key: "x"}, {Name: "quiet", Key: "x"},
		{Name: "gone", Key: "x"},
	}
	for project, want := range map[entities.Project][]limit.Bucket{home: {freed[0], freed[2]}, stranger: {}} {
		got, err := limit.AwaitedOf(t.Context(), pool, project, freed)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("awaited slots of %s differ (-want +got), error %v:\n%s", project, err, diff)
		}
	}
}
