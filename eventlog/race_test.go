package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// racers is how many goroutines do the same at once. Nearly each has its own connection.
const racers = 16

// race calls fn in as many goroutines as there are racers, and returns their errors.
func race(fn func(i int) error) []error {
	errs := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// wantOneWinner fails the test unless one error is nil and the others are the loser's.
func wantOneWinner(t *testing.T, errs []error, loser error) {
	t.Helper()
	winners := 0
	for i, err := range errs {
		if err == nil {
			winners++
		} else if !errors.Is(err, loser) {
			t.Errorf("racer %d got error %v, want %v", i, err, loser)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d won, want 1", winners, len(errs))
	}
}

// count returns how many events of the type the log has.
func count(events []entities.Event, event entities.EventType) int {
	n := 0
	for _, e := range events {
		if e.Type == event {
			n++
		}
	}
	return n
}

func TestI4ConcurrentIdenticalRequestsHaveOneWinner(t *testing.T) {
	t.Parallel()
	alive := []Request{started}
	withStep := append(alive[:1:1], step("step_created"))
	withHook := append(alive[:1:1], hook("hook_created"))
	withWait := append(alive[:1:1], sleep("wait_created"))
	tests := map[string]struct {
		before []Request // after created
		ask    Request
		loser  error
	}{
		"create this step":             {alive, step("step_created"), entities.ErrConflict},
		"complete this step":           {withStep, step("step_completed"), entities.ErrConflict},
		"fail this step":               {withStep, step("step_failed"), entities.ErrConflict},
		"create this hook":             {alive, hook("hook_created"), entities.ErrConflict},
		"dispose this hook":            {withHook, hook("hook_disposed"), entities.ErrHookNotFound},
		"create this wait":             {alive, sleep("wait_created"), entities.ErrConflict},
		"complete this wait":           {withWait, sleep("wait_completed"), entities.ErrConflict},
		"complete this run":            {alive, completed, entities.ErrConflict},
		"fail this run":                {withStep, failed, entities.ErrConflict},
		"set these attributes by name": {alive, on(theRun, "attr_set", "attr_1"), entities.ErrConflict},
	}
	f := newFixture(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := f.run(t, test.before...)
			ask := forRun(test.ask, id)
			errs := race(func(int) error {
				_, err := f.Append(t.Context(), home, ask)
				return err
			})
			wantOneWinner(t, errs, test.loser)
			events := f.events(t, id)
			if got := count(events, ask.Type); got != 1 {
				t.Errorf("the log has %d %s, want 1", got, ask.Type)
			}
			wantDense(t, events)
		})
	}
}

func TestI4ConcurrentTokenClaimsHaveOneWinner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ids []entities.RunID
	for range racers {
		ids = append(ids, f.run(t, started))
	}
	results := make([]Result, racers)
	for i, err := range race(func(i int) (err error) {
		results[i], err = f.Append(t.Context(), home, hookCreated(ids[i], "hook_1", "T"))
		return err
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	holder, err := store.HookByToken(t.Context(), f.pool, home, "T", day)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		want := entities.EventHookConflict
		if ids[i] == holder.RunID {
			want = entities.EventHookCreated
		} else if got := result.Event.Data.ConflictingRunID; got != holder.RunID {
			t.Errorf("racer %d lost to run %q, want %s", i, got, holder.RunID)
		}
		if result.Event.Type != want {
			t.Errorf("racer %d got %s, want %s", i, result.Event.Type, want)
		}
		if got := len(f.rows(t, ids[i]).Hooks); (got == 1) != (want == entities.EventHookCreated) {
			t.Errorf("racer %d has %d hooks", i, got)
		}
	}
}

func TestI4ConcurrentResilientStartsCreateRunOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			id := newRunID()
			results := make([]Result, racers)
			errs := race(func(i int) (err error) {
				r := runRepaired(id)
				if i%4 == 0 {
					r = runCreated(id)
				}
				results[i], err = f.Append(t.Context(), home, r)
				return err
			})
			starts, creations := 0, 0
			for i, err := range errs {
				switch {
				case i%4 == 0 && err == nil:
					creations++
				case i%4 == 0 && !errors.Is(err, entities.ErrConflict):
					t.Errorf("run_created: got error %v, want ErrConflict", err)
				case i%4 != 0 && err != nil:
					t.Errorf("run_started: %v", err)
				case i%4 != 0 && !results[i].Repeated:
					starts++
				}
			}
			if starts != 1 || creations > 1 {
				t.Errorf("%d starts and %d creations won, want 1 and at most 1", starts, creations)
			}
			want := []entities.EventType{"run_created", "run_started"}
			if diff := cmp.Diff(want, f.types(t, id)); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestI1ConcurrentAppendsKeepLogDense(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	const each = 8
	for i, err := range race(func(i int) error {
		for j := range each {
			// Every other request is refused, and must not use a position.
			if _, err := f.Append(t.Context(), home, on(id, "hook_received", "hook_1")); err != nil {
				return err
			}
			r := on(id, "step_started", fmt.Sprintf("none_%d_%d", i, j))
			if _, err := f.Append(t.Context(), home, r); !errors.Is(err, entities.ErrStepNotFound) {
				return fmt.Errorf("step_started of a missing step: got error %w, want ErrStepNotFound", err)
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
	if got, want := len(events), 3+racers*each; got != want {
		t.Errorf("the log has %d events, want %d", got, want)
	}
}

func TestI1ReadersSeePrefixes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for last := 0; ; {
			page, err := f.Events(t.Context(), home, id, pg.Page{Limit: pg.MaxPage}, read.WithoutPayloads)
			if err != nil {
				t.Error(err)
				return
			}
			for i, e := range page.Events {
				if e.Seq != int64(i+1) {
					t.Errorf("a reader saw position %d after %d", e.Seq, i)
					return
				}
			}
			if len(page.Events) < last {
				t.Errorf("a reader saw %d events after %d", len(page.Events), last)
				return
			}
			last = len(page.Events)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i, err := range race(func(int) error {
		for range 8 {
			if _, err := f.Append(t.Context(), home, on(id, "hook_received", "hook_1")); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
	}
	close(done)
	reader.Wait()
}

// TestI7NoHookReceivedAfterDisposal has senders race with the end of the hook. All acknowledged hook_received are in
// the log, before that end.
func TestI7NoHookReceivedAfterDisposal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, end := range []entities.EventType{"hook_disposed", "run_completed", "run_failed", "run_cancelled"} {
		for round := range 3 {
			t.Run(fmt.Sprint(end, " ", round), func(t *testing.T) {
				t.Parallel()
				id := f.run(t, started, hook("hook_created"))
				var mu sync.Mutex
				received := 0
				for i, err := range race(func(i int) error {
					if i == 0 {
						ask := onRun(id, end)
						if end == entities.EventHookDisposed {
							ask = on(id, end, "hook_1")
						}
						_, err := f.Append(t.Context(), home, ask)
						return err
					}
					for range 4 {
						_, err := f.Append(t.Context(), home, on(id, "hook_received", "hook_1"))
						if errors.Is(err, entities.ErrHookNotFound) {
							return nil
						}
						if err != nil {
							return err
						}
						mu.Lock()
						received++
						mu.Unlock()
					}
					return nil
				}) {
					if err != nil {
						t.Errorf("racer %d: %v", i, err)
					}
				}
				f.refused(t, on(id, "hook_received", "hook_1"), entities.ErrHookNotFound)
				log := f.types(t, id)
				if i := slices.Index(log, end); i < 0 || slices.Contains(log[i:], "hook_received") {
					t.Errorf("hook_received after the end: %v", log)
				}
				if got := count(f.events(t, id), "hook_received"); got != received {
					t.Errorf("the log has %d hook_received, want the %d that were acknowledged", got, received)
				}
			})
		}
	}
}
