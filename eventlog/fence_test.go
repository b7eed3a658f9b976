package eventlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// fencedRun returns the run_created of a run with a fence.
func fencedRun(id entities.RunID) Request {
	r := runCreated(id)
	r.SpecVersion = entities.SpecFence
	return r
}

// inBand returns the request as one of the orchestrator that knows so many in-band positions.
func inBand(r Request, known int64) Request {
	r.InBand, r.SeqInBand = true, &known
	return r
}

// fenced creates a run with a fence and appends the requests to it, each by an orchestrator that knows the log.
func (f *fixture) fenced(t tb, events ...Request) entities.RunID {
	t.Helper()
	id := newRunID()
	known := f.must(t, fencedRun(id)).Run.SeqInBand
	for _, r := range events {
		known = f.must(t, inBand(forRun(r, id), known)).Run.SeqInBand
	}
	return id
}

// counters are those of a run.
type counters struct{ Seq, InBand int64 }

func (f *fixture) counters(t tb, id entities.RunID) counters {
	t.Helper()
	run := f.rows(t, id).Run
	return counters{run.LastSeq, run.SeqInBand}
}

// superseded returns the counters in the refusal of a stale orchestrator.
func superseded(t tb, err error) counters {
	t.Helper()
	var e *entities.SupersededError
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a %T", err, e)
	}
	return counters{e.Seq, e.SeqInBand}
}

// TestFence is the list of §7 of the protocol: what every World with a fence must do.
func TestFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t)
	want := func(seq, inBand int64) {
		t.Helper()
		if got := f.counters(t, id); got != (counters{seq, inBand}) {
			t.Fatalf("counters are %v, want %v", got, counters{seq, inBand})
		}
	}
	want(1, 1)
	f.must(t, inBand(onRun(id, "run_started"), 1))
	want(2, 2)
	f.must(t, inBand(on(id, "step_created", "step_1"), 2))
	want(3, 3)
	for _, stale := range []Request{ // also those that would be refused or repeated otherwise
		inBand(on(id, "step_created", "step_2"), 2), inBand(on(id, "step_created", "step_1"), 2),
		inBand(on(id, "step_started", "step_1"), 4), inBand(onRun(id, "run_started"), 1), inBand(onRun(id, "run_completed"), 0),
		inBand(on(id, "hook_received", "nobody"), 0),
	} {
		_, err := f.Append(t.Context(), home, stale)
		if got := superseded(t, err); got != (counters{3, 3}) {
			t.Errorf("%s: the refusal has %v, want 3 and 3", stale.Type, got)
		}
	}
	want(3, 3)
	f.must(t, on(id, "step_started", "step_1")) // out-of-band
	want(4, 3)
	f.refused(t, inBand(on(id, "step_created", "step_1"), 3), entities.ErrConflict)
	f.refused(t, on(id, "step_created", "step_1"), entities.ErrConflict)
	if r := f.must(t, inBand(onRun(id, "run_started"), 3)); !r.Repeated {
		t.Error("a second run_started was written")
	}
	want(4, 3) // neither a refusal nor a repeat moves them
	if r := f.must(t, inBand(sleep("wait_created").on(id), 3)); r.Event.Seq != 5 {
		t.Errorf("the next write is at %d, want 5", r.Event.Seq)
	}
	want(5, 4)
	missing := inBand(on(id, "step_created", "step_3"), 4)
	missing.SeqInBand = nil
	f.refused(t, missing, entities.ErrInvalid)
	unfenced := on(id, "step_created", "step_3")
	unfenced.Unfenced = true
	f.refused(t, unfenced, entities.ErrInvalid)
	want(5, 4)
	f.wantVerified(t, id)
	f.exec(t, `UPDATE runs SET seq_in_band = 7 WHERE id = $1`, id)
	if err := Rebuild(t.Context(), f.pool, f.clock.now, id); err != nil {
		t.Fatal(err)
	}
	want(5, 4)
}

// on returns the request for another run.
func (r Request) on(id entities.RunID) Request { return forRun(r, id) }

