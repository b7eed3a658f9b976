package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestRunThatCannotBeWokenDoesNotStopOthers covers runs that only older servers could create.
func TestRunThatCannotBeWokenDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"deployment": `UPDATE runs SET deployment_id = 'apps/shop' WHERE id = $1`,
		"name":       `UPDATE runs SET workflow_name = repeat('w', 1020) WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			first, bad, last := r.created(t), r.created(t), r.created(t)
			r.Exec(t, damage, bad.RunID)
			lost := r.claimed(t, "proc_gone")
			r.Exec(t, `DELETE FROM processes`)
			var l testdb.Log
			s := r.newWorker(t, func(o *WorkerOptions) { o.Logger = l.Logger() }).sweeper
			s.Interval = 0
			woken, err := s.Sweep(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := map[entities.RunID]bool{}
			for _, run := range woken {
				got[run.ID] = true
			}
			if diff := cmp.Diff(map[entities.RunID]bool{first.RunID: true, last.RunID: true}, got); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
			if !l.Contains(string(bad.RunID)) {
				t.Error("nothing is logged about the run that cannot be woken")
			}
			if g, err := r.Gauges(t.Context()); err != nil || g.StrandedRuns != 3 {
				t.Errorf("got a gauge of %d (%v), want all 3", g.StrandedRuns, err)
			}
			if s := r.stored(t, lost.ID); s.Lease != "" {
				t.Errorf("got %+v, want the orphaned lease released", s)
			}
		})
	}
}

func TestOrphanedLeasesAreReleasedIfTheSweepFails(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	lost := r.claimed(t, "proc_gone")
	r.Exec(t, `DELETE FROM processes`)
	r.Exec(t, `ALTER TABLE run_wakes RENAME TO elsewhere`)
	if woken, err := r.newWorker(t).sweeper.Sweep(t.Context()); err == nil {
		t.Fatalf("got %+v, want the pass to fail", woken)
	}
	if s := r.stored(t, lost.ID); s.Lease != "" {
		t.Errorf("got %+v, want the orphaned lease released", s)
	}
}

// TestBatchThatFailsDoesNotStopTheRound: a batch can fail, for example, because reading some of its runs takes too
// long.
func TestBatchThatFailsDoesNotStopTheRound(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	bad, good := r.created(t), r.created(t)
	r.Exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
	r.Exec(t, `
		CREATE TRIGGER refuse BEFORE INSERT ON run_wakes FOR EACH ROW
		WHEN (NEW.run_id = '`+string(bad.RunID)+`') EXECUTE FUNCTION refuse()`)
	s := r.newWorker(t).sweeper
	s.Interval, s.Batch = 0, 1
	if woken, err := s.Sweep(t.Context()); err == nil {
		t.Fatalf("got %+v, want the pass to fail", woken)
	}
	if woken, err := s.Sweep(t.Context()); err != nil || len(woken) != 1 || woken[0].ID != good.RunID {
		t.Errorf("got %+v, %v; want the next run woken", woken, err)
	}
	r.Want(t, "rows of the pass that failed", 0, `SELECT count(*) FROM run_wakes WHERE run_id = $1`, bad.RunID)
}
