package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// Send accepts a message and returns its ID. For a duplicate it returns the ID of the original message, even if that
// has been acknowledged. It fails with [entities.ErrInvalid].
func (q *Queue) Send(ctx context.Context, m message.Message) (string, error) {
	if err := q.payloads.Prepare(string(m.Project)); err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	s, err := q.newInsertion(m)
	if err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	if len(m.Body) <= smallBody {
		err = q.group.Do(ctx, s)
	} else { // others would wait until it has been transferred
		err = q.group.Alone(ctx, s)
	}
	s.ended(err)
	if err == nil {
		err = s.resolve(ctx, pg.NewPool(q.pool))
	}
	if err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	return s.id, nil
}

// SendAll accepts messages atomically, and returns their IDs; see [Queue.Send].
func (q *Queue) SendAll(ctx context.Context, messages []message.Message) ([]string, error) {
	var all enqueued
	err := pg.InTxThen(ctx, q.pool, func(tx pgx.Tx) (ended func(error), err error) {
		all, err = q.enqueueAll(ctx, tx, &pgx.Batch{}, messages)
		return all.ended, err
	})
	if err != nil {
		return nil, fmt.Errorf("send message: %w", err)
	}
	return all.ids, nil
}

// Enqueue accepts messages as part of a transaction; see [eventlog.Enqueuer].
func (q *Queue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	all, err := q.enqueueAll(ctx, tx, before, messages)
	if err != nil {
		return nil, nil, fmt.Errorf("enqueue message: %w", err)
	}
	return all.starts, all.ended, nil
}

// enqueued is the result of storing messages in a transaction.
type enqueued struct {
	ids []string // of the messages for functions
	// starts is the work that starts with the transaction.
	starts []*eventlog.InlineStart
	hooks  []func(error)
}

// ended must be called with the transaction's error when the transaction has ended.
func (e enqueued) ended(err error) {
	for _, hook := range e.hooks {
		hook(err)
	}
}

func (q *Queue) enqueueAll(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) (all enqueued, err error) {
	var work []message.Message
	var insertions []*insertion
	for _, m := range messages {
		if m.Work != message.WorkNone {
			work = append(work, m)
			continue
		}
		s, err := q.newInsertion(m)
		if err != nil {
			return enqueued{}, err
		}
		insertions = append(insertions, s)
	}
	if all.starts, all.hooks, err = q.enqueueWork(ctx, tx, before, work); err != nil {
		return enqueued{}, err
	}
	// A claim of a key waits for the transaction of a rival claim to end, so all transactions claim keys in the same
	// order, to avoid deadlocks.
	for _, s := range slices.SortedStableFunc(slices.Values(insertions), (*insertion).compare) {
		if err := s.execute(ctx, tx); err != nil {
			return enqueued{}, err
		}
		if err := s.resolve(ctx, tx); err != nil {
			return enqueued{}, err
		}
		all.hooks = append(all.hooks, s.ended)
	}
	for _, s := range insertions {
		all.ids = append(all.ids, s.id)
		if s.Stored != nil {
			*s.Stored = s.id
		}
	}
	return all, nil
}

// announce returns the function that notifies all processes of a message without a lease.
func (q *Queue) announce(m message.Message) func(failed error) {
	switch {
	case m.Gated:
		return func(error) {} // the pass that makes it due announces it
	case m.Delay > 0:
		return q.WakeTimer
	default:
		return q.announceDue
	}
}

// enqueueWork stores pieces of work, or makes those already stored due, after their delays. It returns the work that
// starts with the transaction.
func (q *Queue) enqueueWork(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, work []message.Message,
) (starts []*eventlog.InlineStart, ended []func(error), err error) {
	var all workBatch
	for _, m := range work {
		m.New = false // the run or step is written later: a rival may have won
		if m.Work == message.WorkEnd {
			children, err := dropWork(ctx, tx, before, m)
			if err != nil {
				return nil, nil, err
			}
			if m.Gated {
				all.stored = append(all.stored, &storedWork{announce: q.announceDue})
				m.Gated = false
			}
			if !children {
				continue
			}
		}
		all.write(pg.Batch{Batch: before}, q, m)
	}
	if err := pg.SendQueued(ctx, tx, before); err != nil {
		return nil, nil, err
	}
	for _, s := range all.stored {
		if s.Taken {
			starts = append(starts, s.InlineStart())
		}
	}
	return starts, []func(error){all.ended}, nil
}

// maxInsertions is how many messages for functions a conditional statement stores, and maxAlone how many messages that
// it stores by a write each. Its text depends on their number.
const maxInsertions, maxAlone = 4, 16

