// Package triggers starts runs when something happens: a signal, a request to a webhook, the end of a run.
//
// How an event gets here differs. A signal passes its triggers before its hooks: its work evaluates their conditions,
// and in one transaction leaves work for each that matches and a note that this is done. The end of a run leaves work
// for each trigger that waits for it in the transaction of its event, if there is one (eventlog/facts.go). A request to
// a webhook is handled before it is answered.
//
// Then all is the same. One transaction creates the run, records what became of the event, and ends the work. It is
// written only if the trigger is as it was read and the lease on the work is live. The run's idempotency key is made of
// the trigger and the event, so an event starts a run once, however often it is delivered.
//
// What cannot be started now is recorded and tried again, as all work. What can never be started is recorded only.
package triggers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow/condition"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// Triggers starts the runs of triggers.
type Triggers struct {
	pool       *pgxpool.Pool
	queue      *queue.Queue
	log        *eventlog.Log
	conditions *condition.Conditions
	collector  *collector.Collector
}

// New returns the triggers of one database.
func New(q *queue.Queue, log *eventlog.Log, conditions *condition.Conditions) *Triggers {
	return &Triggers{
		pool: q.Pool(), queue: q, log: log, conditions: conditions, collector: collector.New(q, log),
	}
}

// untilUnchanged repeats what fails because the trigger has changed meanwhile.
func untilUnchanged(do func() error) error { return pg.Again(isChanged, do) }

// isChanged reports whether something failed because the trigger has changed, or is deleted.
func isChanged(err error) bool { return errors.Is(err, trigger.ErrChanged) || trigger.IsDeleted(err) }

// event is something that a trigger has waited for.
type event struct {
	id string
	// data is JSON: the input of the run, unless the trigger has one.
	data []byte
	// signal and run have the values of which the start can have some, as JSON; nil for other events.
	signal, run []byte
	// digest must be that of the first delivery, if the sender has chosen the ID.
	digest string
	// depth is how many ends of runs led to it.
	depth int
	// root and below are the root and the depth of the run that it starts; empty if no run led to it.
	root  entities.RunID
	below int
}

// writer is on whose behalf something is written.
type writer struct {
	// guard queues what has to be locked after the trigger, and returns the check of it.
	guard func(*pgx.Batch) (check func() error)
	// finish queues what is written besides.
	finish func(*pgx.Batch)
	// failed is what becomes of an event whose start has failed.
	failed trigger.Decision
}

// byDelivery writes for a delivery of work, which it ends.
func byDelivery(d queue.Delivery) writer {
	return writer{
		guard: func(b *pgx.Batch) func() error { return d.Guard(b).Check }, finish: d.EndIn, failed: trigger.Retrying,
	}
}

// byRequest writes for a request, which has no work: only its sender can try again.
func byRequest() writer {
	return writer{
		guard: pg.NoCheck, finish: func(*pgx.Batch) {}, failed: trigger.Refused,
	}
}

// start starts the run of an event and returns what became of it, as recorded. It fails if that can be tried again, and
// with [entities.ErrKeyReused] if the event's ID was used for another one.
func (t *Triggers) start(ctx context.Context, trg trigger.Trigger, e event, by writer) (trigger.Event, error) {
	if e.depth > trigger.MaxDepth {
		return t.record(ctx, trg, trigger.Event{Event: e.id, Decision: trigger.Refused, Reason: fmt.Sprintf(
			"%d runs were started by triggers, each because of the end of the one before: the limit is %d, "+
				"so that loops end", trigger.MaxDepth, trigger.MaxDepth)}, by)
	}
	done, err := t.startFilled(ctx, trg, e, by)
	taken, isTaken := errors.AsType[*entities.KeyTakenError](err)
	reason, refused := refusal(err)
	switch {
	case err == nil:
		return done, nil
	case trigger.IsRepeated(err):
		return t.repeated(ctx, trg, e.id, by)
	case isTaken && trg.Joins:
		return t.record(ctx, trg, trigger.Event{Event: e.id, Decision: trigger.Joined, RunID: taken.RunID}, by)
	case isTaken:
		return t.record(ctx, trg, trigger.Event{
			Event: e.id, Decision: trigger.Refused, RunID: taken.RunID, Reason: taken.Error(),
		}, by)
	case refused:
		return t.record(ctx, trg, trigger.Event{Event: e.id, Decision: trigger.Refused, Reason: reason}, by)
	case errors.Is(err, message.ErrStale), isChanged(err),
		errors.Is(err, entities.ErrKeyReused), ctx.Err() != nil:
		return trigger.Event{}, err
	default:
		by.finish = func(*pgx.Batch) {} // the work is done again
		failure := trigger.Event{Event: e.id, Decision: by.failed, Reason: queue.Storable(failureOf(err))}
		_, failed := t.record(ctx, trg, failure, by)
		return trigger.Event{}, errors.Join(later(err), failed)
	}
}

