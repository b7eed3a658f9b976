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

// TestCachedRunAppendsInOneStatement checks that an append to a cached run is a single statement, and so is the
// creation of a run.
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
			t.Errorf("%s: the log in the result is not the stored one (-want +got):\n%s", r.Type, diff)
		}
		if len(statements) != 2 || !strings.HasPrefix(statements[0], "WITH run AS") || statements[1] != "COMMIT" {
			t.Errorf("%s took %q, want one statement and its commit", r.Type, statements)
		}
	}
	if got, want := fold(f.events(t, id)), f.rows(t, id); got.Run.LastSeq != 13 || got.Run.Status != want.Run.Status {
		t.Errorf("the fold of the log has run %+v, the rows have %+v", got.Run, want.Run)
	}
}

// TestCachedRunRefusesWithOneRead checks that a repeat or a refusal takes one statement, which locks nothing.
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
	if _, err := l.Append(t.Context(), home, forRun(started, id)); err != nil { // learns that there is no synchronous standby
		t.Fatal(err)
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
			t.Errorf("%s took %q, want one read", test.ask.Type, statements)
		}
		if err == nil && (result.Event.Type != test.ask.Type || result.Event.Seq != 2) {
			t.Errorf("%s returned %+v, want event 2", test.ask.Type, result.Event)
		}
	}
}

// TestStaleCacheRefusesNothing: a run that has ended according to a stale cache may be live.
func TestStaleCacheRefusesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	other := f.with(noQueue{})
	rows := f.rows(t, id)
	rows.Run.Status, rows.Run.EndSeq, rows.Run.LastSeq, rows.Run.CompletedAt = entities.RunCompleted, 1, 1, ptr(day)
	other.cacheRun(rows)
	if _, err := other.Append(t.Context(), home, forRun(failed, id)); err != nil {
		t.Errorf("got error %v about a live run", err)
	}
}

// TestRefusalOfUncachedEntityTakesLock: without the step in the cache, the reason of a refusal is unknown.
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
		cold.cache.runs.Remove(id)
	}
}

// TestStaleCacheFallsBackToLock checks that a log with a stale cache decides on what other processes have appended.
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
		"the end of the step":          {[]Request{started, step("step_created")}, []Request{step("step_completed")}, step("step_failed"), entities.ErrConflict},
		"the end of the wait":          {[]Request{started, sleep("wait_created")}, []Request{sleep("wait_completed")}, sleep("wait_completed"), entities.ErrConflict},
		"the start":                    {nil, []Request{started}, started, nil},
		"a hook and its hook_received": {[]Request{started}, []Request{hook("hook_created"), resumed}, completed, nil},
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
			f.wantVerified(t, id)
		})
	}
}

// TestUncachedEntityIsReadUnderLock: a step that is not cached may exist.
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
		t.Errorf("the log has %d events, want 4 as before", got)
	}
}

