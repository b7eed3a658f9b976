package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// insertRun is the row of a run with an ID.
const insertRun = `
	INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
		updated_at)
	VALUES ($1, $2, 'd', 'w', 'pending', 2, '{}', 1, now(), now())`

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// wait adds runs that wait for the uses.
func wait(t *testing.T, pool *pgxpool.Pool, first, n int, uses ...entities.LimitUse) {
	t.Helper()
	err := pg.InTxBatch(t.Context(), pool, func(b *pgx.Batch) {
		for i := first; i < first+n; i++ {
			id := fmt.Sprintf("wrun_%06d", i)
			b.Queue(insertRun, id, home)
			for _, u := range uses {
				b.Queue(`
					INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at)
					VALUES ($1, $1, $2, $3, $4, $4, 1, $5, $5)`, id, home, u.Name, u.Key, start.Add(time.Duration(i)*time.Second))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// heldOf counts who holds a slot with the key.
func heldOf(ctx context.Context, pool *pgxpool.Pool, name, key string) (n int, err error) {
	err = pool.QueryRow(ctx, `
		SELECT count(*) FROM permits WHERE project = $1 AND name = $2 AND key = $3 AND granted_at IS NOT NULL`,
		home, name, key).Scan(&n)
	return n, err
}

func nothing(*pgx.Batch, []limit.Granted) func(error) { return func(error) {} }

// TestPassesThatRaceNeverExceedALimit has eight passes at a time grant the slots of three overlapping limits, while
// their sessions are killed and what holds slots ends. Each read of the database finds no limit exceeded. In the end
// all have had their slots, and no permit is left.
func TestPassesThatRaceNeverExceedALimit(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for name, spec := range map[string]limit.Spec{"a": {PerKey: 3}, "b": {PerKey: 2}, "c": {Total: 4, Fair: true}} {
		if _, err := s.Put(t.Context(), home, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	buckets := []limit.Bucket{{Name: "a", Key: "x"}, {Name: "b", Key: "x"}, {Name: "c", Key: "x"}, {Name: "c", Key: "y"}}
	wait(t, pool, 0, 40, use("a", "x"), use("b", "x"))
	wait(t, pool, 40, 40, use("a", "x"), use("c", "x"))
	wait(t, pool, 80, 40, use("b", "x"), use("c", "y"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	left := func() (n int) {
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM permits`).Scan(&n); err != nil {
			return -1 // killed
		}
		return n
	}
	var racers sync.WaitGroup
	var granted, failed atomic.Int64
	for racer := range 8 {
		racers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(racer), 7))
			for left() != 0 && ctx.Err() == nil {
				passed, err := limit.Pass(ctx, pool, home, buckets, nothing)
				granted.Add(int64(passed.Granted))
				if err != nil {
					failed.Add(1)
				}
				for range r.IntN(3) { // somebody ends
					_, _ = pool.Exec(ctx, `
						DELETE FROM runs WHERE id = (SELECT run_id FROM permits WHERE granted_at IS NOT NULL
							ORDER BY random() LIMIT 1)`)
				}
				if r.IntN(20) == 0 {
					_, _ = pool.Exec(ctx, `
						SELECT pg_terminate_backend(pid) FROM pg_stat_activity
						WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%limits%' LIMIT 1`)
				}
			}
		})
	}
	for left() != 0 && ctx.Err() == nil {
		for p, most := range map[limit.Bucket]int{buckets[0]: 3, buckets[1]: 2} {
			if n, err := heldOf(ctx, pool, p.Name, p.Key); err == nil && n > most {
				t.Errorf("%d hold a slot of %v, which has %d", n, p, most)
			}
		}
		var total int
		err := pool.QueryRow(ctx, `SELECT count(*) FROM permits WHERE name = 'c' AND granted_at IS NOT NULL`).Scan(&total)
		if err == nil && total > 4 {
			t.Errorf("%d hold a slot of c, which has 4", total)
		}
	}
	racers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("after a minute, %d permits are left", left())
	}
	t.Logf("%d grants were reported, %d passes failed", granted.Load(), failed.Load())
}

// TestCountsAfterTheLockIsHeld has a transaction wait for the lock of a limit while another one takes its last slot.
// The mutant that counts in the statement that waits exceeds the limit; the gate does not.
func TestCountsAfterTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const mutant = `
		WITH locked AS (
			SELECT per_key FROM limits WHERE project = $2 AND name = 'l' FOR NO KEY UPDATE
		), counted AS (
			SELECT count(*) AS held FROM permits WHERE project = $2 AND name = 'l' AND key = 'k' AND granted_at IS NOT NULL
		)
		INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
		SELECT $1, $1, $2, 'l', 'k', 'k', 1, now(), now(), now() FROM locked, counted WHERE held < per_key`
	admit := func(ctx context.Context, tx pgx.Tx, run entities.RunID) error {
		var b pgx.Batch
		uses := []entities.LimitUse{use("l", "k")}
		g := limit.OpenGate(&b, home, uses, true)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		a, err := g.Admit(limit.Start{RunID: run, Uses: uses}, false)
		if err != nil {
			return err
		}
		g.Insert(&b, limit.Start{RunID: run, Uses: uses}, a)
		return tx.SendBatch(ctx, &b).Close()
	}
	for name, second := range map[string]func(context.Context, pgx.Tx, entities.RunID) error{
		"gate": admit,
		"mutant": func(ctx context.Context, tx pgx.Tx, run entities.RunID) error {
			_, err := tx.Exec(ctx, mutant, run, home)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t)
			if _, err := s.Put(t.Context(), home, "l", limit.Spec{PerKey: 1, OnFull: limit.Reject}); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, insertRun, "wrun_1", home)
			exec(t, pool, insertRun, "wrun_2", home)
			first, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := admit(t.Context(), first, "wrun_1"); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- pg.InTx(t.Context(), pool, func(tx pgx.Tx) error { return second(t.Context(), tx, "wrun_2") })
			}()
			for waiting := 0; waiting == 0; { // until the second one waits for the lock
				err := pool.QueryRow(t.Context(), `
					SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
				).Scan(&waiting)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = <-done
			held, countErr := heldOf(t.Context(), pool, "l", "k")
			if countErr != nil {
				t.Fatal(countErr)
			}
			switch name {
			case "gate":
				if !errors.Is(err, limit.ErrFull) || held != 1 {
					t.Errorf("got error %v, and %d hold the one slot; want ErrFull and 1", err, held)
				}
			default:
				if err != nil || held != 2 {
					t.Errorf("got error %v, and %d hold the one slot; the test must be able to fail with 2", err, held)
				}
			}
		})
	}
}

// TestLongQueuesKeepNoOtherOut has more wait for one limit than a pass considers, all before the one that can go.
func TestLongQueuesKeepNoOtherOut(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for name, spec := range map[string]limit.Spec{
		"a": {PerKey: 1}, "b": {PerKey: 1}, "paused": {PerKey: 1, Paused: true},
	} {
		if _, err := s.Put(t.Context(), home, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	buckets := []limit.Bucket{{Name: "b", Key: "k"}}
	for i := range 5 {
		key := fmt.Sprint(i)
		wait(t, pool, i*500, 500, use("a", key), use("paused", key))
		buckets = append(buckets, limit.Bucket{Name: "a", Key: key})
	}
	wait(t, pool, 2500, 1, use("a", "last"))
	wait(t, pool, 2501, 1, use("b", "k"))
	passed, err := limit.Pass(t.Context(), pool, home, append(buckets, limit.Bucket{Name: "a", Key: "last"}), nothing)
	if err != nil || passed.Granted != 2 {
		t.Errorf("%d got their slots, error %v; want the run of the other limit, and that of the other key",
			passed.Granted, err)
	}
}

// TestThoseThatCameFirstGoWithAnyKey: of more that wait than a pass reads, with more keys than the slots that end name,
// those go that came first and whose key has room, whether or not they are among the first of all.
func TestThoseThatCameFirstGoWithAnyKey(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]int{"the first can go": 0, "the first cannot go": 600} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t)
			if _, err := s.Put(t.Context(), home, "a", limit.Spec{PerKey: 1, Total: 10}); err != nil {
				t.Fatal(err)
			}
			if held > 0 { // all with one key, which one of them holds
				wait(t, pool, 0, held, use("a", "held"))
				exec(t, pool, `UPDATE permits SET granted_at = now() WHERE holder = 'wrun_000000'`)
			}
			for i := held; i < held+300; i++ { // the lower of two in a row has the greater key
				wait(t, pool, 2*i, 2, use("a", fmt.Sprintf("key-%04d", 2000-i)))
			}
			var got, want []entities.RunID
			for n := range 10 - min(held, 1) {
				want = append(want, entities.RunID(fmt.Sprintf("wrun_%06d", 2*(held+n))))
			}
			_, err := limit.Pass(t.Context(), pool, home, []limit.Bucket{{Name: "a", Key: "other"}},
				func(_ *pgx.Batch, granted []limit.Granted) func(error) {
					for _, g := range granted {
						got = append(got, g.RunID)
					}
					return func(error) {}
				})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got their slots: %v, error %v; want %v", got, err, want)
			}
		})
	}
}

// waitStep adds a step that waits for the use, with its run and its message.
func waitStep(t *testing.T, pool *pgxpool.Pool, message string, u entities.LimitUse) {
	t.Helper()
	run := "wrun_of_" + message
	exec(t, pool, insertRun, run, home)
	exec(t, pool, `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
		VALUES ($1, $2, 's', 'd', $3, 'step', 'x', '', '', now() + interval '1 day', now() + interval '1 day')`,
		message, home, run)
	exec(t, pool, `
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at)
		VALUES ($1, $1, $2, $3, $4, $5, $5, 1, now(), now())`, message, run, home, u.Name, u.Key)
}

// TestPassCountsStepsAfterTheLockIsHeld has a pass wait for the lock of a limit while another transaction gives a step
// its last slot. The mutant that counts in the statement that waits exceeds the limit; the pass does not.
func TestPassCountsStepsAfterTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const mutant = `
		WITH locked AS (
			SELECT per_key FROM limits WHERE project = $1 AND name = 'l' FOR NO KEY UPDATE
		), counted AS (
			SELECT count(*) AS held FROM permits WHERE project = $1 AND name = 'l' AND key = 'k' AND granted_at IS NOT NULL
		)
		UPDATE permits SET granted_at = now() FROM locked, counted WHERE holder = 'm2' AND held < per_key`
	for name, want := range map[string]int{"pass": 1, "mutant": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t)
			if _, err := s.Put(t.Context(), home, "l", limit.Spec{PerKey: 1}); err != nil {
				t.Fatal(err)
			}
			waitStep(t, pool, "m1", use("l", "k"))
			waitStep(t, pool, "m2", use("l", "k"))
			first, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{
				`SELECT FROM limits WHERE name = 'l' FOR NO KEY UPDATE`,
				`SELECT FROM messages WHERE id = 'm1' FOR NO KEY UPDATE`,
				`UPDATE permits SET granted_at = now() WHERE holder = 'm1'`,
			} {
				if _, err := first.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() {
				if name == "pass" {
					_, err := limit.Pass(t.Context(), pool, home, []limit.Bucket{{Name: "l", Key: "k"}}, nothing)
					done <- err
					return
				}
				_, err := pool.Exec(t.Context(), mutant, home)
				done <- err
			}()
			for waiting := 0; waiting == 0; { // until the second one waits for the lock
				err := pool.QueryRow(t.Context(), `
					SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
				).Scan(&waiting)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if held, err := heldOf(t.Context(), pool, "l", "k"); err != nil || held != want {
				t.Errorf("%d hold the one slot, error %v; want %d", held, err, want)
			}
		})
	}
}

