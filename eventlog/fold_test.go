package eventlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestI1I2RowsAreTheFoldOfADenseLog sends random requests to two runs that contend for tokens, and to a model of each
// in memory. Both agree on every answer. In the end each log is dense, and the rows, the model and the fold of the log
// are equal.
func TestI1I2RowsAreTheFoldOfADenseLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		runs := []*model{newModel(rt), newModel(rt)}
		now := day
		log := New(f.pool, f.hub, noQueue{}, func() time.Time { return now })
		for range rapid.IntRange(20, 60).Draw(rt, "requests") {
			i := rapid.IntRange(0, 1).Draw(rt, "run")
			one, other := runs[i], runs[1-i]
			now = now.Add(drawElapsed(rt))
			if oneIn(rt, 2, "a batch") {
				one.compareBatch(rt, log, drawBatch(rt, one, other), now)
			} else {
				one.compare(rt, log, other, drawRequest(rt, one, other), now)
			}
		}
		for _, one := range runs {
			one.checkRuns(rt, f)
		}
	})
}

// TestI2AppendedRowsAreVerifiedAndRebuilt damages the rows of random runs and restores them from the log. Some of the
// runs have a fence.
func TestI2AppendedRowsAreVerifiedAndRebuilt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		one, other := newModel(rt), newModel(rt)
		one.versions = append(one.versions, entities.SpecFence)
		now := day
		log := f.with(noQueue{})
		for range rapid.IntRange(1, 30).Draw(rt, "requests") {
			one.compare(rt, log, other, drawRequest(rt, one, other), now)
		}
		if one.snapshot.Run == nil {
			return
		}
		f.wantVerified(rt, one.id)
		table := rapid.SampledFrom([]string{"steps", "hooks", "waits", "run_store"}).Draw(rt, "table")
		f.exec(rt, `DELETE FROM `+table+` WHERE run_id = $1`, one.id)
		f.exec(rt, `UPDATE runs SET last_seq = last_seq + 7, seq_in_band = 0, workflow_name = 'damaged' WHERE id = $1`, one.id)
		if err := Rebuild(t.Context(), f.pool, f.clock.now, one.id); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(one.snapshot, f.rows(rt, one.id)); diff != "" {
			rt.Fatalf("rows differ after the rebuild (-model +rows):\n%s", diff)
		}
		f.wantVerified(rt, one.id)
	})
}

// model is a run in memory.
type model struct {
	*memoryRun
	id entities.RunID
	// versions are those that it may be created with. The requests of a batch must not be for a run with a fence, where
	// they depend on each other.
	versions []int
	// lost are the expired hooks whose token another run has taken.
	lost []entities.HookID
}

func newModel(t tb) *model {
	return &model{memoryRun: newMemoryRun(t), id: newRunID(), versions: []int{3, 7}}
}

func (m *model) compare(t *rapid.T, log *Log, other *model, r Request, now time.Time) {
	t.Helper()
	m.at = now.Truncate(time.Millisecond)
	m.otherHooks = map[string]entities.Hook{}
	for _, hook := range other.snapshot.Hooks {
		m.otherHooks[hook.Token] = hook
	}
	var want []entities.Event
	exact := truncated(r)
	wantErr := exact.validate(m.at)
	if wantErr == nil {
		want, wantErr = m.append(exact)
	}
	got, err := log.Append(t.Context(), home, r)
	m.compareLog(t, &got)
	compareOutcomes(t, r, m.outcome(exact, want, wantErr), Outcome{Result: got, Err: err})
	if len(want) == 1 && want[0].Type == entities.EventHookCreated {
		if hook, ok := m.otherHooks[r.Data.Token]; ok {
			delete(other.snapshot.Hooks, hook.ID)
			other.lost = append(other.lost, hook.ID)
		}
	}
}

// truncated returns a request as the log truncates it.
func truncated(r Request) Request {
	r.truncate()
	return r
}

