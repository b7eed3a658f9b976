package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// TestWorkOfALeaseThatRanOutIsNotLost: whoever comes too late leaves the work to others, also when none of them has
// taken it yet.
func TestWorkOfALeaseThatRanOutIsNotLost(t *testing.T) {
	t.Parallel()
	for _, work := range []entities.Work{entities.WorkRun, entities.WorkStep, entities.WorkDeadline} {
		t.Run(string(work), func(t *testing.T) {
			t.Parallel()
			d := openDriven(t, testdb.New(t))
			d.register(t, deployment, serve(t, func(c *turn) {
				if c.Type == contract.TypeWorkflow {
					completeWith("step_completed", "x", object{"type": "runStep", "id": "x"})(c)
				}
			}).URL)
			id := d.begin(t, `null`, func(r *eventlog.Request) {
				at := time.Now().Add(time.Hour)
				r.Data.Deadline = &at
			})
			if _, err := d.log.AppendAll(t.Context(), project, id, []eventlog.Request{{
				Type: entities.EventStepCreated, CorrelationID: "x", SpecVersion: entities.SpecDriven,
				Data: entities.EventData{StepName: "x", Step: &entities.StepSpec{
					DeploymentID: deployment, AttemptTimeoutMS: 1000, MaxAttempts: 5, Factor: 1,
				}},
			}}, eventlog.Turn{}); err != nil {
				t.Fatal(err)
			}
			w := d.newWorker(t, func(o *WorkerOptions) { o.Runs = d.runs })
			late := d.claimLate(t, id, work)
			if _, err := w.perform(t.Context(), late); err != nil {
				t.Error(err)
			}
			if n := d.replica.count(t, `SELECT count(*) FROM messages WHERE id = $1`, late.ID); n != 1 {
				t.Errorf("the work is there %d times, want once", n)
			}
			if work == entities.WorkDeadline {
				return // it would end the run
			}
			begin(t, w)
			d.wantEnd(t, id, entities.RunCompleted, `null`)
		})
	}
}

// TestFunctionHasItsTimeHoweverLongItsLogWaitsForMemory: the lease begins anew; and who waits for long makes room.
func TestFunctionHasItsTimeHoweverLongItsLogWaitsForMemory(t *testing.T) {
	t.Parallel()
	d := openDriven(t, testdb.New(t))
	id := d.begin(t, `null`)
	w := d.newWorker(t, func(o *WorkerOptions) { o.Runs = d.runs })
	var ticket Ticket
	d.scan(t, `SELECT id, ticket FROM messages WHERE run_id = $1`, []any{id}, &ticket.MessageID, &ticket.Number)
	held, ok, err := claim(t.Context(), d.pool, ticket, "rh_1", "", time.Second)
	if err != nil || !ok {
		t.Fatalf("claim: %v, error %v", ok, err)
	}
	const log = 2 * (smallBody + 1)
	most, _ := w.memory.try(w.memory.limit - log/2)
	w.lease = 10 * time.Millisecond
	later := (*laterError)(nil)
	if _, err := w.roomForLog(t.Context(), held, log); !errors.As(err, &later) || later.reached {
		t.Errorf("without memory: got error %v, want one that is no delivery", err)
	}
	w.lease = time.Hour
	got := make(chan error, 1)
	go func() {
		free, err := w.roomForLog(t.Context(), held, log)
		if err == nil {
			free()
		}
		got <- err
	}()
	eventually(t, "it waits", func() bool { // and those behind it
		free, ok := w.memory.try(log / 2)
		if ok {
			free()
		}
		return !ok
	})
	most()
	if err := receive(t, "memory", got); err != nil {
		t.Fatal(err)
	}
	left, err := leaseLeft(t.Context(), d.pool, held.Lease)
	if err != nil {
		t.Fatal(err)
	}
	if left < time.Minute {
		t.Errorf("the lease goes on for %s, want about %s", left, w.lease)
	}
}

// claimLate claims work about a run for a moment, and returns when that is over.
func (d *driven) claimLate(t *testing.T, id entities.RunID, work entities.Work) delivery {
	t.Helper()
	var ticket Ticket
	d.scan(t, `UPDATE messages SET ticket = greatest(ticket, 1) WHERE run_id = $1 AND work = $2 RETURNING id, ticket`,
		[]any{id, work}, &ticket.MessageID, &ticket.Number)
	late, ok, err := claim(t.Context(), d.pool, ticket, fmt.Sprint("rh_late_", work), "", time.Millisecond)
	if err != nil || !ok {
		t.Fatalf("claim: %v, error %v", ok, err)
	}
	eventually(t, "the lease is over", func() bool {
		left, err := leaseLeft(t.Context(), d.pool, late.Lease)
		return err == nil && left < 0
	})
	return late
}
