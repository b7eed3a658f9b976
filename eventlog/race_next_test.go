package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestI4ConcurrentLazyStartsHaveOneWinner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tests := map[string]func(i int, id entities.RunID) error{
		"all by a lazy start": func(_ int, id entities.RunID) error {
			result, err := f.Append(t.Context(), home, lazyStart(id, "step_1"))
			if err == nil && (!result.StepCreated || result.Step.Attempt != 1) {
				return fmt.Errorf("the winner got %+v", result)
			}
			return err
		},
		"some by a creation and a start": func(i int, id entities.RunID) error {
			if i%2 == 0 {
				_, err := f.Append(t.Context(), home, lazyStart(id, "step_1"))
				return err
			}
			outcomes, err := f.AppendBatch(t.Context(), home, id, createAndStart("step_1"))
			if err == nil && (outcomes[0].Err == nil) != (outcomes[1].Err == nil) {
				return fmt.Errorf("the creation and the start differ: %v", outcomeTexts(outcomes))
			}
			return errors.Join(err, outcomes[0].Err)
		},
	}
	for name, ask := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := f.run(t, started)
			wantOneWinner(t, race(func(i int) error { return ask(i, id) }), entities.ErrConflict)
			want := types{"run_created", "run_started", "step_created", "step_started"}
			if diff := cmp.Diff(want, f.types(t, id)); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
			if got := f.rows(t, id).Steps["step_1"]; got.Attempt != 1 || got.Status != entities.StepRunning {
				t.Errorf("the step is %s with attempt %d", got.Status, got.Attempt)
			}
		})
	}
}

func TestI4ConcurrentResumptionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, end := range map[string]entities.EventType{
		"hook lives": "", "hook is disposed of": "hook_disposed", "run ends": "run_completed",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := f.run(t, started, hook("hook_created"))
			results := make([]Result, racers)
			recorded := 0
			for i, err := range race(func(i int) (err error) {
				switch {
				case i > 0 || end == "":
					results[i], err = f.Append(t.Context(), home, resumption(id, "hook_1", "res_1", "d"))
				case end == entities.EventHookDisposed:
					_, err = f.Append(t.Context(), home, on(id, end, "hook_1"))
				default:
					_, err = f.Append(t.Context(), home, onRun(id, end))
				}
				return err
			}) {
				// All get a repeat once it is recorded. Otherwise the end of the hook came first.
				if err != nil && (end == "" || !errors.Is(err, entities.ErrHookNotFound)) {
					t.Errorf("racer %d: %v", i, err)
				}
			}
			for i, r := range results {
				if r.Event == nil {
					continue
				}
				if !r.Repeated {
					recorded++
				}
				if r.Event.Data.ResumeID != "res_1" {
					t.Errorf("racer %d got %+v", i, r.Event)
				}
			}
			if got := count(f.events(t, id), "hook_received"); got != recorded || got > 1 {
				t.Errorf("the log has %d hook_received, and %d racers recorded it; want the same, at most 1", got, recorded)
			}
			if end == "" && recorded != 1 {
				t.Errorf("%d were recorded, want 1", recorded)
			}
			f.wantFold(t, id)
		})
	}
}

func TestResumptionIsRepeatableAfterHookDisposal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, elsewhere := f.run(t, started, hook("hook_created")), f.run(t, started, hook("hook_created"))
	first := f.must(t, resumption(id, "hook_1", "res_1", "d"))
	f.must(t, on(id, "hook_disposed", "hook_1"))
	f.must(t, onRun(id, "run_completed"))
	again := f.must(t, resumption(id, "hook_1", "res_1", "d"))
	if diff := cmp.Diff(first.Event, again.Event); diff != "" || !again.Repeated || again.Hook != nil {
		t.Errorf("the repeat returned another event (-first +again):\n%s", diff)
	}
	f.refused(t, resumption(id, "hook_1", "res_1", "e"), entities.ErrConflict)
	f.refused(t, resumption(id, "hook_1", "res_2", "d"), entities.ErrHookNotFound)
	// Resume IDs are per run.
	if got := f.must(t, resumption(elsewhere, "hook_1", "res_1", "d")); got.Repeated {
		t.Error("the resumption of another run is a repeat")
	}
	if _, err := f.Append(t.Context(), stranger, resumption(id, "hook_1", "res_1", "d")); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("another project got error %v, want ErrRunNotFound (I9)", err)
	}
}