// startFilled starts the run of an event, or collects it, with values of the event in the start.
func (t *Triggers) startFilled(ctx context.Context, trg trigger.Trigger, e event, by writer) (trigger.Event, error) {
	filled, err := t.fill(ctx, trg, e)
	switch {
	case err != nil:
		return trigger.Event{}, err
	case trg.Options.Collect != nil:
		return t.collect(ctx, filled, e, by)
	default:
		return t.startRun(ctx, filled, e, by)
	}
}

// startRun creates the run of an event, records it and finishes in one transaction.
func (t *Triggers) startRun(ctx context.Context, trg trigger.Trigger, e event, by writer) (trigger.Event, error) {
	deployment, err := t.queue.StartDeployment(ctx, trg.Project, trg.Workflow, trg.Deployment)
	if err != nil {
		return trigger.Event{}, err
	}
	now := t.log.Now()
	r := request(trg, e, deployment.ID, now)
	done := trigger.Event{Event: e.id, Decision: trigger.Started, RunID: r.RunID, DecidedAt: now}
	run, created, err := t.log.StartWith(ctx, trg.Project, r, eventlog.AppendOptions{With: eventlog.UnderLock{
		Guard: func(b *pgx.Batch) func([]eventlog.Request) error {
			check := guard(b, trg, by)
			return func([]eventlog.Request) error { return check() }
		},
		Write: func(b *pgx.Batch) {
			trigger.Record(b, trg, done)
			by.finish(b)
		},
	}})
	if err == nil && !created { // by the same event, or by another one with the same idempotency key
		return t.record(ctx, trg, trigger.Event{Event: e.id, Decision: trigger.Joined, RunID: run.ID}, by)
	}
	return done, err
}

// collect adds an event to the collection of a run, records it and finishes in one transaction.
func (t *Triggers) collect(ctx context.Context, trg trigger.Trigger, e event, by writer) (trigger.Event, error) {
	now := t.log.Now()
	start := collection.Start{
		Workflow: trg.Workflow, Deployment: trg.Deployment, Timeout: trg.Timeout, Input: input(trg, e),
		IdempotencyKey: idempotencyKey(trg, e), Digest: digest(trg, e), Data: data(trg, e),
	}
	done := trigger.Event{Event: e.id, Decision: trigger.Collected, DecidedAt: now}
	collected, err := t.collector.AddWith(ctx, trg.Project, *trg.Options.Collect, start, collector.Beside{
		Guard: func(b *pgx.Batch) func() error { return guard(b, trg, by) },
		Finish: func(b *pgx.Batch, id entities.RunID) {
			done.RunID = id
			trigger.Record(b, trg, done)
			by.finish(b)
		},
	})
	if err != nil || !collected.Repeated {
		return done, err
	}
	if done.RunID = collected.Run.ID; collected.Collection != nil {
		done.RunID = collected.Collection.RunID
	}
	return t.record(ctx, trg, done, by)
}

// request returns the event that starts the run.
func request(trg trigger.Trigger, e event, deployment string, now time.Time) eventlog.Request {
	r := eventlog.NewRun(now, input(trg, e), data(trg, e))
	r.Data.DeploymentID = deployment
	r.Data.IdempotencyKey, r.Data.RequestDigest = idempotencyKey(trg, e), digest(trg, e)
	startAt := now.Add(trg.Options.Delay)
	if trg.Options.Delay > 0 {
		r.Data.StartAt = &startAt
	}
	if trg.Timeout > 0 {
		r.Data.Deadline = new(startAt.Add(trg.Timeout))
	}
	return r
}

// data returns the data of the event that starts the run, except for when it does, and where.
func data(trg trigger.Trigger, e event) entities.EventData {
	return entities.EventData{
		Driver: entities.DriverServer, WorkflowName: trg.Workflow, Attributes: trg.RunAttributes(e.id, e.depth),
		AllowReserved: true, UniqueKey: trg.UniqueKey, Limits: trg.Options.Limits,
		PriorityMS: trg.Options.Priority.Milliseconds(), RootID: e.root, Depth: e.below,
	}
}