func TestFenceOfRunThatIsCreatedByItsStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for expected, want := range map[int64]error{0: entities.ErrSuperseded, 1: nil, 2: entities.ErrSuperseded} {
		id := newRunID()
		repaired := runRepaired(id)
		repaired.SpecVersion = entities.SpecFence
		_, err := f.Append(t.Context(), home, inBand(repaired, expected))
		if !errors.Is(err, want) {
			t.Errorf("expecting %d: got %v, want %v", expected, err, want)
		}
		if want == nil && f.counters(t, id) != (counters{2, 2}) {
			t.Errorf("expecting %d: counters are %v, want 2 and 2", expected, f.counters(t, id))
		}
		if want != nil && f.rows(t, id).Run != nil {
			t.Errorf("expecting %d: the run was created", expected)
		}
	}
	unfenced := fencedRun(newRunID())
	unfenced.Unfenced = true
	f.refused(t, unfenced, entities.ErrInvalid)
}

// TestRunsWithoutFence: runs of earlier versions ignore the fence, and count nothing.
func TestRunsWithoutFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	old := runCreated(newRunID())
	old.SpecVersion = entities.SpecFence - 1
	f.must(t, old)
	for i, id := range []entities.RunID{id, old.RunID} {
		r := inBand(onRun(id, "run_started"), 7)
		r.SpecVersion, r.Unfenced = entities.SpecFence, true // the version of the run counts
		f.must(t, r)
		r = on(id, "step_created", "step_1")
		r.InBand = true
		f.must(t, r)
		if got := f.counters(t, id); got != (counters{3, 0}) {
			t.Errorf("run %d: counters are %v, want 3 and 0", i, got)
		}
		f.wantVerified(t, id)
	}
}

// TestFenceAllowsOneOfManyOrchestrators: of many that write at the same time, by one server or by several, one wins.
func TestFenceAllowsOneOfManyOrchestrators(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	logs := [3]*Log{f.Log, f.with(noQueue{}), f.with(noQueue{})}
	for name, ask := range map[string]func(l *Log, i int, id entities.RunID) error{
		"single": func(l *Log, i int, id entities.RunID) error {
			_, err := l.Append(t.Context(), home, inBand(on(id, "step_created", fmt.Sprint("step_", i)), 2))
			return err
		},
		"batch": func(l *Log, i int, id entities.RunID) error {
			outcomes, err := l.AppendBatch(t.Context(), home, id, []Request{
				inBand(on(id, "step_created", fmt.Sprint("step_", i)), 2), inBand(on(id, "step_started", fmt.Sprint("step_", i)), 2),
				inBand(on(id, "wait_created", fmt.Sprint("wait_", i)), 2),
			})
			for _, o := range outcomes {
				err = errors.Join(err, o.Err)
			}
			return err
		},
	} {
		for n, servers := range []int{1, len(logs)} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				id := f.fenced(t, onRun(theRun, "run_started"))
				wantOneWinner(t, race(func(i int) error { return ask(logs[i%servers], i, id) }), entities.ErrSuperseded)
				got := f.counters(t, id)
				if got.Seq != got.InBand || got.Seq != int64(len(f.events(t, id))) {
					t.Errorf("counters are %v, and the log has %d events", got, len(f.events(t, id)))
				}
				f.wantVerified(t, id)
			})
		}
	}
}

