package why

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const home = entities.DefaultProject

// TestCandidatesReadLittle: what a list by need reads does not grow with the runs that are stuck, retry or wait. No source
// reads a whole table ([testdb.Indexed]), and each touches a few blocks for each entry that it looks at.
func TestCandidatesReadLittle(t *testing.T) {
	t.Parallel()
	pool := manyRuns(t)
	for _, sql := range []string{
		`UPDATE messages SET parked_at = now() WHERE work = 'step'`,
		`UPDATE messages SET blocked = '{"code":"panic","message":""}' WHERE work = 'run'`,
		`UPDATE messages SET due_at = now() WHERE work = 'run'`,
		`INSERT INTO run_wakes (run_id, stranded_at) SELECT id, now() FROM runs`,
		`INSERT INTO limits (project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at)
			SELECT 'default', 'l' || i, 1, 0, 0, '0', 0, false, 'wait', true, now(), now() FROM generate_series(1, 3) i`,
		`INSERT INTO permits (holder, project, name, key, tenant, cost, run_id, created_at, rank_at)
			SELECT id, 'default', 'l2', '', '', 1, id, now(), now() FROM runs`,
		`INSERT INTO events (run_id, seq, project, type, correlation_id, spec_version, created_at, data)
			SELECT id, 22, 'default', 'step_retrying', 's20', 6, now(), '{}' FROM runs`,
		`UPDATE steps SET retry_after = now() + interval '1 h' WHERE id = 's20'`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT id, 'agree', 'default', 'approval_' || id, false, 6, 21, now() FROM runs`,
		`VACUUM ANALYZE`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	for name, class := range map[string]class{"stuck": classes[Stuck], "retrying": classes[Retrying], "people": forPerson} {
		for _, source := range class.sources {
			if got := testdb.Blocks(t, pool, candidatesOf(source), home, maxTraces); got > 4*maxTraces {
				t.Errorf("%s: %d blocks touched for %d entries by %s", name, got, maxTraces, source)
			}
		}
	}
}

// TestListsByNeed: of 2,000 runs that retry, 149 are parked, and one is stranded. Their list has each once, whichever way it is read. What is
// counted of the others is a bound that is said.
func TestListsByNeed(t *testing.T) {
	t.Parallel()
	pool := manyRuns(t)
	for _, sql := range []string{
		`DELETE FROM messages WHERE run_id = 'wrun_13' AND work = ANY ('{run,step}') AND work <> ''`,
		`INSERT INTO run_wakes (run_id, stranded_at) VALUES ('wrun_13', now())`,
		`UPDATE messages SET parked_at = now() WHERE id = ANY (ARRAY(SELECT 'msg_run' || 13 * i FROM generate_series(2, 150) i))`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	all := func(need Need, f store.RunFilter, p pg.Page) (ids []entities.RunID) {
		t.Helper()
		for {
			list, next, err := ListNeeding(t.Context(), pool, home, need, f, p)
			if err != nil || len(list) > p.Limit {
				t.Fatalf("got %d runs, error %v", len(list), err)
			}
			for _, e := range list {
				if e.Need() != need {
					t.Fatalf("%s is listed as %s, but its verdict is %s", e.Run.ID, need, e.Verdict)
				}
				ids = append(ids, e.Run.ID)
			}
			if p.Cursor = next; next == "" {
				return ids
			}
		}
	}
	stuck := all(Stuck, store.RunFilter{}, pg.Page{Limit: 40})
	newest := all(Stuck, store.RunFilter{WorkflowName: "order"}, pg.Page{Limit: 1000, Descending: true})
	if slices.Reverse(newest); len(stuck) != 150 || !slices.IsSorted(stuck) || !slices.Equal(stuck, newest) {
		t.Errorf("got %d and %d runs", len(stuck), len(newest))
	}
	if got := all(Stuck, store.RunFilter{WorkflowName: "refund"}, pg.Page{Limit: 40}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	if got := all(Retrying, store.RunFilter{}, pg.Page{Limit: 100}); len(got) == 0 || len(got) > MaxNeeding {
		t.Errorf("%d runs are retrying", len(got))
	}
	counts, err := CountNeeds(t.Context(), pool, home)
	if c := counts[Stuck]; err != nil || c != (store.RunCount{Count: 150, AtLeast: true}) || !counts[Retrying].AtLeast {
		t.Errorf("got %+v, error %v", counts, err)
	}
	if c, err := CountNeeding(t.Context(), pool, home, Stuck, store.RunFilter{}); err != nil || c != counts[Stuck] {
		t.Errorf("got %+v, error %v", c, err)
	}
	byNeed, err := ListByNeed(t.Context(), pool, home, store.RunFilter{}, 170)
	if err != nil || len(byNeed) != 170 {
		t.Fatalf("got %d runs, error %v", len(byNeed), err)
	}
	var needs []Need
	for i, e := range byNeed {
		if i == 0 || e.Need() != needs[len(needs)-1] {
			needs = append(needs, e.Need())
		}
	}
	if diff := cmp.Diff([]Need{Stuck, Retrying}, needs); diff != "" || byNeed[149].Need() != Stuck {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCountsOfFewRunsAreExact: all open runs are explained if they are few, whatever else leaves traces.
func TestCountsOfFewRunsAreExact(t *testing.T) {
	t.Parallel()
	pool := manyRuns(t)
	for _, sql := range []string{
		// leaves 100 runs, and the messages of all
		`DELETE FROM runs WHERE id = ANY (ARRAY(SELECT 'wrun_' || i FROM generate_series(101, 2000) i))`,
		`UPDATE messages SET parked_at = now() WHERE id = 'msg_run100'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := CountNeeds(t.Context(), pool, home)
	want := map[Need]store.RunCount{Stuck: {Count: 1}, Retrying: {Count: 99}, Waiting: {}}
	if diff := cmp.Diff(want, counts); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestCutCandidates: each once, and of too many the newest or the oldest.
func TestCutCandidates(t *testing.T) {
	t.Parallel()
	var ids []entities.RunID
	for i := range MaxNeeding + 2 {
		ids = append(ids, entities.RunID(fmt.Sprintf("wrun_%06d", i)))
	}
	for oldest, want := range map[bool][2]entities.RunID{true: {"wrun_000000", "wrun_000999"}, false: {"wrun_000002", "wrun_001001"}} {
		few, many := candidates{ids: ids[:MaxNeeding]}, candidates{ids: slices.Concat(ids, ids[:9])}
		few.cut(oldest)
		many.cut(oldest)
		if few.more || len(few.ids) != MaxNeeding {
			t.Errorf("oldest %v: %d of %d, more %v", oldest, len(few.ids), MaxNeeding, few.more)
		}
		got := [2]entities.RunID{slices.Min(many.ids), slices.Max(many.ids)}
		if !many.more || len(many.ids) != MaxNeeding || got != want {
			t.Errorf("oldest %v: got %v, %d, more %v, want %v", oldest, got, len(many.ids), many.more, want)
		}
	}
}
