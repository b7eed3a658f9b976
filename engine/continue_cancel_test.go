package engine

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// orderToCancel leaves work that cancels a run with the grace, as a parent, a limit or a schedule does.
func (d *server) orderToCancel(t *testing.T, id entities.RunID, grace string) {
	t.Helper()
	if _, err := d.log.AppendAll(t.Context(), project, id, nil, eventlog.AppendOptions{Messages: []message.Message{{
		Project: project, Topic: "order", DeploymentID: deployment, RunID: id, Work: message.WorkCancel, Subject: grace,
		Body: []byte("because"),
	}}}); err != nil {
		t.Fatal(err)
	}
}

// wantCancelledNext checks that a run has continued once, and was then cancelled.
func (d *server) wantCancelledNext(t *testing.T, id entities.RunID) {
	t.Helper()
	runs := d.chain(t, id)
	// The next run has not begun, so that it has nothing to undo, whatever the grace.
	if last := runs[len(runs)-1]; len(runs) != 2 || last.Status != entities.RunCancelled {
		t.Errorf("got %d runs, of which the last one is %s", len(runs), last.Status)
	}
	d.Want(t, "orders to cancel are left", 0, `SELECT count(*) FROM messages WHERE work = 'cancel'`)
}

const continues = `{"commands":[{"type":"continueAs","input":2}]}`

// TestOrderToCancelOutlivesItsRun: what was ordered before a run continues is done to the next one.
func TestOrderToCancelOutlivesItsRun(t *testing.T) {
	t.Parallel()
	for _, grace := range []string{"0s", "1h0m0s"} {
		t.Run(grace, func(t *testing.T) {
			t.Parallel()
			d := idleServer(t, testdb.New(t))
			work, run := d.startInvocation(t)
			d.orderToCancel(t, run.ID, grace)
			if err := d.runs.answer(t.Context(), work, run, []byte(continues)); err != nil {
				t.Fatal(err)
			}
			if err := d.runs.cancel(t.Context(), d.claimFrom(t, d, message.WorkCancel, grace)); err != nil {
				t.Fatal(err)
			}
			d.wantCancelledNext(t, run.ID)
		})
	}
}

// TestRunThatContinuesMeanwhileIsCancelled: a run continues after a server has read it to cancel it, and before that is
// written.
func TestRunThatContinuesMeanwhileIsCancelled(t *testing.T) {
	t.Parallel()
	for _, grace := range []string{"0s", "1h0m0s"} {
		t.Run(grace, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home, answers, cancels := idleServer(t, dsn), idleServer(t, dsn), idleServer(t, dsn)
			work, run := home.startInvocation(t)
			home.orderToCancel(t, run.ID, grace)
			order := cancels.claimFrom(t, home, message.WorkCancel, grace)
			block, err := home.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = block.Rollback(t.Context()) }()
			if _, err := block.Exec(t.Context(), `SELECT FROM runs WHERE id = $1 FOR UPDATE`, run.ID); err != nil {
				t.Fatal(err)
			}
			var both errgroup.Group
			wait := func(n int) {
				testdb.Eventually(t, "they wait for the run in their order", func() bool {
					return home.Count(t, `
						SELECT count(*) FROM pg_stat_activity
						WHERE datname = current_database() AND wait_event_type = 'Lock'`) == n
				})
			}
			both.Go(func() error { return answers.runs.answer(t.Context(), work, run, []byte(continues)) })
			wait(1)
			both.Go(func() error { return cancels.runs.cancel(t.Context(), order) })
			wait(2)
			if err := block.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := both.Wait(); err != nil {
				t.Fatal(err)
			}
			home.wantCancelledNext(t, run.ID)
		})
	}
}
