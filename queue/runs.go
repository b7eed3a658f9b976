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
	e := &ending{delivery: d, once: r.queue.reserve(entities.Message{}, 0)}
	_, err = r.log.AppendAll(ctx, d.Project, d.RunID, plan.Requests, eventlog.Turn{
		Check: e.check, Begin: e.begin, Streams: plan.Responses, Settle: e.settle, Believe: e.believe,
	})
	if errors.Is(err, ErrNothingLeft) {
		err = ErrNothingLeft // it is the answer's fault, not the commit's
	}
	e.ended(r.queue, err)
	return plan.Explain(err)
}

// holds is the check that the lease on the work lives.
func holds(d delivery) func(*pgx.Batch) func() error {
	return func(b *pgx.Batch) func() error { return holdWork(b, d).verdict }
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

// begin records that an invocation of a run begins: that the run has started, and which of its waits are over. It
// returns the run, and the size of what the call is to bring along. What began with the transaction that leased it is
// recorded already.
func (r *Runs) begin(ctx context.Context, d delivery) (run entities.Run, size int64, err error) {
	if !d.hasBegun() {
		err = r.beginAlone(ctx, &d)
	}
	if err != nil {
		return entities.Run{}, 0, err
	}
	return *d.begun.Run, d.begun.Size, nil
}

// beginAlone records that an invocation begins in a transaction of its own.
func (r *Runs) beginAlone(ctx context.Context, d *delivery) error {
	var h *held
	started := eventlog.Request{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}
	_, err := r.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{started}, eventlog.Turn{
		Check: func(b *pgx.Batch) func() error {
			h = holdWork(b, *d)
			return h.verdict
		},
		Begin: func(*pgx.Batch, bool) func() *eventlog.Beginning {
			d.ClaimedAt = h.at
			return d.inlineStart
		},
	})
	if err == nil && !d.hasBegun() { // it is not the server who continues it
		err = fmt.Errorf("run %s: %w", d.RunID, entities.ErrRunEnded)
	}
	return err
}

// over reports whether an error says that there is nothing left to do: the run has ended or is gone, or others do it.
func over(err error) bool {
	return errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound) ||
		errors.Is(err, entities.ErrStale)
}
