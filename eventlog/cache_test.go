package eventlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// TestCachedRunAppendsInOneStatement: of an append to a run that this process has just appended to, Postgres sees a
// single statement, and of a new run's first.
func TestCachedRunAppendsInOneStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	session := gate.Open(t, dsn, f.pool, nil)
	l := f.logOver(session.Pool, 0)
	lazy := on(theRun, "step_started", "step_2")
	lazy.Data.StepName, lazy.Payload = "charge", []byte("step input")
	id := newRunID()
	for _, r := range []Request{
		created, started, step("step_created"), step("step_started"), step("step_retrying"), step("step_started"),
		step("step_completed"), lazy, on(theRun, "step_failed", "step_2"), sleep("wait_created"), sleep("wait_completed"),
		completed,
	} {
		var result Result
		var err error
		statements := session.Run(t, -1, gate.None, func() { result, err = l.Append(t.Context(), home, forRun(r, id)) })
		if err != nil {
			t.Fatalf("%s: %v", r.Type, err)
		}
		if diff := cmp.Diff(f.events(t, id), result.Log); diff != "" {
			t.Errorf("%s: the log that came along is not the one that is stored (-want +got):\n%s", r.Type, diff)
		}
		if len(statements) != 2 || !strings.HasPrefix(statements[0], "WITH run AS") || statements[1] != "COMMIT" {
			t.Errorf("%s took %q, want one statement and its commit", r.Type, statements)
		}
	}
	if got, want := fold(f.events(t, id)), f.rows(t, id); got.Run.LastSeq != 13 || got.Run.Status != want.Run.Status {
		t.Errorf("the log adds up to %+v, the rows say %+v", got.Run, want.Run)
	}
}

// TestCachedRunRefusesWithOneRead: that something is so already, or cannot be, takes one statement that locks nothing,
// and no commit but its own.
func TestCachedRunRefusesWithOneRead(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	session := gate.Open(t, dsn, f.pool, nil)
	l := f.logOver(session.Pool, 0)
	id := newRunID()
	for _, r := range []Request{created, started, step("step_created"), step("step_completed")} {
		if _, err := l.Append(t.Context(), home, forRun(r, id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		ask  Request
		want error
	}{
		{started, nil}, {step("step_created"), entities.ErrConflict}, {step("step_failed"), entities.ErrConflict},
		{completed, nil}, {completed, entities.ErrConflict}, {failed, entities.ErrConflict},
	} {
		var result Result
		var err error
		statements := session.Run(t, -1, gate.None, func() { result, err = l.Append(t.Context(), home, forRun(test.ask, id)) })
		if !errors.Is(err, test.want) {
			t.Fatalf("%s: got error %v, want %v", test.ask.Type, err, test.want)
		}
		if err == nil && !result.Repeated {
			continue // it was written
		}
		if len(statements) != 2 || !strings.HasPrefix(statements[0], "SELECT EXISTS") {
			t.Errorf("%s took %q, want a look", test.ask.Type, statements)
		}
		if err == nil && (result.Event.Type != test.ask.Type || result.Event.Seq != 2) {
			t.Errorf("%s repeats %+v, want event 2", test.ask.Type, result.Event)
		}
	}
}

// TestStaleCacheRefusesNothing: what was believed to have ended may live.
func TestStaleCacheRefusesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	other := f.with(noQueue{})
	rows := f.rows(t, id)
	rows.Run.Status, rows.Run.EndSeq, rows.Run.LastSeq, rows.Run.CompletedAt = entities.RunCompleted, 1, 1, ptr(day)
	other.cacheRun(rows)
	if _, err := other.Append(t.Context(), home, forRun(failed, id)); err != nil {
		t.Errorf("got error %v about a run that lives", err)
	}
}

// TestRefusalOfUncachedEntityTakesLock: of a step that is not remembered it is not known why it cannot be created.
func TestRefusalOfUncachedEntityTakesLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), completed)
	rows := f.rows(t, id)
	clear(rows.Steps)
	cold, other := f.with(noQueue{}), f.with(noQueue{})
	other.cacheRun(rows)
	for _, ask := range []Request{step("step_created"), on(theRun, "step_created", "step_2")} {
		_, want := cold.Append(t.Context(), home, forRun(ask, id))
		_, got := other.Append(t.Context(), home, forRun(ask, id))
		if want == nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got error %v, want %v", ask.CorrelationID, got, want)
		}
		cold.cache.evict(id)
	}
}