// TestOrchestratorsDoNotWaitForOthers: writes from outside never refuse those of the orchestrator.
func TestOrchestratorsDoNotWaitForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t, onRun(theRun, "run_started"))
	other := f.with(noQueue{})
	for i, err := range race(func(i int) (err error) {
		if i > 0 {
			_, err = other.Append(t.Context(), home, on(id, "attr_set", fmt.Sprint("attr_", i)))
			return err
		}
		for known := int64(2); known < 10 && err == nil; known++ {
			_, err = f.Append(t.Context(), home, inBand(on(id, "step_created", fmt.Sprint("step_", known)), known))
		}
		return err
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	if got := f.counters(t, id); got != (counters{2 + 8 + racers - 1, 10}) {
		t.Errorf("counters are %v", got)
	}
	f.wantVerified(t, id)
}

// TestFencedBatch: a batch has one fence. Its events are appended or refused one by one, and those after a refused one
// of the same entity are refused too.
func TestFencedBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	is := func(id entities.RunID, known int64, names ...string) (requests []Request) {
		for _, name := range names {
			var typ, entity string
			if _, err := fmt.Sscan(name, &typ, &entity); err != nil {
				t.Fatal(err)
			}
			requests = append(requests, inBand(on(id, entities.EventType(typ), entity), known))
		}
		return requests
	}
	whole := []string{"step_created a", "step_started a", "step_completed a", "step_created b", "wait_created w"}
	for name, c := range map[string]struct {
		events []string
		want   []string
		after  counters
	}{
		"all are new": {whole, []string{"3", "4", "5", "6", "7"}, counters{7, 7}},
		"an entity is refused": {
			[]string{"step_created old", "step_started old", "step_failed old", "step_created b", "step_started b"},
			[]string{"conflict", "conflict", "conflict", "4", "5"}, counters{5, 5},
		},
		"all are refused":        {[]string{"step_created old", "step_started old"}, []string{"conflict", "conflict"}, counters{3, 3}},
		"an entity does not end": {[]string{"step_completed old", "step_failed old"}, []string{"4", "conflict"}, counters{4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := []Request{onRun(theRun, "run_started")}
			known := int64(2)
			if name != "all are new" {
				before, known = append(before, on(theRun, "step_created", "old")), 3
			}
			id := f.fenced(t, before...)
			for _, stale := range []int64{known - 1, known + 1} {
				_, err := f.AppendBatch(t.Context(), home, id, is(id, stale, c.events...))
				if got := superseded(t, err); got != (counters{known, known}) {
					t.Errorf("the refusal has %v, want twice %d", got, known)
				}
			}
			outcomes, err := f.AppendBatch(t.Context(), home, id, is(id, known, c.events...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range outcomes {
				switch {
				case errors.Is(o.Err, entities.ErrConflict):
					got = append(got, "conflict")
				case o.Err != nil:
					got = append(got, o.Err.Error())
				default:
					got = append(got, fmt.Sprint(o.Event.Seq))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("outcomes differ (-want +got):\n%s", diff)
			}
			if at := f.counters(t, id); at != c.after {
				t.Errorf("counters are %v, want %v", at, c.after)
			}
			f.wantVerified(t, id)
		})
	}
}

func TestFencedBatchHasOneFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t, onRun(theRun, "run_started"))
	first, missing := inBand(on(id, "step_created", "a"), 2), inBand(on(id, "step_created", "a"), 2)
	missing.SeqInBand = nil
	for name, batch := range map[string][]Request{
		"two counts":        {first, inBand(on(id, "step_created", "b"), 3)},
		"half of it":        {first, on(id, "step_created", "b")},
		"no count":          {missing},
		"a later count":     {missing, inBand(on(id, "step_created", "b"), 2)},
		"out-of-band first": {on(id, "step_created", "b"), first},
	} {
		if _, err := f.AppendBatch(t.Context(), home, id, batch); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, entities.ErrInvalid)
		}
	}
	if got := f.counters(t, id); got != (counters{2, 2}) {
		t.Errorf("counters are %v, want 2 and 2", got)
	}
}

// TestFenceOfSeveralWrites: a commit has several writes of one orchestrator, each with the count after the one before.
func TestFenceOfSeveralWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t, onRun(theRun, "run_started"))
	writes := []Request{
		inBand(on(id, "step_created", "a"), 2), on(id, "attr_set", "x"), inBand(on(id, "step_started", "a"), 3),
		inBand(on(id, "step_created", "b"), 3), inBand(on(id, "step_created", "c"), 5),
	}
	var refused *RefusedError
	_, err := f.AppendEach(t.Context(), home, id, writes, AppendOptions{})
	if !errors.As(err, &refused) || refused.Index != 3 || !errors.Is(err, entities.ErrSuperseded) {
		t.Errorf("got %v, want the third refused", err)
	}
	if got := f.counters(t, id); got != (counters{2, 2}) {
		t.Errorf("counters are %v, want 2 and 2: nothing was written", got)
	}
	if _, err := f.AppendEach(t.Context(), home, id, writes[:3], AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := f.counters(t, id); got != (counters{5, 4}) {
		t.Errorf("counters are %v, want 5 and 4", got)
	}
	f.wantVerified(t, id)
}

func TestFailedInBandWriteLeavesNoTrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t, onRun(theRun, "run_started"))
	_, err := f.AppendEach(t.Context(), home, id, []Request{inBand(on(id, "step_created", "a"), 2)},
		AppendOptions{With: UnderLock{Write: fails}, Messages: []message.Message{}})
	if !hasFailed(err) {
		t.Fatalf("got %v, want the failure of the last statement", err)
	}
	if got := f.counters(t, id); got != (counters{2, 2}) || len(f.events(t, id)) != 2 {
		t.Errorf("counters are %v, want 2 and 2", got)
	}
	f.must(t, inBand(on(id, "step_created", "a"), 2))
}

