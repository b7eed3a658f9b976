package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// appendAtOnce appends requests about a run by calls of their own, which all wait before the first one begins, and
// returns their results and errors.
func appendAtOnce(t *testing.T, l *Log, id entities.RunID, requests []Request, o AppendOptions) ([]Result, []error) {
	t.Helper()
	release, err := l.cache.acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	results, errs := make([]Result, len(requests)), make([]error, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			var got []Result
			if got, errs[i] = l.AppendAll(t.Context(), home, id, []Request{r}, o); errs[i] == nil {
				results[i] = got[0]
			}
		})
	}
	eventually(t, "all wait", func() bool {
		l.cache.mu.Lock()
		defer l.cache.mu.Unlock()
		return l.cache.queues[id].users == len(requests)+1
	})
	release()
	all.Wait()
	return results, errs
}

// wideRun creates a run with steps s0, s1, …
func (f *fixture) wideRun(t *testing.T, steps int) (id entities.RunID, completed []Request) {
	t.Helper()
	id = f.run(t, started)
	for i := range steps {
		name := fmt.Sprint("s", i)
		f.must(t, on(id, "step_created", name))
		r := on(id, "step_completed", name)
		r.Payload = []byte(name)
		completed = append(completed, r)
	}
	return id, completed
}

// transactions counts the transactions that have completed steps of the run.
func (f *fixture) transactions(t *testing.T, id entities.RunID) (n int) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(),
		`SELECT count(DISTINCT xid) FROM events WHERE run_id = $1 AND type = 'step_completed'`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wantOnce fails the test unless each result was answered with the event that the log has of it, once.
func (f *fixture) wantOnce(t *testing.T, id entities.RunID, requests []Request, results []Result, errs []error) {
	t.Helper()
	log := f.events(t, id)
	for i, r := range requests {
		if errs[i] != nil {
			t.Errorf("%s: %v", r.CorrelationID, errs[i])
			continue
		}
		e, step := results[i].Event, results[i].Step
		if e == nil || e.CorrelationID != r.CorrelationID || step == nil || step.ResultSeq != e.Seq ||
			string(log[e.Seq-1].Payload) != string(r.Payload) || log[e.Seq-1].CorrelationID != r.CorrelationID {
			t.Errorf("%s: got event %+v and step %+v", r.CorrelationID, e, step)
		}
	}
	if n := count(log, "step_completed"); n != len(requests) {
		t.Errorf("%d results are in the log, want %d", n, len(requests))
	}
	f.wantVerified(t, id)
}

// TestResultsThatWaitAreAppendedTogether, from the cache or under the lock of the run, in transactions of limited size.
func TestResultsThatWaitAreAppendedTogether(t *testing.T) {
	t.Parallel()
	for name, cached := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			id, requests := f.wideRun(t, maxTogether+5)
			log := f.Log
			if !cached {
				log = f.with(noQueue{})
			}
			results, errs := appendAtOnce(t, log, id, requests, AppendOptions{})
			f.wantOnce(t, id, requests, results, errs)
			if n := f.transactions(t, id); n != 2 {
				t.Errorf("%d results took %d transactions, want 2", len(requests), n)
			}
		})
	}
}

// TestRacingResultsCountOnce: each step gets one result. Its other results are refused, whatever they are appended with.
func TestRacingResultsCountOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, requests := f.wideRun(t, racers)
	missing := on(id, "step_completed", "missing")
	all := slices.Concat(requests, requests, []Request{missing})
	_, errs := appendAtOnce(t, f.Log, id, all, AppendOptions{})
	for i := range requests {
		one, other := errs[i], errs[i+len(requests)]
		if (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), entities.ErrConflict) {
			t.Errorf("step %d: got errors %v and %v, want one conflict", i, one, other)
		}
	}
	if last := errs[len(errs)-1]; !errors.Is(last, entities.ErrStepNotFound) {
		t.Errorf("a step that is missing: got error %v, want %v", last, entities.ErrStepNotFound)
	}
	if n := count(f.events(t, id), "step_completed"); n != len(requests) {
		t.Errorf("%d results are in the log, want %d", n, len(requests))
	}
	f.wantVerified(t, id)
}