// EnqueueOptimistic implements [eventlog.Enqueuer] for small messages for functions and for all work, except for the
// end of a run with open children. It refuses a report to a parent and the cancellation of a child: these are work of
// another run, and the lock order of statements that share a transaction has only one run per statement.
func (q *Queue) EnqueueOptimistic(
	c *pg.Conditional, messages []message.Message,
) (starts []*eventlog.InlineStart, ended func(error), ok bool) {
	var all workBatch
	var insertions []*insertion
	messages, several := severalSteps(messages)
	if len(messages) > maxAlone {
		return nil, nil, false
	}
	mayLeaseTo := map[[3]string]bool{}
	begin := func(s *storedWork) {
		if !s.Made() {
			return
		}
		starts = append(starts, s.InlineStart())
		of := [3]string{s.holder, s.DeploymentID, string(s.Work)}
		if !mayLeaseTo[of] {
			c.Require(mayLease("$1", "$2::text", "$3::text", "$4::text"), s.holder, s.Project, s.DeploymentID, s.Work)
		}
		mayLeaseTo[of] = true
	}
	for _, s := range all.writeSteps(c, q, several) {
		begin(s)
	}
	for _, m := range messages {
		switch m.Work {
		case message.WorkNone:
			s, err := q.newInsertion(m)
			if err != nil || len(m.Body) > smallBody || len(insertions) == maxInsertions {
				return nil, nil, false
			}
			s.addTo(c)
			insertions = append(insertions, s)
			continue
		case message.WorkReport, message.WorkCancel:
			return nil, nil, false
		case message.WorkEnd:
			if m.Gated { // a message that is sent meanwhile would be missed
				return nil, nil, false
			}
			store.RequireNoOpenChild(c, m.RunID)
			c.Add(pg.Write{SQL: dropWorkAt(m), Args: []any{m.RunID}})
			continue
		default:
		}
		begin(all.write(c, q, m))
	}
	return starts, func(failed error) {
		all.ended(failed)
		for _, s := range insertions {
			if s.Stored != nil {
				*s.Stored = s.id
			}
			s.ended(failed)
		}
	}, true
}

// workBatch is the work that one transaction stores.
type workBatch struct {
	stored   []*storedWork
	reserved int
}

// write adds the writes of a piece of work, which this process does if it has a free slot.
func (b *workBatch) write(w pg.Writer, q *Queue, m message.Message) *storedWork {
	s := b.add(q, m)
	id := s.ID // which the write of the message replaces if it finds one
	w.Add(upsertWork(m, s))
	if m.Limits != nil {
		limit.InsertWaiting(w, m, id)
	}
	return s
}

// add adds a piece of work.
func (b *workBatch) add(q *Queue, m message.Message) *storedWork {
	s := &storedWork{
		Delivery: Delivery{
			ID: "msg_" + ulid.Make().String(), Project: m.Project, DeploymentID: m.DeploymentID, RunID: m.RunID, Work: m.Work,
			Subject: m.Subject,
		},
		Reservation: q.reserve(m, b.reserved),
		announce:    q.announce(m),
	}
	if s.Made() {
		b.reserved++
	}
	b.stored = append(b.stored, s)
	return s
}

// ended must be called with the transaction's error when the transaction has ended. It starts the work that is leased
// to this process, and announces the rest.
func (b *workBatch) ended(failed error) {
	for _, s := range b.stored {
		switch {
		case s.Made() && failed != nil: // the commit may have succeeded although its response was lost
			s.Start(Delivery{Lease: s.handle}, failed)
		case s.Taken:
			s.Start(s.Delivery, nil)
		default:
			s.announce(failed)
		}
	}
}

// storedWork is a piece of work as it was stored.
type storedWork struct {
	Delivery
	Reservation

	// Taken is set when the work got the reserved lease.
	Taken bool
	// announce notifies all processes of the work if it has no lease.
	announce func(failed error)
}

// Validate checks a message for a function. It fails with [entities.ErrInvalid].
func (*Queue) Validate(m message.Message) error {
	err := cmp.Or(entities.ValidateName("topic", m.Topic), entities.ValidateID("deployment ID", m.DeploymentID))
	if err != nil {
		return err
	}
	if m.RunID != "" {
		if err := entities.ValidateID("run ID", string(m.RunID)); err != nil {
			return err
		}
	}
	if m.Key != "" {
		if err := entities.ValidateName("idempotency key", m.Key); err != nil {
			return err
		}
	}
	if m.Delay < 0 || m.Delay > maxDelay {
		return entities.Invalid("a delay of %s is not between 0 and %s", m.Delay, maxDelay)
	}
	if m.Retention < 0 || m.Retention > maxRetention {
		return entities.Invalid("a retention of %s is not between 0 and %s", m.Retention, maxRetention)
	}
	return nil
}