func TestRepeatedResumptionReturnsHookUntilExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hookRetained(theRun, "hook_1", "T", tokenRetention))
	f.must(t, resumption(id, "hook_1", "res_1", "d"))
	f.must(t, onRun(id, "run_completed"))
	f.clock.move(tokenRetention - time.Millisecond)
	if again := f.must(t, resumption(id, "hook_1", "res_1", "d")); again.Hook == nil {
		t.Error("before it expires: no hook")
	}
	f.clock.move(time.Millisecond)
	if again := f.must(t, resumption(id, "hook_1", "res_1", "d")); again.Hook != nil || !again.Repeated {
		t.Errorf("after it has expired: got %+v", again)
	}
}

// tokenRetention is how long the hooks of these tests retain their token.
const tokenRetention = time.Hour

// runWithExpiredHook creates an ended run with a hook that retains the token for a while.
func (f *fixture) runWithExpiredHook(t *testing.T, token string) entities.RunID {
	t.Helper()
	return f.run(t, started, hookRetained(theRun, "hook_1", token, tokenRetention), completed)
}

func TestRetainedTokenBySection3_8(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old, claimant := f.runWithExpiredHook(t, "T"), f.run(t, started)
	lookUp := func(id entities.HookID) error {
		_, byToken := store.HookByToken(t.Context(), f.pool, home, "T", f.Now())
		_, byID := store.HookByID(t.Context(), f.pool, home, id, f.Now())
		hooks, _, err := store.ListHooks(t.Context(), f.pool, home, "", f.Now(), pg.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if (byToken == nil) != (len(hooks) == 1) || (byID == nil) != (len(hooks) == 1) {
			t.Errorf("by token %v, by ID %v, but %d in the list", byToken, byID, len(hooks))
		}
		return byToken
	}
	f.clock.move(tokenRetention - time.Millisecond)
	if err := lookUp("hook_1"); err != nil {
		t.Errorf("before it expires: %v", err)
	}
	f.refused(t, on(old, "hook_received", "hook_1"), entities.ErrHookNotFound)
	lost := f.must(t, hookCreated(claimant, "hook_2", "T"))
	if lost.Event.Type != entities.EventHookConflict || lost.Event.Data.ConflictingRunID != old || lost.Hook != nil {
		t.Errorf("before it expires a claim got %+v, want a conflict with %s", lost.Event, old)
	}
	f.clock.move(time.Millisecond)
	if err := lookUp("hook_1"); !errors.Is(err, entities.ErrHookNotFound) {
		t.Errorf("when it has expired: got error %v, want ErrHookNotFound", err)
	}
	f.refused(t, on(old, "hook_disposed", "hook_1"), entities.ErrHookNotFound)
	if won := f.must(t, hookCreated(claimant, "hook_3", "T")); won.Event.Type != entities.EventHookCreated {
		t.Errorf("when it has expired a claim got %s, want hook_created", won.Event.Type)
	}
	if err := lookUp("hook_3"); err != nil {
		t.Errorf("after the claim: %v", err)
	}
	if got := f.rows(t, old).Hooks; len(got) != 0 {
		t.Errorf("the old hook still exists: %+v", got)
	}
	f.refused(t, on(old, "hook_disposed", "hook_1"), entities.ErrHookNotFound)
}

// TestI4ConcurrentClaimsOfExpiredTokenHaveOneWinner also has the old run dispose of its hook meanwhile, with a clock
// that is behind.
func TestI4ConcurrentClaimsOfExpiredTokenHaveOneWinner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	behind := New(f.pool, f.hub, noQueue{}, func() time.Time { return day })
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			token := fmt.Sprint("T", round)
			old := f.runWithExpiredHook(t, token)
			var ids []entities.RunID
			for range racers {
				ids = append(ids, f.run(t, started))
			}
			late := New(f.pool, f.hub, noQueue{}, func() time.Time { return day.Add(2 * tokenRetention) })
			results := make([]Result, racers)
			disposed := 0
			for i, err := range race(func(i int) (err error) {
				if i%4 == 3 {
					_, err = behind.Append(t.Context(), home, on(old, "hook_disposed", "hook_1"))
					return err
				}
				results[i], err = late.Append(t.Context(), home, hookCreated(ids[i], "hook_1", token))
				return err
			}) {
				switch {
				case i%4 == 3 && err == nil:
					disposed++
				case i%4 == 3 && errors.Is(err, entities.ErrHookNotFound):
				case err != nil:
					t.Errorf("racer %d: %v", i, err)
				}
			}
			holder, err := store.HookByToken(t.Context(), f.pool, home, token, day.Add(2*tokenRetention))
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				if i%4 == 3 {
					continue
				}
				want := entities.EventHookConflict
				if ids[i] == holder.RunID {
					want = entities.EventHookCreated
				} else if got := r.Event.Data.ConflictingRunID; got != holder.RunID {
					t.Errorf("racer %d lost to run %q, want %s", i, got, holder.RunID)
				}
				if r.Event.Type != want {
					t.Errorf("racer %d got %s, want %s", i, r.Event.Type, want)
				}
				f.wantFold(t, ids[i])
			}
			if got := count(f.events(t, old), "hook_disposed"); got != disposed || disposed > 1 {
				t.Errorf("the old run has %d hook_disposed and %d racers appended it; want the same, at most 1", got, disposed)
			}
			if got := f.rows(t, old).Hooks; len(got) != 0 {
				t.Errorf("the old hook still exists: %+v", got)
			}
		})
	}
}

