package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/message"
)

// TestI4SecondClaimWinsIfFirstIsRolledBack stops a claim just before its commit, starts another, which waits for it, and
// then rolls the first back. TestI4EveryInterleavingIsSerializable has the same claims with a first one that commits.
func TestI4SecondClaimWinsIfFirstIsRolledBack(t *testing.T) {
	t.Parallel()
	withHook := []Request{started, hook("hook_created")}
	tests := map[string]struct {
		before        []Request // of both runs, after created; nil: there is one run, and it does not exist yet
		first, second Request
		// twoRuns is set if the second claim comes from another run.
		twoRuns bool
		want    types // what the second claim writes
	}{
		"create a run":                          {first: created, second: created, want: types{"run_created"}},
		"create a run, after a resilient start": {first: runRepaired(theRun), second: created, want: types{"run_created"}},
		"a resilient start, after the creation": {
			first: created, second: runRepaired(theRun), want: types{"run_created", "run_started"},
		},
		"create a step": {
			before: []Request{started}, first: step("step_created"), second: step("step_created"),
			want: types{"step_created"},
		},
		"create a step by its start": {
			before: []Request{started}, first: lazyStart(theRun, "step_1"), second: lazyStart(theRun, "step_1"),
			want: types{"step_created", "step_started"},
		},
		"resume twice": {
			before: withHook, first: resumption(theRun, "hook_1", "res_1", "d"),
			second: resumption(theRun, "hook_1", "res_1", "d"), want: types{"hook_received"},
		},
		"receive on a hook that is being disposed of": {
			before: withHook, first: hook("hook_disposed"), second: hook("hook_received"), want: types{"hook_received"},
		},
		"receive on a hook of a run that ends": {
			before: withHook, first: completed, second: hook("hook_received"), want: types{"hook_received"},
		},
		"claim a token from another run": {
			before: []Request{started}, first: hookCreated(theRun, "hook_1", "T"), second: hookCreated(theRun, "hook_1", "T"),
			twoRuns: true, want: types{"hook_created"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			one, logged := newRunID(), 0
			if test.before != nil {
				one = f.run(t, test.before...)
			}
			two := one
			if test.twoRuns {
				two = f.run(t, test.before...)
			}
			if test.before != nil {
				logged = len(f.events(t, two))
			}
			if err := f.appendWhileFirstIsOpen(t, forRun(test.first, one), forRun(test.second, two)); err != nil {
				t.Fatalf("the second claim got error %v", err)
			}
			if diff := cmp.Diff(test.want, f.types(t, two)[logged:]); diff != "" {
				t.Errorf("what the second claim wrote differs (-want +got):\n%s", diff)
			}
		})
	}
}

// appendWhileFirstIsOpen appends the first request up to its commit, and the second until it waits for that. Then the
// first is rolled back. The error is that of the second.
func (f *fixture) appendWhileFirstIsOpen(t *testing.T, first, second Request) error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	holding := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
		close(held)
		<-release
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
	if err := <-firstDone; !errors.Is(err, errBroken) {
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