// TestStaleCacheFallsBackToLock: what others have done in the meantime counts, whatever they did.
func TestStaleCacheFallsBackToLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	resumed := hook("hook_received")
	resumed.Data.ResumeID = "resume_1"
	tests := map[string]struct {
		before []Request // of both
		other  []Request // of the other process
		ask    Request
		want   error
	}{
		"another step":                 {[]Request{started}, []Request{on(theRun, "step_created", "step_2")}, step("step_created"), nil},
		"the same step":                {[]Request{started}, []Request{step("step_created")}, step("step_created"), entities.ErrConflict},
		"another end":                  {[]Request{started}, []Request{completed}, failed, entities.ErrConflict},
		"the same end":                 {[]Request{started}, []Request{completed}, completed, entities.ErrConflict},
		"the step's end":               {[]Request{started, step("step_created")}, []Request{step("step_completed")}, step("step_failed"), entities.ErrConflict},
		"the wait's end":               {[]Request{started, sleep("wait_created")}, []Request{sleep("wait_completed")}, sleep("wait_completed"), entities.ErrConflict},
		"the start":                    {nil, []Request{started}, started, nil},
		"a hook, and what it received": {[]Request{started}, []Request{hook("hook_created"), resumed}, completed, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, other := newRunID(), f.with(noQueue{})
			one := fixture{Log: f.with(noQueue{}), clock: f.clock}
			one.must(t, runCreated(id))
			for _, r := range test.before {
				one.must(t, forRun(r, id))
			}
			for _, r := range test.other {
				if _, err := other.Append(t.Context(), home, forRun(r, id)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := one.Append(t.Context(), home, forRun(test.ask, id)); !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
			wantDense(t, f.events(t, id))
			wantVerified(t, f, id)
		})
	}
}

// TestUncachedEntityIsReadUnderLock: a step of which nothing is remembered may be there all the same.
func TestUncachedEntityIsReadUnderLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), sleep("wait_created"))
	for _, ask := range []Request{step("step_created"), sleep("wait_created")} {
		rows := f.rows(t, id)
		clear(rows.Steps)
		clear(rows.Waits)
		f.cacheRun(rows)
		f.refused(t, forRun(ask, id), entities.ErrConflict)
	}
	if got := len(f.events(t, id)); got != 4 {
		t.Errorf("the log has %d events, want the 4 that it had", got)
	}
}

