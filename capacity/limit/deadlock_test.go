package limit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestDeadlocksAreRunsThatWaitForEachOther: r1 holds a slot of a, and waits for one of b by a child or a step; r2 the
// other way round. Whatever else may move one of them makes it no deadlock.
func TestDeadlocksAreRunsThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	one := map[string]limit.Limit{"a": {Spec: limit.Spec{PerKey: 1}}, "b": {Spec: limit.Spec{Total: 1}}}
	run := func(id entities.RunID, name, key string) limit.HeldBy {
		return limit.HeldBy{Holder: string(id), RunID: id, Name: name, Key: key, Cost: 1}
	}
	step := func(id entities.RunID, message, name, key string) limit.HeldBy {
		return limit.HeldBy{Holder: message, RunID: id, MessageID: message, Name: name, Key: key, Cost: 1}
	}
	circle := func(change ...func(*limit.Waits)) limit.Waits {
		w := limit.Waits{
			Limits:  one,
			Held:    []limit.HeldBy{run("r1", "a", "k"), run("r2", "b", "x")},
			Waiting: []limit.HeldBy{run("child", "b", "y"), step("r2", "m2", "a", "k")},
			Runs:    map[entities.RunID]limit.Dependence{"r1": {On: []string{"child"}}, "r2": {On: []string{"m2"}}},
		}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	for name, tt := range map[string]struct {
		waits limit.Waits
		dead  []entities.RunID
		// circle is that of the child.
		circle []entities.RunID
	}{
		"circle":  {circle(), []entities.RunID{"child", "r1", "r2"}, []entities.RunID{"r2", "r1"}},
		"nothing": {limit.Waits{}, nil, nil},
		"a hook may move one": {circle(func(w *limit.Waits) {
			w.Runs["r2"] = limit.Dependence{On: []string{"m2"}, Moves: true}
		}), nil, nil},
		"another step goes on": {circle(func(w *limit.Waits) {
			w.Runs["r1"] = limit.Dependence{On: []string{"child", "m1"}}
		}), nil, nil},
		"a slot more": {circle(func(w *limit.Waits) {
			w.Limits = map[string]limit.Limit{"a": {Spec: limit.Spec{PerKey: 2}}, "b": one["b"]}
		}), nil, nil},
		"a step holds the slot": {circle(func(w *limit.Waits) {
			w.Held[1] = step("r3", "m3", "b", "x")
		}), nil, nil},
		"another key": {circle(func(w *limit.Waits) { w.Waiting[1].Key = "other" }), nil, nil},
		"a third one waits for the circle": {circle(func(w *limit.Waits) {
			w.Waiting = append(w.Waiting, run("r4", "a", "k"))
		}), []entities.RunID{"child", "r1", "r2", "r4"}, []entities.RunID{"r2", "r1"}},
		"limit deleted": {circle(func(w *limit.Waits) { w.Limits = map[string]limit.Limit{"a": one["a"]} }), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := limit.FindDeadlocks(tt.waits)
			if diff := cmp.Diff(tt.dead, d.DeadRuns()); diff != "" {
				t.Errorf("dead runs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.circle, d.Circle("child")); diff != "" {
				t.Errorf("circle (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTooMuchToSearchTellsNoDeadlock: two runs hold a slot each, and their children wait for the other's. Among more
// holders, or with more open steps, than are searched they are not found.
func TestTooMuchToSearchTellsNoDeadlock(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"nothing": ``,
		"holders": `
			INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
			SELECT 'h' || n, 'r1', 'home', 'of-r1', 'k' || n, '', 1, now(), now(), now() FROM generate_series(1, 10000) n`,
		"steps": `
			INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			SELECT 'r1', 's' || n, 's', 'pending', 0, 2, 10 + n, now(), now() FROM generate_series(1, 10000) n`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t)
			for run, other := range map[string]string{"r1": "r2", "r2": "r1"} {
				if _, err := s.Put(t.Context(), home, "of-"+run, limit.Spec{PerKey: 1}); err != nil {
					t.Fatal(err)
				}
				exec(t, pool, insertRun, run, home)
				exec(t, pool, insertRun, run+" child", home)
				exec(t, pool, `UPDATE runs SET driver = 'server' WHERE id LIKE $1 || '%'`, run)
				exec(t, pool, `UPDATE runs SET parent_id = $1, parent_step = 'c' WHERE id = $1 || ' child'`, run)
				exec(t, pool, `
					INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
					VALUES ($1, 'c', 'c', 'pending', 0, 2, 2, now(), now())`, run)
				exec(t, pool, `
					INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
					SELECT id, id, $2, l, '', '', 1, now(), now(), at FROM (VALUES
						($1, 'of-' || $1, now()), ($1 || ' child', 'of-' || $3, NULL)) AS p (id, l, at)`, run, home, other)
			}
			want := 4
			if more != "" {
				exec(t, pool, more)
				want = 0
			}
			d, err := limit.ReadDeadlocks(t.Context(), pg.NewPool(pool), home)
			if dead := d.DeadRuns(); err != nil || len(dead) != want {
				t.Errorf("got %v, error %v; want %d runs", dead, err, want)
			}
		})
	}
}
