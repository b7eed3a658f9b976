package eventlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestCachedRunsTakeBoundedMemory, which follows the load: each addition removes the runs that have expired.
func TestCachedRunsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	c := newRunCache()
	c.runs = newRuns(100 * runMemory)
	add := func(payload int, at time.Time) {
		run := *newMemoryRun(t, created, started).snapshot.Run
		run.ID, run.LastSeq = newRunID(), 1
		d := decision{before: NewSnapshot(home), after: &Snapshot{Project: home, Run: &run}}
		d.events = []entities.Event{{Payload: make([]byte, payload)}}
		c.store(d, at)
		c.store(decision{before: d.after, after: d.after}, at) // counts once
	}
	for name, tt := range map[string]struct{ payload, want int }{
		"small": {0, 100 * runMemory / (runMemory + eventMemory)},
		"large": {3 * runMemory, 100 * runMemory / (4*runMemory + eventMemory)},
	} {
		for range 200 {
			add(tt.payload, day)
		}
		runs, bytes := c.runs.Contents()
		if len(runs) != tt.want {
			t.Errorf("%d %s runs are cached, want %d", len(runs), name, tt.want)
		}
		if size := runMemory + eventMemory + tt.payload; bytes != tt.want*size {
			t.Errorf("%s: %d bytes are counted, want %d runs of %d", name, bytes, tt.want, size)
		}
	}
	add(0, day.Add(cacheTTL+time.Millisecond))
	if runs, bytes := c.runs.Contents(); len(runs) != 1 || bytes != runMemory+eventMemory {
		t.Errorf("%d runs of %d bytes are cached after the others have expired, want 1", len(runs), bytes)
	}
}

// TestCachedLogIsReturnedUntilAnotherServerAppends: then it may be used only by who knows that it is long enough.
func TestCachedLogIsReturnedUntilAnotherServerAppends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, two := f.with(noQueue{}), f.with(noQueue{})
	id := newRunID()
	for _, r := range []Request{created, started} {
		if _, err := one.Append(t.Context(), home, forRun(r, id)); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := one.Cached(t.Context(), home, id, 0)
	if diff := cmp.Diff(f.events(t, id), got.Log); !ok || diff != "" || got.Run.LastSeq != 2 {
		t.Errorf("got %+v, %v, want the whole log (-want +got):\n%s", got.Run, ok, diff)
	}
	if _, err := two.Append(t.Context(), home, forRun(step("step_created"), id)); err != nil {
		t.Fatal(err)
	}
	if got, ok := one.Cached(t.Context(), home, id, 0); ok || got.Log != nil || got.Run.ID != "" {
		t.Errorf("got run %q with %d events, %v, after another server's append", got.Run.ID, len(got.Log), ok)
	}
	for length, want := range map[int64]bool{1: true, 2: true, 3: false} {
		if got, ok := one.Cached(t.Context(), home, id, length); ok != want || ok && len(got.Log) != 2 {
			t.Errorf("got %d events, %v, of at least %d; two are cached", len(got.Log), ok, length)
		}
	}
}

// TestWaitThatExistsIsNotCreatedWithTheEndOfItsRun, although the end deletes the waits and this server has cached the
// run without the wait.
func TestWaitThatExistsIsNotCreatedWithTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, sleep("wait_created"))
	other := f.with(noQueue{})
	if _, err := other.Append(t.Context(), home, forRun(step("step_created"), id)); err != nil {
		t.Fatal(err)
	}
	outcomes, err := other.AppendBatch(t.Context(), home, id, []Request{sleep("wait_created"), completed})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(outcomes[0].Err, entities.ErrConflict) || outcomes[1].Err != nil {
		t.Errorf("got %v and %v, want a conflict and no error", outcomes[0].Err, outcomes[1].Err)
	}
	if got, want := f.types(t, id), []entities.EventType{
		"run_created", "run_started", "wait_created", "step_created", "run_completed",
	}; !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
}

// TestCacheIsBounded checks the limit of the steps of a run, and that those that have ended make room for others.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newRunCache()
	s := newMemoryRun(t, created, started).snapshot
	for i := range cachedEntities + 10 {
		id := entities.StepID(fmt.Sprintf("step_%d", i))
		s.Steps[id] = entities.Step{ID: id}
	}
	c.store(decision{before: NewSnapshot(home), after: s}, day)
	run, _ := c.runs.Peek(theRun)
	if len(run.Steps) != cachedEntities {
		t.Errorf("%d steps are cached, want %d", len(run.Steps), cachedEntities)
	}
	open := slices.Collect(maps.Keys(run.Steps))[0]
	for id, step := range run.Steps {
		if id != open {
			step.CompletedAt = &day
			run.Steps[id] = step
		}
	}
	addUpToLimit(run.Steps, map[entities.StepID]entities.Step{"new": {ID: "new"}}, stepEnded)
	if _, ok := run.Steps["new"]; !ok || len(run.Steps) != 2 || run.Steps[open].ID != open {
		t.Errorf("the cached steps are %v, want the new one and the open one", run.Steps)
	}
}

// TestOneAppendHasOneStatement, in whichever order the waits are found that it changes: each order would be planned.
func TestOneAppendHasOneStatement(t *testing.T) {
	t.Parallel()
	before, after := map[entities.WaitID]entities.Wait{}, map[entities.WaitID]entities.Wait{}
	for _, id := range []entities.WaitID{"a", "b", "c"} {
		before[id], after[id] = entities.Wait{ID: id}, entities.Wait{ID: id, ResumeAt: &day}
		after["next "+id] = entities.Wait{ID: "next " + id}
	}
	texts := map[string]bool{}
	for range 100 {
		var b pgx.Batch
		writeChanged(pg.Batch{Batch: &b}, before, after, eachAlone(store.InsertWait), eachAlone(store.UpdateWait))
		text := ""
		for _, q := range b.QueuedQueries {
			text += q.SQL
		}
		texts[text] = true
	}
	if len(texts) != 1 {
		t.Errorf("an append has %d texts", len(texts))
	}
}
