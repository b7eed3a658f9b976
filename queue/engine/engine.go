// Package engine continues the runs that are driven by the server. It does the work of each kind that the queue
// delivers for them: it calls workflows and steps, records what they answer, ends runs at their deadline, reports the
// end of children, and hands signals to hooks.
//
// It imports packages entities, eventlog, eventlog/view, queue, queue/condition and queue/contract.
package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/condition"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// Engine continues runs that are driven by the server: it has the commands of their functions carried out.
type Engine struct {
	pool       *pgxpool.Pool
	queue      *queue.Queue
	log        *eventlog.Log
	conditions *condition.Conditions
}

// New makes an engine of the queue and the log of one database.
func New(q *queue.Queue, log *eventlog.Log) *Engine {
	return &Engine{pool: q.Pool(), queue: q, log: log, conditions: condition.New()}
}

// Handlers returns the handler of each kind of work, for [queue.WorkerOptions].
func (e *Engine) Handlers() map[entities.Work]queue.Handler {
	dispatch := newSignalDispatch(e)
	return map[entities.Work]queue.Handler{
		entities.WorkRun:      e.invoke,
		entities.WorkStep:     e.executeStep,
		entities.WorkDeadline: e.enforceDeadline,
		entities.WorkReport:   e.report,
		entities.WorkEnd:      e.endChildren,
		entities.WorkSignal:   dispatch.dispatch,
		entities.WorkLookBack: dispatch.replay,
	}
}

// Command carries out commands of an invocation under way atomically, and returns their events. The handle names the
// invocation. The body is defined by package contract.
//
// It fails with [entities.ErrInvalid] on invalid commands, with [entities.ErrStale] when the invocation is over, with
// [entities.ErrRunEnded] when the run is, and as [eventlog.Log.AppendAll] does.
func (e *Engine) Command(
	ctx context.Context, project entities.Project, runID entities.RunID, handle string, body []byte,
) ([]eventlog.Result, error) {
	run, err := store.RunByID(ctx, e.pool, project, runID)
	if err != nil {
		return nil, err
	}
	if run.Status.Ended() {
		return nil, fmt.Errorf("run %s is %s: %w", runID, run.Status, entities.ErrRunEnded)
	}
	plan, err := e.planner(ctx, run).Plan(body)
	if err != nil {
		return nil, err
	}
	invocation := queue.Delivery{Project: project, RunID: runID, Work: entities.WorkRun, Lease: handle}
	results, err := e.log.AppendAll(ctx, project, runID, plan.Requests, eventlog.AppendOptions{
		Guard: checkLease(invocation), Streams: plan.Responses,
	})
	return results, plan.Explain(err)
}

// answer carries out the commands that end an invocation, and decides when the next one begins.
func (e *Engine) answer(ctx context.Context, d queue.Delivery, run entities.Run, body []byte) error {
	plan, err := e.planner(ctx, run).Plan(body)
	if err != nil {
		return err
	}
	end := &invocationEnd{Delivery: d, reservation: e.queue.Reserve()}
	_, err = e.log.AppendAll(ctx, d.Project, d.RunID, plan.Requests, eventlog.AppendOptions{
		Guard: end.check, StartNext: end.startNext, Streams: plan.Responses, Finish: end.release, Optimistic: end.tryOptimistic,
	})
	if errors.Is(err, ErrNothingLeft) {
		err = ErrNothingLeft // it is the answer's fault, not the commit's
	}
	end.afterCommit(e.queue, err)
	return plan.Explain(err)
}

// checkLease checks in a transaction that the lease on the work lives.
func checkLease(d queue.Delivery) func(*pgx.Batch) func() error {
	return func(b *pgx.Batch) func() error { return d.Guard(b).Check }
}

// planner is what the commands of a run's function refer to.
func (e *Engine) planner(ctx context.Context, run entities.Run) contract.Planner {
	return contract.Planner{
		Run: run, Now: e.log.Now(),
		Deployment: func(workflow string) (string, error) {
			d, err := e.queue.NewestDeployment(ctx, run.Project, workflow)
			return d.ID, err
		},
		Condition: e.conditions.Check,
	}
}

// ErrNothingLeft refuses an answer after which its run could never move again.
const ErrNothingLeft = queue.PublicError(`the run would wait for nothing: ` +
	`answer with a step, a wait, a hook or a child to wait for, or with "complete" or "fail"`)

// recordStart records that an invocation of a run begins: that the run has started, and which of its waits are over. It
// returns the run, and the size of the log that the call brings along. An invocation that began with the transaction
// that leased it is recorded already.
func (e *Engine) recordStart(ctx context.Context, d queue.Delivery) (run entities.Run, size int64, err error) {
	if !d.HasBegun() {
		err = e.appendStart(ctx, &d)
	}
	if err != nil {
		return entities.Run{}, 0, err
	}
	return *d.Begun.Run, d.Begun.Size, nil
}

// appendStart records that an invocation begins in a transaction of its own.
func (e *Engine) appendStart(ctx context.Context, d *queue.Delivery) error {
	var guard *queue.LeaseGuard
	started := eventlog.Request{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}
	_, err := e.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{started}, eventlog.AppendOptions{
		Guard: func(b *pgx.Batch) func() error {
			guard = d.Guard(b)
			return guard.Check
		},
		StartNext: func(*pgx.Batch, bool) func() *eventlog.InlineStart {
			d.ClaimedAt = guard.At
			return d.InlineStart
		},
	})
	if err == nil && !d.HasBegun() { // the run is not driven by the server
		err = fmt.Errorf("run %s: %w", d.RunID, entities.ErrRunEnded)
	}
	return err
}