// TestCachedRunDoesNotWriteDeletedRows: where rows are not what their log says, an append fails, as it does under
// the lock.
func TestCachedRunDoesNotWriteDeletedRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	if _, err := f.pool.Exec(t.Context(), `DELETE FROM steps WHERE run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	f.refused(t, on(id, "step_completed", "step_1"), entities.ErrStepNotFound)
	if got := len(f.events(t, id)); got != 3 {
		t.Errorf("the log has %d events, want the 3 that it had", got)
	}
}

// TestI1ConcurrentCachesKeepLogDense has many of several processes append to one run, each believing that it knows it.
func TestI1ConcurrentCachesKeepLogDense(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	var logs [3]*Log
	for i := range logs {
		logs[i] = f.with(noQueue{})
	}
	const each = 10
	for i, err := range race(func(i int) error {
		for n := range each {
			l := logs[(i+n/4)%len(logs)]
			for _, event := range []entities.EventType{"step_created", "step_started", "step_completed"} {
				if _, err := l.Append(t.Context(), home, on(id, event, fmt.Sprintf("step_%d_%d", i, n))); err != nil {
					return fmt.Errorf("%s: %w", event, err)
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	events := f.events(t, id)
	wantDense(t, events)
	if got, want := len(events), 2+3*each*racers; got != want {
		t.Errorf("the log has %d events, want %d", got, want)
	}
	wantVerified(t, f, id)
}

// wantVerified fails the test unless the run's rows are the fold of its log.
func wantVerified(t *testing.T, f *fixture, id entities.RunID) {
	t.Helper()
	audit := NewAudit(f.pool, f.clock.now)
	if err := audit.Verify(t.Context(), id, func(d Difference) { t.Errorf("not the fold of the log: %+v", d) }); err != nil {
		t.Fatal(err)
	}
}

func TestCachedFactsByRequest(t *testing.T) {
	t.Parallel()
	known := []Request{created, started, step("step_created"), sleep("wait_created")}
	lazy := on(theRun, "step_started", "step_9")
	lazy.Data.StepName, lazy.Payload = "charge", []byte("step input")
	tests := map[string]struct {
		story []Request
		ask   Request
		want  bool
	}{
		"a new run":                     {nil, created, true},
		"a start that repairs":          {nil, runRepaired(theRun), false},
		"an unknown run":                {nil, started, false},
		"the first start":               {known[:1], started, true},
		"another start":                 {known[:2], started, true},
		"an end":                        {known, completed, true},
		"a cancellation":                {known[:1], cancelled, true},
		"a new step":                    {known, on(theRun, "step_created", "step_9"), true},
		"a new step that starts":        {known, lazy, true},
		"a start of an unknown step":    {known, on(theRun, "step_started", "step_9"), false},
		"a known step":                  {known, step("step_completed"), true},
		"a new wait":                    {known, on(theRun, "wait_created", "wait_9"), true},
		"the end of an unknown wait":    {known, on(theRun, "wait_completed", "wait_9"), false},
		"a known wait":                  {known, sleep("wait_completed"), true},
		"a hook, whose token is others": {known, hook("hook_created"), false},
		"a payload":                     {known, hook("hook_received"), false},
		"an attribute":                  {known, on(theRun, "attr_set", ""), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newRunCache()
			if test.story != nil {
				told := newMemoryRun(t, test.story...)
				m.store(decision{before: NewSnapshot(home), after: told.snapshot, events: told.log}, day)
			}
			if _, got := m.facts(home, []Request{test.ask}, day); got != test.want {
				t.Errorf("recalled: %v, want %v", got, test.want)
			}
			if _, got := m.facts(stranger, []Request{test.ask}, day); got && test.ask.Type != entities.EventRunCreated {
				t.Error("another project recalls it, too")
			}
		})
	}
}

func TestCachedRunExpires(t *testing.T) {
	t.Parallel()
	s := newMemoryRun(t, created, started).snapshot
	j := decision{before: NewSnapshot(home), after: s}
	recalls := func(m *runCache, at time.Time) bool {
		_, ok := m.facts(home, []Request{completed}, at)
		return ok
	}
	m := newRunCache()
	m.store(j, day)
	if !recalls(m, day.Add(cacheTTL)) || recalls(m, day.Add(cacheTTL+time.Millisecond)) {
		t.Error("a run is not remembered for its time, or for longer")
	}
	m.evict(theRun)
	if recalls(m, day) {
		t.Error("a run is remembered that was forgotten")
	}
	m.store(j, day)
	longer := newMemoryRun(t, created, started, step("step_created")).snapshot
	for range 2 { // the first finds it out
		m.store(decision{before: longer, after: longer}, day)
		if recalls(m, day) {
			t.Error("a run is believed in that another process was found to append to")
		}
	}
	later := day.Add(cacheTTL + time.Millisecond)
	m.store(decision{before: longer, after: longer}, later)
	if !recalls(m, later) {
		t.Error("a run that was shared is never believed in again")
	}
}

// TestLogIsCachedWholeOrNotAtAll or not at all.
func TestLogIsCachedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	var j decision
	next := func(m *runCache, payload int, grow func(*decision)) []entities.Event {
		j.before = &Snapshot{Project: home, Run: j.after.Run}
		run := *j.after.Run
		run.LastSeq++
		j.after = &Snapshot{Project: home, Run: &run}
		j.events = []entities.Event{{RunID: theRun, Seq: run.LastSeq, Payload: make([]byte, payload)}}
		if grow != nil {
			grow(&j)
		}
		m.store(j, day)
		return m.logOf(j.after.Run)
	}
	begin := func() *runCache {
		j = decision{before: NewSnapshot(home), after: &Snapshot{Project: home, Run: &entities.Run{ID: theRun}}}
		return newRunCache()
	}
	tests := map[string]struct {
		events, payload int
		want            bool
	}{
		"short":         {3, 10, true},
		"long":          {cachedEvents, 10, true},
		"too long":      {cachedEvents + 1, 10, false},
		"large":         {2, cachedBytes / 2, true},
		"too large":     {2, cachedBytes/2 + 1, false},
		"never so soon": {cachedEvents + 9, 10, false},
	}
	for name, test := range tests {
		m := begin()
		var log []entities.Event
		for i := range test.events {
			log = next(m, test.payload, func(j *decision) {
				if i == 0 {
					j.before = NewSnapshot(home)
				}
			})
		}
		if got := len(log) == test.events; got != test.want || !test.want && log != nil {
			t.Errorf("%s: a log of %d events is remembered as %d, want it: %v", name, test.events, len(log), test.want)
		}
	}
	m := begin()
	sent := []byte("sent")
	kept := next(m, 0, func(j *decision) {
		j.before = NewSnapshot(home)
		j.events[0].Payload, j.events[0].Extra = sent[:2], sent[2:]
	})
	if clear(sent); string(kept[0].Payload) != "se" || string(kept[0].Extra) != "nt" {
		t.Errorf("the log has %q and %q: it keeps hold of the request", kept[0].Payload, kept[0].Extra)
	}
	m = begin()
	next(m, 1, func(j *decision) { j.before = NewSnapshot(home) })
	first := next(m, 1, nil)
	second := next(m, 1, nil)
	if len(first) != 2 || len(second) != 3 || cap(first) != 2 {
		t.Errorf("logs of %d and %d events, the first with room for %d; want 2, 3 and 2", len(first), len(second), cap(first))
	}
	j.after.Run.LastSeq++ // by another process
	if got := next(m, 1, nil); got != nil {
		t.Errorf("a log with a gap is remembered as %d events", len(got))
	}
}

// TestCacheIsBounded: by runs, and by steps of a run.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	m := newRunCache()
	s := newMemoryRun(t, created, started).snapshot
	for i := range cachedEntities + 10 {
		id := entities.StepID(fmt.Sprintf("step_%d", i))
		s.Steps[id] = entities.Step{ID: id}
	}
	m.store(decision{before: NewSnapshot(home), after: s}, day)
	if b, _ := m.runs.Peek(theRun); len(b.Steps) != cachedEntities {
		t.Errorf("%d steps are remembered, want %d", len(b.Steps), cachedEntities)
	}
	for range cachedRuns + 1 {
		run := *s.Run
		run.ID = newRunID()
		m.store(decision{before: NewSnapshot(home), after: &Snapshot{Project: home, Run: &run}}, day)
	}
	if got := m.runs.Len(); got != cachedRuns || m.runs.Contains(theRun) {
		t.Errorf("%d runs are remembered, want the last %d", got, cachedRuns)
	}
}

func TestCacheSerializesAppendsToRun(t *testing.T) {
	t.Parallel()
	m := newRunCache()
	leave, err := m.acquire(t.Context(), theRun)
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.acquire(t.Context(), "wrun_other")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.acquire(ctx, theRun); !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up waiting gets %v, want %v", err, context.Canceled)
	}
	leave()
	inside, most := 0, 0 // the race detector sees two who have the turn
	race(func(int) error {
		leave, err := m.acquire(t.Context(), theRun)
		if err != nil {
			t.Error(err)
			return err
		}
		defer leave()
		inside++
		most = max(most, inside)
		runtime.Gosched()
		inside--
		return nil
	})
	if most != 1 {
		t.Errorf("%d had the turn at once, want 1", most)
	}
	if len(m.queues) != 0 {
		t.Errorf("%d turnstiles are left that nobody uses", len(m.queues))
	}
}
