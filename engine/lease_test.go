package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// TestWorkWithAnExpiredLeaseIsRepeated: a handler whose lease has expired must not end the work, even if no other
// process has claimed it yet.
func TestWorkWithAnExpiredLeaseIsRepeated(t *testing.T) {
	t.Parallel()
	for _, work := range []message.Work{message.WorkRun, message.WorkStep, message.WorkDeadline} {
		t.Run(string(work), func(t *testing.T) {
			t.Parallel()
			d := newServer(t, testdb.New(t))
			d.register(t, deployment, serve(t, func(c *functionCall) {
				if c.Type == contract.TypeWorkflow {
					completeWith("step_completed", "x", object{"type": "runStep", "id": "x"})(c)
				}
			}).URL)
			id := d.startRun(t, `null`, func(r *eventlog.Request) {
				at := time.Now().Add(time.Hour)
				r.Data.Deadline = &at
			})
			if _, err := d.log.AppendAll(t.Context(), project, id, []eventlog.Request{{
				Type: entities.EventStepCreated, CorrelationID: "x", SpecVersion: entities.SpecDriven,
				Data: entities.EventData{StepName: "x", Step: &entities.StepSpec{
					DeploymentID: deployment, AttemptTimeoutMS: 1000, MaxAttempts: 5, Factor: 1,
				}},
			}}, eventlog.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			w := d.newWorker(t, d.works)
			late := d.claimExpired(t, id, work)
			if _, err := w.Perform(t.Context(), late); err != nil {
				t.Error(err)
			}
			d.Want(t, "messages for the work", 1, `SELECT count(*) FROM messages WHERE id = $1`, late.ID)
			if work == message.WorkDeadline {
				return // repeating this work would end the run
			}
			startWorker(t, w)
			d.wantEnd(t, id, entities.RunCompleted, `null`)
		})
	}
}

// claimExpired claims work of a run for a moment, and returns when the lease has expired.
func (d *server) claimExpired(t *testing.T, id entities.RunID, work message.Work) queue.Delivery {
	t.Helper()
	var ticket tickets.Ticket
	d.Scan(t, `UPDATE messages SET ticket = greatest(ticket, 1) WHERE run_id = $1 AND work = $2 RETURNING id, ticket`,
		[]any{id, work}, &ticket.MessageID, &ticket.Number)
	late, ok, err := d.Claim(t.Context(), ticket, fmt.Sprint("rh_late_", work), "", time.Millisecond)
	if err != nil || !ok {
		t.Fatalf("claim: %v, error %v", ok, err)
	}
	testdb.Eventually(t, "the lease has expired", func() bool {
		return d.Count(t, `SELECT count(*) FROM messages WHERE lease = $1 AND due_at < clock_timestamp()`, late.Lease) == 1
	})
	return late
}

// TestCommandsRestartTheLease unless that has just been done: such a write changes no index.
func TestCommandsRestartTheLease(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	if _, _, err := d.runs.recordStart(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	for left, restarted := range map[string]bool{"1 second": true, "4 minutes": true, "299 seconds": false} {
		var before, after time.Time
		d.Scan(t, `UPDATE messages SET due_at = clock_timestamp() + $2::interval WHERE lease = $1 RETURNING due_at`,
			[]any{work.Lease, left}, &before)
		if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease), nil); err != nil {
			t.Fatal(err)
		}
		d.Scan(t, `SELECT due_at FROM messages WHERE lease = $1`, []any{work.Lease}, &after)
		if longer := after.After(before); longer != restarted || time.Until(after) < 4*time.Minute {
			t.Errorf("with %s left: restarted %v, now until %s", left, longer, time.Until(after))
		}
	}
}