// TestStepsThatEndDuringAPassKeepNothing races passes with the ends and the failures of steps: nobody waits for a lock
// of the other, and in the end no permit is left.
func TestStepsThatEndDuringAPassKeepNothing(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	if _, err := s.Put(t.Context(), home, "l", limit.Spec{PerKey: 3}); err != nil {
		t.Fatal(err)
	}
	const steps = 60
	for i := range steps {
		waitStep(t, pool, fmt.Sprintf("m%02d", i), use("l", "k"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	left := func() (n int) {
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM permits`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	var racers sync.WaitGroup
	for racer := range 6 {
		racers.Go(func() {
			for left() != 0 && ctx.Err() == nil {
				var err error
				switch racer % 3 {
				case 0:
					_, err = limit.Pass(ctx, pool, home, []limit.Bucket{{Name: "l", Key: "k"}}, nothing)
				case 1: // a step ends, or is cancelled while it waits
					_, err = pool.Exec(ctx, `DELETE FROM messages WHERE id = (SELECT message_id FROM permits ORDER BY random() LIMIT 1)`)
				default: // an attempt fails
					_, err = pool.Exec(ctx, `
						WITH failed AS (
							UPDATE messages SET body = '' WHERE id = (
								SELECT message_id FROM permits WHERE granted_at IS NOT NULL ORDER BY random() LIMIT 1)
							RETURNING id, now() AS not_before)`+limit.Return)
				}
				if err != nil {
					t.Error(err)
				}
				if n, err := heldOf(ctx, pool, "l", "k"); err == nil && n > 3 {
					t.Errorf("%d hold a slot of l, which has 3", n)
				}
			}
		})
	}
	racers.Wait()
	if n := left(); n != 0 {
		t.Errorf("%d permits are left", n)
	}
}

// TestBarrierLetsStepsOfHoldersGo, and of their children.
func TestBarrierLetsStepsOfHoldersGo(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for _, name := range []string{"a", "b"} {
		if _, err := s.Put(t.Context(), home, name, limit.Spec{PerKey: 2}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, pool, 0, 2, use("a", "k"))
	exec(t, pool, `UPDATE permits SET granted_at = now()`)
	wait(t, pool, 2, 1, use("a", "k"), use("b", "k"))
	exec(t, pool, `UPDATE permits SET passed = 100 WHERE granted_at IS NULL`)
	waitStep(t, pool, "m_child", use("b", "k"))
	waitStep(t, pool, "m_other", use("b", "k"))
	exec(t, pool, `UPDATE runs SET parent_id = 'wrun_000000', parent_step = 'x' WHERE id = 'wrun_of_m_child'`)
	buckets := []limit.Bucket{{Name: "a", Key: "k"}, {Name: "b", Key: "k"}}
	if _, err := limit.Pass(t.Context(), pool, home, buckets, nothing); err != nil {
		t.Fatal(err)
	}
	var holder string
	err := pool.QueryRow(t.Context(), `SELECT string_agg(holder, ' ') FROM permits WHERE name = 'b' AND granted_at IS NOT NULL`).
		Scan(&holder)
	if err != nil || holder != "m_child" {
		t.Errorf("%q got slots, error %v; want m_child alone", holder, err)
	}
}

// TestPassJudgesNobodyByHalfOfItsUses: the pause of one use is over, that of the other not, as between two rows of a
// statement that takes its time.
func TestPassJudgesNobodyByHalfOfItsUses(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t)
	for _, name := range []string{"a", "b"} {
		if _, err := s.Put(t.Context(), home, name, limit.Spec{PerKey: 1}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, pool, 0, 1, use("b", "k"))
	exec(t, pool, `UPDATE permits SET granted_at = now()`)
	wait(t, pool, 1, 1, use("a", "k"), use("b", "k"))
	exec(t, pool, `UPDATE permits SET not_before = now() + interval '1 hour' WHERE granted_at IS NULL AND name = 'b'`)
	if _, err := limit.Pass(t.Context(), pool, home, []limit.Bucket{{Name: "a", Key: "k"}}, nothing); err != nil {
		t.Fatal(err)
	}
	if n, err := heldOf(t.Context(), pool, "b", "k"); n != 1 || err != nil {
		t.Errorf("%d hold the one slot of b, error %v", n, err)
	}
}

// TestDeadlinesEndDeadlocks: two runs hold a slot each and await the other's by a step. With a timeout of a step or of a
// run, or during a pause, something will move them.
func TestDeadlinesEndDeadlocks(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]int{
		`SELECT`: 2,
		`UPDATE permits SET until = now() + interval '1 hour' WHERE granted_at IS NULL`:      0,
		`UPDATE permits SET not_before = now() + interval '1 hour' WHERE granted_at IS NULL`: 0,
		`UPDATE permits SET not_before = now() - interval '1 hour' WHERE granted_at IS NULL`: 2,
		`UPDATE runs SET deadline = now() + interval '1 hour' WHERE id = 'wrun_of_m1'`:       0,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t)
			for i, name := range []string{"a", "b"} {
				if _, err := s.Put(t.Context(), home, name, limit.Spec{PerKey: 1}); err != nil {
					t.Fatal(err)
				}
				message, other := fmt.Sprint("m", i+1), []string{"b", "a"}[i]
				waitStep(t, pool, message, use(other, "k"))
				exec(t, pool, `
					INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
					VALUES ($1, $1, $2, $3, 'k', 'k', 1, now(), now(), now())`, "wrun_of_"+message, home, name)
				exec(t, pool, `
					INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
					VALUES ($1, 'x', 's', 'pending', 0, 2, 2, now(), now())`,
					"wrun_of_"+message)
			}
			exec(t, pool, `UPDATE runs SET driver = 'server'`)
			exec(t, pool, change)
			d, err := limit.ReadDeadlocks(t.Context(), pg.NewPool(pool), home)
			if got := d.DeadRuns(); err != nil || len(got) != want {
				t.Errorf("%v are dead, error %v; want %d", got, err, want)
			}
		})
	}
}