// TestCachedRunDoesNotWriteDeletedRows: if rows are not the fold of their log, an append fails as it does under the
// lock.
func TestCachedRunDoesNotWriteDeletedRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	if _, err := f.pool.Exec(t.Context(), `DELETE FROM steps WHERE run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	f.refused(t, on(id, "step_completed", "step_1"), entities.ErrStepNotFound)
	if got := len(f.events(t, id)); got != 3 {
		t.Errorf("the log has %d events, want 3 as before", got)
	}
}

// TestI1ConcurrentCachesKeepLogDense has many goroutines of several processes append to one run, which each process
// caches.
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
	f.wantVerified(t, id)
}

func TestCachedFactsByRequest(t *testing.T) {
	t.Parallel()
	known := []Request{created, started, step("step_created"), sleep("wait_created")}
	lazy := on(theRun, "step_started", "step_9")
	lazy.Data.StepName, lazy.Payload = "charge", []byte("step input")
	tests := map[string]struct {
		before []Request
		ask    Request
		want   bool
	}{
		"a new run":                        {nil, created, true},
		"a start that creates its run":     {nil, runRepaired(theRun), false},
		"an unknown run":                   {nil, started, false},
		"the first start":                  {known[:1], started, true},
		"another start":                    {known[:2], started, true},
		"an end":                           {known, completed, true},
		"a cancellation":                   {known[:1], cancelled, true},
		"a new step":                       {known, on(theRun, "step_created", "step_9"), true},
		"a new step that starts":           {known, lazy, true},
		"a start of an unknown step":       {known, on(theRun, "step_started", "step_9"), false},
		"a known step":                     {known, step("step_completed"), true},
		"a new wait":                       {known, on(theRun, "wait_created", "wait_9"), true},
		"the end of an unknown wait":       {known, on(theRun, "wait_completed", "wait_9"), false},
		"a known wait":                     {known, sleep("wait_completed"), true},
		"a hook, whose token may be taken": {known, hook("hook_created"), false},
		"a hook_received":                  {known, hook("hook_received"), true},
		"a hook_received after the end":    {append(known[:2:2], hook("hook_created"), completed), hook("hook_received"), false},
		"an attribute":                     {known, on(theRun, "attr_set", ""), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newRunCache()
			if test.before != nil {
				run := newMemoryRun(t, test.before...)
				c.store(decision{before: NewSnapshot(home), after: run.snapshot, events: run.log}, day)
			}
			if _, got := c.facts(home, []Request{test.ask}, day); got != test.want {
				t.Errorf("cached: %v, want %v", got, test.want)
			}
			if _, got := c.facts(stranger, []Request{test.ask}, day); got && test.ask.Type != entities.EventRunCreated {
				t.Error("the facts are cached for another project")
			}
		})
	}
}

// TestCachedFactsOfStores: a write needs to know the sizes of the store, which are cached once they were read, and a
// command also needs the whole log, which has the IDs that were used.
func TestCachedFactsOfStores(t *testing.T) {
	t.Parallel()
	command, step := storeSet("t", `{"l":2}`), writtenBy("step_1", `{"l":2}`)
	for name, tt := range map[string]struct {
		before  []Request
		ask     Request
		noLog   bool
		noSizes bool
		want    bool
	}{
		"a first command":             {nil, command, false, true, true},
		"a command":                   {[]Request{storeSet("s", `{"k":1}`)}, command, false, false, true},
		"a command, sizes unknown":    {[]Request{storeSet("s", `{"k":1}`)}, command, false, true, false},
		"a command, log unknown":      {[]Request{storeSet("s", `{"k":1}`)}, command, true, false, false},
		"a step":                      {[]Request{storeSet("s", `{"k":1}`)}, step, false, false, true},
		"a step, log unknown":         {[]Request{storeSet("s", `{"k":1}`)}, step, true, false, true},
		"a step, first, log unknown":  {nil, step, true, true, true},
		"a step, nothing but the run": {[]Request{storeSet("s", `{"k":1}`)}, step, true, true, false},
	} {
		c := newRunCache()
		run := newMemoryRun(t, append([]Request{startedDriven(), started}, tt.before...)...)
		d := decision{before: NewSnapshot(home), after: run.snapshot.clone(), events: run.log}
		if tt.noLog {
			d.before, d.events = run.snapshot, nil
		}
		if tt.noSizes {
			d.after.Store = nil
		}
		c.store(d, day)
		f, got := c.facts(home, []Request{tt.ask}, day)
		if got != tt.want {
			t.Errorf("%s: cached: %v, want %v", name, got, tt.want)
		}
		if got && len(tt.before) > 0 && (f.Store["k"].Size != 1 || f.Store["k"].JSON != nil) {
			t.Errorf("%s: the cache has the store %v", name, f.Store)
		}
	}
}

// TestStartWithInboxesNeedsNoFacts, unlike one with a hook whose token another run may have.
func TestStartWithInboxesNeedsNoFacts(t *testing.T) {
	t.Parallel()
	taken := opened
	taken.FreshToken = false
	c := newRunCache()
	if _, ok := c.facts(home, []Request{startedDriven(), opened, sent("m1"), sent("m1")}, day); !ok {
		t.Error("a start with an inbox and messages takes the lock")
	}
	if _, ok := c.facts(home, []Request{startedDriven(), taken}, day); ok {
		t.Error("a start with a hook of any token takes no lock")
	}
}

func TestCachedRunExpires(t *testing.T) {
	t.Parallel()
	s := newMemoryRun(t, created, started).snapshot
	d := decision{before: NewSnapshot(home), after: s}
	cached := func(c *runCache, at time.Time) bool {
		_, ok := c.facts(home, []Request{completed}, at)
		return ok
	}
	c := newRunCache()
	c.store(d, day)
	if !cached(c, day.Add(cacheTTL)) || cached(c, day.Add(cacheTTL+time.Millisecond)) {
		t.Error("a run is not cached until the TTL is over, or is cached for longer")
	}
	c.runs.Remove(theRun)
	if cached(c, day) {
		t.Error("an evicted run is cached")
	}
	c.store(d, day)
	longer := newMemoryRun(t, created, started, step("step_created")).snapshot
	for range 2 { // the first detects it
		c.store(decision{before: longer, after: longer}, day)
		if cached(c, day) {
			t.Error("a run that another process appends to is cached")
		}
	}
	later := day.Add(cacheTTL + time.Millisecond)
	c.store(decision{before: longer, after: longer}, later)
	if !cached(c, later) {
		t.Error("a run that was shared is never cached again")
	}
}

// TestLogIsCachedWholeOrNotAtAll checks the limits of cached logs.
func TestLogIsCachedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	var d decision
	next := func(c *runCache, payload int, grow func(*decision)) []entities.Event {
		d.before = &Snapshot{Project: home, Run: d.after.Run}
		run := *d.after.Run
		run.LastSeq++
		d.after = &Snapshot{Project: home, Run: &run}
		d.events = []entities.Event{{RunID: theRun, Seq: run.LastSeq, Payload: make([]byte, payload)}}
		if grow != nil {
			grow(&d)
		}
		c.store(d, day)
		return c.logOf(d.after.Run)
	}
	begin := func() *runCache {
		d = decision{before: NewSnapshot(home), after: &Snapshot{Project: home, Run: &entities.Run{ID: theRun}}}
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
		"much too long": {cachedEvents + 9, 10, false},
	}
	for name, test := range tests {
		c := begin()
		var log []entities.Event
		for i := range test.events {
			log = next(c, test.payload, func(d *decision) {
				if i == 0 {
					d.before = NewSnapshot(home)
				}
			})
		}
		if got := len(log) == test.events; got != test.want || !test.want && log != nil {
			t.Errorf("%s: a log of %d events is cached with %d, want it cached: %v", name, test.events, len(log), test.want)
		}
	}
	c := begin()
	sent := []byte("sent")
	kept := next(c, 0, func(d *decision) {
		d.before = NewSnapshot(home)
		d.events[0].Payload, d.events[0].Extra = sent[:2], sent[2:]
	})
	if clear(sent); string(kept[0].Payload) != "se" || string(kept[0].Extra) != "nt" {
		t.Errorf("the log has %q and %q: it shares memory with the request", kept[0].Payload, kept[0].Extra)
	}
	c = begin()
	next(c, 1, func(d *decision) { d.before = NewSnapshot(home) })
	first := next(c, 1, nil)
	second := next(c, 1, nil)
	if len(first) != 2 || len(second) != 3 || cap(first) != 2 {
		t.Errorf("logs of %d and %d events, the first with room for %d; want 2, 3 and 2", len(first), len(second), cap(first))
	}
	d.after.Run.LastSeq++ // by another process
	if got := next(c, 1, nil); got != nil {
		t.Errorf("a log with a gap is cached with %d events", len(got))
	}
}

func TestCacheSerializesAppendsToRun(t *testing.T) {
	t.Parallel()
	c := newRunCache()
	release, err := c.acquire(t.Context(), theRun)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.acquire(t.Context(), "wrun_other")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.acquire(ctx, theRun); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait fails with %v, want %v", err, context.Canceled)
	}
	release()
	inside, most := 0, 0 // the race detector sees two goroutines that have acquired the run
	race(func(int) error {
		release, err := c.acquire(t.Context(), theRun)
		if err != nil {
			t.Error(err)
			return err
		}
		defer release()
		inside++
		most = max(most, inside)
		runtime.Gosched()
		inside--
		return nil
	})
	if most != 1 {
		t.Errorf("%d goroutines had acquired the run at once, want 1", most)
	}
	if len(c.queues) != 0 {
		t.Errorf("%d unused queues are left", len(c.queues))
	}
}
