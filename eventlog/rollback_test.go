package eventlog

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// messages are messages of a request.
var messages = []message.Message{{Project: home, Topic: "t", DeploymentID: "dpl_1", Body: []byte("hello")}}

var errBroken = errors.New("the queue is broken")

// fails is an [UnderLock.Write] with which the transaction fails.
func fails(b *pgx.Batch) { b.Queue(`SELECT 1 / 0`) }

// hasFailed reports whether the error is that of [fails].
func hasFailed(err error) bool {
	const divisionByZero = "22012"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == divisionByZero
}

func TestFailedAppendRollsBackEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	broken := f.with(queueFunc(func(ctx context.Context, tx pgx.Tx, _ *pgx.Batch, _ []message.Message) (func(error), error) {
		// Only this transaction sees the events so far.
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM events`).Scan(&n); err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("the queue came before the events")
		}
		return nil, errBroken
	}))
	full := []Request{
		started, step("step_created"), step("step_started"), hookCreated(theRun, "hook_1", "T"), sleep("wait_created"),
	}
	id := f.run(t, full...)
	for _, ask := range []Request{
		step("step_completed"), on(id, "step_created", "step_2"), hook("hook_received"), hook("hook_disposed"),
		hookCreated(id, "hook_2", "U"), hookCreated(id, "hook_3", "T"), sleep("wait_completed"), on(id, "attr_set", "attr_1"),
		completed, failed, cancelled,
	} {
		t.Run(string(ask.Type)+" "+ask.CorrelationID, func(t *testing.T) {
			// Not in parallel: all cases use the same run.
			before, log := f.rows(t, id), f.events(t, id)
			ask = forRun(ask, id)
			ask.Messages = messages
			result, err := broken.Append(t.Context(), home, ask)
			if !errors.Is(err, errBroken) || result.Event != nil {
				t.Errorf("got event %v and error %v, want no event and the error of the queue", result.Event, err)
			}
			if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
				t.Errorf("rows changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(log, f.events(t, id)); diff != "" {
				t.Errorf("the log changed (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("the next append gets the position", func(t *testing.T) {
		want := int64(len(full) + 2)
		if got := f.must(t, on(id, "hook_received", "hook_1")).Event.Seq; got != want {
			t.Errorf("got position %d, want %d", got, want)
		}
	})
	t.Run("run_created", func(t *testing.T) {
		for _, ask := range []Request{runCreated(newRunID()), runRepaired(newRunID())} {
			ask.Messages = messages
			if _, err := broken.Append(t.Context(), home, ask); !errors.Is(err, errBroken) {
				t.Errorf("%s: got error %v, want the error of the queue", ask.Type, err)
			}
			if got := f.rows(t, ask.RunID); got.Run != nil {
				t.Errorf("%s: the run exists: %+v", ask.Type, got.Run)
			}
		}
	})
}

func TestMessagesAreSentOnlyWithTheirEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var sent []message.Message
	var calls []string // in order: the messages that the queue got, and when it was notified of the commit
	log := f.with(queueFunc(func(_ context.Context, _ pgx.Tx, _ *pgx.Batch, m []message.Message) (func(error), error) {
		sent, calls = append(sent, m...), append(calls, "enqueue")
		return func(error) { calls = append(calls, "committed") }, nil
	}))
	id := f.run(t)
	ask := func(r Request) error {
		r.RunID, r.Messages = id, messages
		_, err := log.Append(t.Context(), home, r)
		return err
	}
	if err := ask(started); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(messages, sent); diff != "" {
		t.Errorf("messages differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"enqueue", "committed"}, calls); diff != "" {
		t.Errorf("calls of the queue differ (-want +got):\n%s", diff)
	}
	sent, calls = nil, nil
	if err := ask(created); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("got error %v, want ErrConflict", err)
	}
	if err := ask(started); err != nil { // a repeat
		t.Error(err)
	}
	if sent != nil || calls != nil {
		t.Errorf("the queue was called although nothing was appended: %v", calls)
	}
	t.Run("an append without messages does not call the queue", func(t *testing.T) {
		if _, err := log.Append(t.Context(), home, onRun(id, "run_completed")); err != nil {
			t.Fatal(err)
		}
		if calls != nil {
			t.Errorf("the queue was called: %v", calls)
		}
	})
}

func TestI8NothingIsAnnouncedBeforeCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	var seen int
	log := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
		return func(error) { seen = len(f.events(t, id)) }, nil // through another connection (I8)
	}))
	r := onRun(id, "run_started")
	r.Messages = messages
	if _, err := log.Append(t.Context(), home, r); err != nil {
		t.Fatal(err)
	}
	if seen != 2 {
		t.Errorf("when the queue was notified of the commit, another connection saw %d events, want 2", seen)
	}
}