// compareBatch appends a batch, and its requests one after the other to the model.
func (m *model) compareBatch(t *rapid.T, log *Log, batch []Request, now time.Time) {
	t.Helper()
	m.at = now.Truncate(time.Millisecond)
	got, err := log.AppendBatch(t.Context(), home, m.id, batch)
	wantErr := validateBatch(batch)
	if wantErr == nil && m.snapshot.Run == nil {
		wantErr = entities.ErrRunNotFound
	}
	if wantErr != nil {
		if errors.Is(wantErr, entities.ErrInvalid) {
			wantErr = entities.ErrInvalid
		}
		if !errors.Is(err, wantErr) {
			t.Fatalf("batch: got error %v, want %v", err, wantErr)
		}
		return
	}
	if err != nil || len(got) != len(batch) {
		t.Fatalf("batch of %d: got %d outcomes and error %v", len(batch), len(got), err)
	}
	var before Outcome
	for i, r := range batch {
		want := Outcome{Err: before.Err}
		if i == 0 || before.Err == nil || !r.startsStepOf(&batch[i-1]) {
			events, err := m.append(truncated(r))
			want = m.outcome(truncated(r), events, err)
		}
		log := got[i].Log
		got[i].Log = nil
		compareOutcomes(t, r, want, got[i])
		before, got[i].Log = want, log
	}
	for i := range got {
		m.compareLog(t, &got[i].Result)
	}
}

// compareLog compares the log in the result, if there is one, and removes it.
func (m *model) compareLog(t *rapid.T, got *Result) {
	t.Helper()
	if diff := cmp.Diff(m.log, got.Log); got.Log != nil && diff != "" {
		t.Fatalf("the log in the result differs (-want +got):\n%s", diff)
	}
	got.Log = nil
}

// outcome returns the expected outcome of a request that leads to the events or the error.
func (m *model) outcome(r Request, events []entities.Event, err error) Outcome {
	switch {
	case errors.Is(err, errRepeated):
		return Outcome{Result: resultOf(m.snapshot, m.at, m.facts(r).earlierOf(&r), &r, Result{Repeated: true})}
	case err != nil:
		return Outcome{Err: err}
	}
	return Outcome{Result: resultOf(m.snapshot, m.at, &events[len(events)-1], &r, Result{StepCreated: len(events) == 2 &&
		r.Type == entities.EventStepStarted})}
}

func compareOutcomes(t *rapid.T, r Request, want, got Outcome) {
	t.Helper()
	if fmt.Sprint(want.Err) != fmt.Sprint(got.Err) && fmt.Sprint(want.Err) != fmt.Sprint(unwrapAppendError(got.Err)) {
		t.Fatalf("%s %s: got error %v, want %v", r.Type, r.CorrelationID, got.Err, want.Err)
	}
	if want.Repeated && want.Event != nil {
		event := *want.Event
		event.Payload = nil // payloads are not read for repeats
		want.Event = &event
	}
	if diff := cmp.Diff(want.Result, got.Result); diff != "" {
		t.Fatalf("%s %s: result differs (-want +got):\n%s", r.Type, r.CorrelationID, diff)
	}
}

// unwrapAppendError returns the error without the prefix of Append.
func unwrapAppendError(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (m *model) checkRuns(t *rapid.T, f *fixture) {
	t.Helper()
	rows := f.rows(t, m.id)
	if diff := cmp.Diff(m.snapshot, rows); diff != "" {
		t.Fatalf("rows differ from the model (-model +rows):\n%s", diff)
	}
	if m.snapshot.Run == nil {
		return
	}
	events := f.events(t, m.id)
	if diff := cmp.Diff(m.log, events); diff != "" {
		t.Fatalf("log differs from the model (-model +log):\n%s", diff)
	}
	folded := fold(events)
	for _, id := range m.lost {
		delete(folded.Hooks, id)
	}
	if diff := cmp.Diff(folded, rows); diff != "" {
		t.Fatalf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	wantDense(t, events)
}

// wantDense fails the test unless positions count from 1 and times never decrease (I1).
func wantDense(t tb, events []entities.Event) {
	t.Helper()
	last := time.Time{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has position %d: %v", i+1, e.Seq, typesOf(events))
		}
		if e.CreatedAt.Before(last) {
			t.Fatalf("event %d is from %s, before the previous one, %s", i+1, e.CreatedAt, last)
		}
		last = e.CreatedAt
	}
}