// input returns the input of the run.
func input(trg trigger.Trigger, e event) []byte {
	if len(trg.Input) == 0 {
		return e.data
	}
	return trg.Input
}

// idempotencyKey returns what events have in common that start one run.
func idempotencyKey(trg trigger.Trigger, e event) string {
	return trigger.Subject(trg.ID, cmp.Or(trg.Options.IdempotencyKey, e.id))
}

// digest returns what all deliveries of an event have in common. Events that start one run may differ.
func digest(trg trigger.Trigger, e event) string {
	if trg.Options.IdempotencyKey != "" {
		return ""
	}
	return e.digest
}

// longestQuota is the longest pause before the next try of a start that a quota has refused.
const longestQuota = 15 * time.Minute

// failureOf returns why a start has failed. That of a quota begins with its code.
func failureOf(err error) string {
	if quota, ok := errors.AsType[*admin.QuotaError](err); ok {
		return quota.Code() + ": " + quota.Error()
	}
	return err.Error()
}

// later makes the error of a quota, of a full limit, or of too many collections, one that does not count as a delivery:
// the run can be started when there is room.
func later(err error) error {
	if errors.Is(err, collection.ErrTooMany) {
		const reason = "the project has too many collections"
		return &queue.Failure{Reason: reason, Public: reason, After: time.Minute}
	}
	if quota, ok := errors.AsType[*admin.QuotaError](err); ok {
		after := min(max(quota.RetryAfter, time.Minute), longestQuota)
		return errors.Join(
			&queue.Failure{Reason: queue.Storable(quota.Error()), Public: quota.Reason.Error(), After: after}, quota)
	}
	if full, ok := errors.AsType[*limit.FullError](err); ok {
		return &queue.Failure{Reason: queue.Storable(err.Error()), Public: limit.ErrFull.Error(), After: full.RetryAfter}
	}
	return err
}

// refusal returns why a run can never be started, and reports false for an error after which it can be tried again. A
// tree with too many open runs takes none later either: what waited for that would be as much again.
func refusal(err error) (reason string, ok bool) {
	switch {
	case errors.Is(err, admin.ErrTooDeep), errors.Is(err, admin.ErrTooManyDescendants),
		errors.Is(err, admin.ErrRootCancelled):
		return failureOf(err), true
	case errors.Is(err, message.ErrDeploymentNotFound):
		return fmt.Sprintf("%v: register one with this workflow", err), true
	case errors.Is(err, entities.ErrInvalid), errors.Is(err, limit.ErrNotFound):
		return err.Error(), true
	default:
		return "", false
	}
}

// guard queues the locks of a write: the trigger, then what the writer locks.
func guard(b *pgx.Batch, trg trigger.Trigger, by writer) (check func() error) {
	unchanged := trigger.LockShared(b, trg)
	held := by.guard(b)
	return func() error { return cmp.Or(held(), unchanged()) }
}

// write executes statements in one transaction, if the trigger is still as it was read.
func (t *Triggers) write(ctx context.Context, trg trigger.Trigger, by writer, statements func(*pgx.Batch)) error {
	err := pg.CheckThen(ctx, t.pool, func(b *pgx.Batch) func() error { return guard(b, trg, by) }, statements)
	return pg.Wrap(err, "write event of trigger %s", trg.Name)
}

// record records what became of an event that starts no run, and finishes. It returns what was recorded before if that
// was final.
func (t *Triggers) record(
	ctx context.Context, trg trigger.Trigger, e trigger.Event, by writer,
) (trigger.Event, error) {
	e.DecidedAt = t.log.Now()
	err := t.write(ctx, trg, by, func(b *pgx.Batch) {
		trigger.Record(b, trg, e)
		by.finish(b)
	})
	if trigger.IsRepeated(err) {
		return t.repeated(ctx, trg, e.Event, by)
	}
	return e, err
}

// repeated finishes for an event that has its run already, and returns what was recorded.
func (t *Triggers) repeated(
	ctx context.Context, trg trigger.Trigger, event string, by writer,
) (done trigger.Event, err error) {
	found, err := trigger.EventByID(ctx, pg.NewPool(t.pool), trg.ID, event)
	if err != nil {
		return done, err
	}
	if found != nil { // else it has just been deleted with the trigger
		done = *found
	}
	return done, t.write(ctx, trg, by, by.finish)
}