// TestI4ClaimOfExpiredTokenWaitsForFirst checks that a claim waits for a disposal of the hook, and a disposal for a
// claim.
func TestI4ClaimOfExpiredTokenWaitsForFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		disposesFirst, commit bool
		second                error
		hooks                 int // of the claimant
	}{
		"a claim, after hook_disposed":             {true, true, nil, 1},
		"a claim, after hook_disposed rolled back": {true, false, nil, 1},
		"hook_disposed, after a claim":             {false, true, entities.ErrHookNotFound, 1},
		"hook_disposed, after a claim rolled back": {false, false, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			old, claimant := f.runWithExpiredHook(t, "T"), f.run(t, started)
			// Each has its own clock: for one the hook is live, for the other it has expired.
			type ask struct {
				Request
				at time.Time
			}
			first := ask{on(old, "hook_disposed", "hook_1"), day.Add(tokenRetention / 2)}
			second := ask{hookCreated(claimant, "hook_1", "T"), day.Add(2 * tokenRetention)}
			if !test.disposesFirst {
				first, second = second, first
			}
			held, release := make(chan struct{}), make(chan struct{})
			hold := queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
				close(held)
				<-release
				if test.commit {
					return func(error) {}, nil
				}
				return nil, errBroken
			})
			send := func(a ask, q Enqueuer, done chan<- error) {
				_, err := New(f.pool, f.hub, q, func() time.Time { return a.at }).Append(t.Context(), home, a.Request)
				done <- err
			}
			firstDone, secondDone := make(chan error, 1), make(chan error, 1)
			first.Messages = messages
			go send(first, hold, firstDone)
			select {
			case <-held:
			case err := <-firstDone:
				t.Fatalf("the first got error %v before the second started", err)
			}
			go send(second, noQueue{}, secondDone)
			f.waitForLock(t, secondDone)
			close(release)
			if err := <-firstDone; (err == nil) != test.commit {
				t.Errorf("the first got error %v", err)
			}
			if err := <-secondDone; !errors.Is(err, test.second) {
				t.Errorf("the second got error %v, want %v", err, test.second)
			}
			if got := len(f.rows(t, claimant).Hooks); got != test.hooks {
				t.Errorf("the claimant has %d hooks, want %d", got, test.hooks)
			}
			if got := len(f.rows(t, old).Hooks); got != 0 {
				t.Errorf("the old run has %d hooks, want none", got)
			}
		})
	}
}