// TestResultThatPostgresRefusesFailsAlone: the transaction with it leaves nothing.
func TestResultThatPostgresRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, requests := f.wideRun(t, 5)
	f.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END'`)
	f.exec(t, `CREATE TRIGGER refuse BEFORE UPDATE ON steps FOR EACH ROW WHEN (NEW.id = 's2') EXECUTE FUNCTION refuse()`)
	results, errs := appendAtOnce(t, f.Log, id, requests, AppendOptions{})
	if _, ok := errors.AsType[*pgconn.PgError](errs[2]); !ok {
		t.Errorf("got error %v, want that of the trigger", errs[2])
	}
	others := func(i int) bool { return i != 2 }
	f.wantOnce(t, id, pick(requests, others), pick(results, others), pick(errs, others))
}

// pick returns the items at the places.
func pick[T any](items []T, at func(int) bool) (picked []T) {
	for i, item := range items {
		if at(i) {
			picked = append(picked, item)
		}
	}
	return picked
}

// joint is a companion that fails if it stands for several, in the last statement of the transaction.
type joint struct{ UnderLock }

func (joint) Merge([]Companion) Companion { return joint{UnderLock{Write: fails}} }

// TestFailureAtTheLastStatementLeavesNothing of the calls that are appended together, so that each succeeds alone.
func TestFailureAtTheLastStatementLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, requests := f.wideRun(t, 5)
	writes := 0
	alone := joint{UnderLock{Write: func(*pgx.Batch) { writes++ }}}
	results, errs := appendAtOnce(t, f.Log, id, requests, AppendOptions{With: alone})
	f.wantOnce(t, id, requests, results, errs)
	if n := f.transactions(t, id); n != len(requests) || writes != n {
		t.Errorf("%d results took %d transactions, with %d writes", len(requests), n, writes)
	}
}

// TestCrashWhileResultsAreAppendedTogether: all are written or none. What was not written is appended alone, unless the
// database stays away.
func TestCrashWhileResultsAreAppendedTogether(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	session := gate.Open(t, dsn, f.pool, nil)
	for _, tt := range []struct {
		crash            gate.Crash
		statement        int // the second one is the commit
		written, succeed bool
	}{
		{gate.Terminated, 0, true, true}, {gate.AnswerLost, 0, true, true}, {gate.AnswerLost, 1, true, false},
		{gate.Away, 0, false, false},
	} {
		id, requests := f.wideRun(t, 3)
		log := f.logOver(session.Pool, 0)
		log.cacheRun(f.rows(t, id))
		var errs []error
		session.Run(t, tt.statement, tt.crash, func() { _, errs = appendAtOnce(t, log, id, requests, AppendOptions{}) })
		for i, err := range errs {
			if (err == nil) != tt.succeed {
				t.Errorf("%s at %d: result %d got error %v", tt.crash, tt.statement, i, err)
			}
		}
		want := 0
		if tt.written {
			want = len(requests)
		}
		if n := count(f.events(t, id), "step_completed"); n != want {
			t.Errorf("%s at %d: %d results are in the log, want %d", tt.crash, tt.statement, n, want)
		}
		f.wantVerified(t, id)
	}
}

// TestDivide: each call has the events of its own requests, and the first one those that follow.
func TestDivide(t *testing.T) {
	t.Parallel()
	m := newMemoryRun(t, created, started)
	requests := []Request{on(theRun, "step_created", "a"), on(theRun, "step_created", "b"), on(theRun, "step_created", "c")}
	d := decideAll(facts{Snapshot: m.snapshot}, requests[:2], day)
	d.add(facts{Snapshot: d.after}, &requests[2], day)
	all := []*joined{{}, {}}
	d.divide(all)
	for i, want := range [][]string{{"a", "c"}, {"b"}} {
		var got []string
		for _, e := range all[i].decision.events {
			got = append(got, e.CorrelationID)
		}
		if !slices.Equal(got, want) || len(all[i].decision.outcomes) != 1 {
			t.Errorf("call %d has the events %q and %d outcomes, want %q", i, got, len(all[i].decision.outcomes), want)
		}
	}
}
