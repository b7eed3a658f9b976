package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/condition"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// Runs continues runs whose driver is the server: it has their functions' commands carried out.
type Runs struct {
	queue      *Queue
	log        *eventlog.Log
	conditions *condition.Conditions
}

// NewRuns makes it of the queue and the log of one database.
func NewRuns(q *Queue, log *eventlog.Log) *Runs {
	return &Runs{queue: q, log: log, conditions: condition.New()}
}

// Command carries out commands of an invocation under way, all or none, and returns the events they made. The
// handle is the invocation's name. Body is as package contract says.
//
// It fails with [entities.ErrInvalid] on commands that are wrong, with [entities.ErrStale] when the invocation is
// over, with [entities.ErrRunEnded] when the run is, and as [eventlog.Log.AppendAll] does.
func (r *Runs) Command(
	ctx context.Context, project entities.Project, runID entities.RunID, handle string, body []byte,
) ([]eventlog.Result, error) {
	run, err := entities.RunByID(ctx, r.queue.pool, project, runID)
	if err != nil {
		return nil, err
	}
	if run.Status.Ended() {
		return nil, fmt.Errorf("run %s is %s: %w", runID, run.Status, entities.ErrRunEnded)
	}
	plan, err := r.scene(ctx, run).Plan(body)
	if err != nil {
		return nil, err
	}
	invocation := delivery{Project: project, RunID: runID, Work: entities.WorkRun, Lease: handle}
	results, err := r.log.AppendAll(ctx, project, runID, plan.Requests, eventlog.Turn{
		Check: holds(invocation), Streams: plan.Responses,
	})
	return results, plan.Explain(err)
}

// answer carries out the commands that end an invocation, and settles what comes next.
func (r *Runs) answer(ctx context.Context, d delivery, run entities.Run, body []byte) error {
	plan, err := r.scene(ctx, run).Plan(body)
	if err != nil {
		return err
	}
	once := r.queue.desk.offer(entities.Message{})
	var more *delivery
	var later bool
	_, err = r.log.AppendAll(ctx, d.Project, d.RunID, plan.Requests, eventlog.Turn{
		Check:   holds(d),
		Streams: plan.Responses,
		Settle: func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (err error) {
			more, later, err = settleTurn(ctx, tx, last, d.Lease, once)
			return err
		},
	})
	if more != nil {
		once.begin(*more, err)
	}
	if err == nil && later {
		r.queue.hub.Publish(timerTopic)
	}
	return plan.Explain(err)
}

// holds is the check that the lease on the work lives.
func holds(d delivery) func(*pgx.Batch) func() error {
	return func(b *pgx.Batch) func() error { return checkLease(b, d) }
}

// scene is what the commands of a run's function are understood by.
func (r *Runs) scene(ctx context.Context, run entities.Run) contract.Scene {
	return contract.Scene{
		Run: run, Now: r.log.Now(),
		Deployment: func(workflow string) (string, error) {
			d, err := r.queue.NewestDeployment(ctx, run.Project, workflow)
			return d.ID, err
		},
		Condition: r.conditions.Check,
	}
}

// ErrNothingLeft refuses an answer that would leave its run for ever.
var ErrNothingLeft = errors.New(`the run would wait for nothing: ` +
	`answer with a step, a wait, a hook or a child to wait for, or with "complete" or "fail"`)

// settleTurn ends the work of an invocation that was answered: the run is invoked again when there is news, or at
// the end of its next wait, which is later. If there is news already, it is leased as offered.
func settleTurn(
	ctx context.Context, tx pgx.Tx, last *pgx.Batch, handle string, once offer,
) (more *delivery, later bool, err error) {
	var o *outlook
	lookOut(last, handle, &o)
	if err := eventlog.SendQueued(ctx, tx, last); err != nil {
		return nil, false, err
	}
	switch {
	case o == nil:
		return nil, false, nil // the run has ended, and its work is dropped
	case o.Again && once.direct != nil:
		d, err := turnAgain(ctx, tx, handle, once)
		return &d, false, err
	case o.Again:
		return nil, true, nextTurn(ctx, queued{last}, handle, 0)
	case o.Next != nil:
		return nil, true, nextTurn(ctx, queued{last}, handle, max(0, *o.Next))
	case !o.Open:
		return nil, false, ErrNothingLeft
	default:
		return nil, false, deleteWork(ctx, queued{last}, handle)
	}
}

// begin records that an invocation of a run begins: that the run has started, and which of its waits are over. It
// returns the size of what the call is to bring along.
func (r *Runs) begin(ctx context.Context, d delivery) (run entities.Run, size int64, err error) {
	due, err := entities.DueWaits(ctx, r.queue.pool, d.RunID)
	if err != nil {
		return entities.Run{}, 0, err
	}
	requests := []eventlog.Request{{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}}
	for _, id := range due {
		requests = append(requests, eventlog.Request{
			Type: entities.EventWaitCompleted, CorrelationID: string(id), SpecVersion: entities.SpecDriven, Once: true,
		})
	}
	results, err := r.log.AppendAll(ctx, d.Project, d.RunID, requests, eventlog.Turn{
		Check: holds(d),
		Settle: func(_ context.Context, _ pgx.Tx, last *pgx.Batch) error {
			eventlog.Measure(last, d.RunID, callEvents, &size)
			return nil
		},
	})
	if err != nil {
		return entities.Run{}, 0, err
	}
	return results[len(results)-1].Run, size, nil
}

// over reports whether an error says that there is nothing left to do: the run has ended or is gone, or others do it.
func over(err error) bool {
	return errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound) ||
		errors.Is(err, entities.ErrStale)
}
