package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// TestI4ConcurrentTokenClaimWaitsForFirst stops a claim just before its commit, starts another, and then
// commits the first or rolls it back. The races find the same by chance; this test is deterministic.
func TestI4ConcurrentTokenClaimWaitsForFirst(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before        []Request // of both runs, after created; nil: there is one run, and it does not exist yet
		first, second Request
		// twoRuns is set if the second claim comes from another run.
		twoRuns bool
		// won and lost are what the second claim gets when the first is rolled back, and when it is committed.
		won, lost types
		err       error // of the loser
	}{
		"create a run": {
			first: created, second: created,
			won: types{"run_created"}, err: entities.ErrConflict,
		},
		"create a run, after a resilient start": {
			first: runRepaired(theRun), second: created,
			won: types{"run_created"}, err: entities.ErrConflict,
		},
		"a resilient start, after the creation": {
			first: created, second: runRepaired(theRun),
			won: types{"run_created", "run_started"}, lost: types{"run_started"},
		},
		"create a step": {
			before: []Request{started}, first: step("step_created"), second: step("step_created"),
			won: types{"step_created"}, err: entities.ErrConflict,
		},
		"create a step by its start": {
			before: []Request{started}, first: lazyStart(theRun, "step_1"), second: lazyStart(theRun, "step_1"),
			won: types{"step_created", "step_started"}, err: entities.ErrConflict,
		},
		"create a step by its start, after its creation": {
			before: []Request{started}, first: step("step_created"), second: lazyStart(theRun, "step_1"),
			won: types{"step_created", "step_started"}, err: entities.ErrConflict,
		},
		"resume twice": {
			before: []Request{started, hook("hook_created")},
			first:  resumption(theRun, "hook_1", "res_1", "d"), second: resumption(theRun, "hook_1", "res_1", "d"),
			won: types{"hook_received"}, lost: types{},
		},
		"resume with another digest": {
			before: []Request{started, hook("hook_created")},
			first:  resumption(theRun, "hook_1", "res_1", "d"), second: resumption(theRun, "hook_1", "res_1", "e"),
			won: types{"hook_received"}, err: entities.ErrConflict,
		},
		"receive on a hook that is being disposed of": {
			before: []Request{started, hook("hook_created")}, first: hook("hook_disposed"), second: hook("hook_received"),
			won: types{"hook_received"}, err: entities.ErrHookNotFound,
		},
		"receive on a hook of a run that ends": {
			before: []Request{started, hook("hook_created")}, first: completed, second: hook("hook_received"),
			won: types{"hook_received"}, err: entities.ErrHookNotFound,
		},
		"claim a token from another run": {
			before: []Request{started}, first: hookCreated(theRun, "hook_1", "T"), second: hookCreated(theRun, "hook_1", "T"),
			twoRuns: true, won: types{"hook_created"}, lost: types{"hook_conflict"},
		},
	}
	for name, test := range tests {
		for _, commit := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", committed", false: ", taken back"}[commit], func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				one := newRunID()
				if test.before != nil {
					one = f.run(t, test.before...)
				}
				two := one
				if test.twoRuns {
					two = f.run(t, test.before...)
				}
				logged := 0
				if test.before != nil {
					logged = len(f.events(t, two))
				}
				outcome := f.appendWhileFirstIsOpen(t, forRun(test.first, one), forRun(test.second, two), commit)
				if test.err != nil && commit {
					if !errors.Is(outcome, test.err) {
						t.Errorf("the second claim got error %v, want %v", outcome, test.err)
					}
					return
				}
				if outcome != nil {
					t.Fatalf("the second claim got error %v", outcome)
				}
				want := test.won
				if commit {
					want = test.lost
					if !test.twoRuns {
						logged++ // the first's
					}
				}
				if diff := cmp.Diff(want, f.types(t, two)[logged:]); diff != "" {
					t.Errorf("what the second claim wrote differs (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// appendWhileFirstIsOpen appends the first request up to its commit, and the second until it waits for that. Then the
// first is committed or rolled back. The error is that of the second.
func (f *fixture) appendWhileFirstIsOpen(t *testing.T, first, second Request, commit bool) error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	holding := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
		close(held)
		<-release
		if commit {
			return func(error) {}, nil
		}
		return nil, errBroken
	}))
	firstDone, secondDone := make(chan error, 1), make(chan error, 1)
	first.Messages = messages
	go func() {
		_, err := holding.Append(t.Context(), home, first)
		firstDone <- err
	}()
	select {
	case <-held:
	case err := <-firstDone:
		t.Fatalf("the first claim got error %v before the second started", err)
	}
	go func() {
		_, err := f.Append(t.Context(), home, second)
		secondDone <- err
	}()
	f.waitForLock(t, secondDone)
	close(release)
	if err := <-firstDone; commit && err != nil || !commit && !errors.Is(err, errBroken) {
		t.Errorf("the first claim got error %v", err)
	}
	return <-secondDone
}

// waitForLock returns when a session of the database waits for a lock. The second claim must not end before.
func (f *fixture) waitForLock(t *testing.T, done <-chan error) {
	t.Helper()
	deadline := time.After(testTimeout)
	for waiting := 0; waiting == 0; {
		select {
		case err := <-done:
			t.Fatalf("the second claim did not wait for the first, and got error %v", err)
		case <-deadline:
			t.Fatal("the second claim neither waits nor ends")
		default:
		}
		if err := f.pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}