// TestStaleCacheDoesNotPassTheFence: a server whose cache has an earlier count neither lets a stale orchestrator pass
// nor refuses the present one.
func TestStaleCacheDoesNotPassTheFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.with(noQueue{})
	id := f.fenced(t, onRun(theRun, "run_started")) // cached at 2
	if _, err := other.Append(t.Context(), home, inBand(on(id, "step_created", "a"), 2)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Append(t.Context(), home, inBand(on(id, "step_created", "b"), 2))
	if got := superseded(t, err); got != (counters{3, 3}) {
		t.Errorf("the refusal has %v, want 3 and 3", got)
	}
	g := f.with(noQueue{})
	g.cacheRun(f.rows(t, id)) // cached at 3
	if _, err := other.Append(t.Context(), home, inBand(on(id, "step_created", "c"), 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Append(t.Context(), home, inBand(on(id, "step_created", "d"), 4)); err != nil {
		t.Errorf("the present orchestrator was refused: %v", err)
	}
	f.clock.move(time.Second)
	f.wantVerified(t, id)
}

// TestFenceModel runs random writes of two orchestrators and of others, by two servers, beside a model of three
// numbers. A write of an orchestrator is accepted exactly if it has seen all in-band writes; so what one of them writes
// between two looks at the log is never interrupted by the other.
func TestFenceModel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		logs := [2]*Log{f.with(noQueue{}), f.with(noQueue{})}
		id := f.fenced(rt, onRun(theRun, "run_started"))
		want := counters{2, 2}
		knows := [2]int64{2, 2} // by orchestrator
		for n := range rapid.IntRange(1, 30).Draw(rt, "writes") {
			log := logs[rapid.IntRange(0, 1).Draw(rt, "server")]
			who := rapid.IntRange(0, 3).Draw(rt, "who") // 2 is an outsider, and 3 a reader
			if who == 3 {
				knows[n%2] = f.counters(rt, id).InBand
				continue
			}
			size := int64(rapid.IntRange(1, 3).Draw(rt, "events"))
			var batch []Request
			for i := range size {
				r := on(id, "step_created", fmt.Sprintf("step_%d_%d", n, i))
				if who < 2 {
					r = inBand(r, knows[who])
				}
				batch = append(batch, r)
			}
			outcomes, err := log.AppendBatch(t.Context(), home, id, batch)
			for _, o := range outcomes {
				err = errors.Join(err, o.Err)
			}
			if who < 2 && knows[who] != want.InBand {
				if got := superseded(rt, err); got != want {
					rt.Fatalf("the refusal has %v, want %v", got, want)
				}
				continue
			}
			if err != nil {
				rt.Fatalf("write %d of %d was refused: %v", n, who, err)
			}
			want.Seq += size
			if who < 2 {
				want.InBand += size
				knows[who] = want.InBand
			}
		}
		if got := f.counters(rt, id); got != want {
			rt.Fatalf("counters are %v, want %v", got, want)
		}
		f.wantVerified(rt, id)
	})
}

// TestLateEventsOfFencedRun: results are recorded after the end of the run, and the number of an attempt is the
// client's.
func TestLateEventsOfFencedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.fenced(t, onRun(theRun, "run_started"), on(theRun, "step_created", "a"), on(theRun, "step_created", "b"),
		on(theRun, "wait_created", "w"))
	attempt := func(n int) Request {
		r := on(id, "step_started", "a")
		r.Data.Attempt = &n
		return r
	}
	retrying := on(id, "step_retrying", "a")
	retrying.Data.RetryAfter = ptr(day.Add(time.Hour))
	for _, r := range []Request{attempt(1), retrying, attempt(5), attempt(2)} { // in any order, and when their client wants
		f.must(t, r)
	}
	if got := f.rows(t, id).Steps["a"].Attempt; got != 2 {
		t.Errorf("the attempt is %d, want 2", got)
	}
	f.must(t, onRun(id, "run_cancelled"))
	if r := f.must(t, on(id, "wait_completed", "w")); r.Wait != nil || r.Event.Type != "wait_completed" {
		t.Errorf("got %+v, want the event and no wait", r)
	}
	f.must(t, on(id, "step_completed", "a"))
	f.must(t, inBand(on(id, "step_failed", "b"), 5)) // which never started
	f.refused(t, attempt(6), entities.ErrRunEnded)
	f.refused(t, on(id, "step_created", "c"), entities.ErrRunEnded)
	f.refused(t, on(id, "wait_created", "x"), entities.ErrRunEnded)
	f.refused(t, retrying, entities.ErrRunEnded)
	if diff := cmp.Diff(fold(f.events(t, id)), f.rows(t, id)); diff != "" {
		t.Errorf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	f.wantVerified(t, id)
}