// admit makes the messages due of runs and steps that got the slots of their limits, and of steps that were refused.
// As many as this process has room for are leased to it; see [limiter.Admit]. They go before what waits for a slot of
// the project: a granted run counts as begun, since others wait for the slots of the limits that it holds.
func (q *Queue) admit(b *pgx.Batch, p entities.Project, granted []limit.Granted) (ended func(error)) {
	var made []Reservation
	var leased, handles, runs, steps []string
	for _, g := range granted {
		if g.Refused != nil {
			b.Queue(refuseStep, g.MessageID, contract.Payload(g.Refused.Error(), contract.CodeLimitFull))
		}
		id := cmp.Or(g.MessageID, string(g.RunID))
		if g.MessageID == "" {
			runs = append(runs, id)
		} else {
			steps = append(steps, id)
		}
		if r := q.reserve(message.Message{Project: p}, len(made)); r.Made() {
			made, leased, handles = append(made, r), append(leased, id), append(handles, r.handle)
		}
	}
	begun := map[string]Delivery{}
	if len(made) > 0 {
		begin := func(d Delivery) { begun[d.Lease] = d }
		for _, lease := range []string{leaseRuns, leaseSteps} {
			pg.LoadEach(b, begin, lease, leased, handles, made[0].holder, made[0].lease)
		}
	}
	if len(runs) > 0 {
		b.Queue(releaseGated, runs)
	}
	if len(steps) > 0 {
		b.Queue(releaseSteps, steps)
	}
	return func(failed error) {
		for _, r := range made {
			d, ok := begun[r.handle]
			if ok && d.Work == message.WorkNone {
				q.limitsClients.Store(true)
			}
			if ok || failed != nil { // the commit may have succeeded nevertheless
				d.Lease = r.handle
				r.Start(d, failed)
			}
		}
		q.announceDue(failed)
	}
}

// leaseGated leases messages, which belong to the IDs $1 by a further condition, under the handles $2 to the process $3
// for the time $4.
var leaseGated = `
	UPDATE messages m SET lease = g.handle, holder = $3, ticket = ticket + 1, delivery_count = delivery_count + 1,
		due_at = now() + $4::interval, begins_run = false, awaits_since = NULL
	FROM unnest($1::text[], $2::text[]) AS g (about, handle)
	WHERE lease = '' AND ` + mayLease("$3", "m.project", "m.deployment_id", "m.work")

// leaseRuns is [leaseGated] for runs, and leaseSteps for messages with steps. They look up message by message, as
// releaseGated does.
var (
	leaseRuns = leaseGated + ` AND m.id = ANY (ARRAY (
			SELECT m.id FROM unnest($1::text[]) AS a (run), LATERAL (
				SELECT id FROM messages WHERE run_id = a.run AND work = 'run' AND subject = '' OFFSET 0) AS m))
		AND run_id = g.about AND due_at = ` + gated + returningLeased
	leaseSteps = leaseGated + ` AND m.id = ANY ($1::text[]) AND m.id = g.about` + returningLeased
)

const returningLeased = ` RETURNING ` + deliveryColumns + `, body`

const (
	// refuseStep has the step with the message $1 fail with the error $2.
	refuseStep = `UPDATE messages SET body = $2 WHERE id = $1 AND lease = ''`
	// releaseSteps makes the messages $1 due, which are for steps.
	releaseSteps = `UPDATE messages SET due_at = now() WHERE id = ANY ($1) AND lease = ''`
)

// needsSlots is the condition that the message m is for a step that needs slots of limits.
const needsSlots = `EXISTS (SELECT FROM permits w WHERE w.message_id = m.id)`

// lateStep is the error of a step whose deadline has passed while it waited for a slot.
var lateStep = contract.Payload("the time of the step was over before its limits had a slot", contract.CodeTimeout)

// expire ends the waits of steps whose deadline has passed; see [limiter.Expire].
func (q *Queue) expire(ctx context.Context) error {
	n, err := limit.Expire(ctx, q.pool, lateStep)
	if n > 0 {
		q.announceDue(err)
	}
	return err
}

// releaseGated makes the messages due of the runs $1 that had to wait for slots: those that were gated, which a fork
// has for open steps too, and those whose tickets were refused. They count as begun; see admit. It looks them up run by
// run: as a join, Postgres may read all messages, and it may read all that wait if it searches those that are due
// later; see [notParked].
var releaseGated = `
	UPDATE messages SET due_at = now(), begins_run = false WHERE id = ANY (ARRAY (
		SELECT m.id FROM unnest($1::text[]) AS g (run), LATERAL (
			SELECT id, project, deployment_id FROM runs WHERE id = g.run OFFSET 0
		) AS r, LATERAL (
			SELECT id FROM messages m
			WHERE m.project = r.project AND m.deployment_id = r.deployment_id AND m.run_id = r.id AND m.work = ''
				AND ` + isGated + `
			UNION ALL
			SELECT id FROM messages m WHERE m.run_id = r.id AND m.work = 'run' AND m.subject = '' AND ` + isGated + `
			UNION ALL
			SELECT id FROM messages m WHERE m.run_id = r.id AND m.work = 'step' AND m.due_at = ` + gated + `
				AND NOT ` + needsSlots + ` OFFSET 0
		) AS m))
		AND lease = '' AND parked_at IS NULL`

// isGated is the condition on a message m of [releaseGated].
const isGated = `m.lease = '' AND ` + notParked + ` AND m.due_at > now() AND (m.ticket > 0 OR m.due_at = ` + gated + `)`
