package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Send accepts a message and returns its ID. For a duplicate it returns the ID of the original message, even if that
// has been acknowledged. It fails with [entities.ErrInvalid].
func (q *Queue) Send(ctx context.Context, m message.Message) (string, error) {
	if r := q.reserve(m, 0); r.Made() {
		return q.sendReserved(ctx, m, r)
	}
	ids, err := q.SendAll(ctx, []message.Message{m})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// sendReserved accepts a message that this process delivers.
func (q *Queue) sendReserved(ctx context.Context, m message.Message, r Reservation) (string, error) {
	if m.Retention == 0 {
		m.Retention = defaultRetention
	}
	if err := q.Validate(m); err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	d, err := insertReserved(ctx, q.group, m, "msg_"+ulid.Make().String(), r)
	if errors.Is(err, pgx.ErrNoRows) {
		return keyHolder(ctx, pg.NewPool(q.pool), m)
	}
	if d.Lease == "" && err == nil {
		q.announceDue(nil)
		return d.ID, nil
	}
	d.Lease = r.handle
	r.Start(d, err)
	if err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	return d.ID, nil
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
	work, messages := split(messages)
	for i := range messages {
		if messages[i].Retention == 0 {
			messages[i].Retention = defaultRetention
		}
		if err := q.Validate(messages[i]); err != nil {
			return enqueued{}, err
		}
	}
	if all.starts, all.hooks, err = q.enqueueWork(ctx, tx, before, work); err != nil {
		return enqueued{}, err
	}
	ids, first, err := claimKeys(ctx, tx, messages)
	if err != nil {
		return enqueued{}, err
	}
	all.ids = ids
	for i, m := range messages {
		if !first[i] {
			continue
		}
		hook, err := q.enqueue(ctx, tx, ids[i], m)
		if err != nil {
			return enqueued{}, err
		}
		all.hooks = append(all.hooks, hook)
	}
	return all, nil
}

// split separates work from messages for functions; both results are copies.
func split(all []message.Message) (work, messages []message.Message) {
	for _, m := range all {
		if m.Work == message.WorkNone {
			messages = append(messages, m)
		} else {
			work = append(work, m)
		}
	}
	return work, messages
}

// claimKeys returns an ID for each message, and whether the message is the first with its idempotency key. A duplicate
// gets the ID of the first. A claim waits for the transaction of a rival claim to end, so all transactions claim keys
// in the same order, to avoid deadlocks.
func claimKeys(ctx context.Context, tx pgx.Tx, messages []message.Message) (ids []string, first []bool, err error) {
	ids, first = make([]string, len(messages)), make([]bool, len(messages))
	order := make([]int, len(messages))
	for i := range messages {
		ids[i], order[i] = "msg_"+ulid.Make().String(), i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return strings.Compare(keyOrder(messages[i]), keyOrder(messages[j]))
	})
	for _, i := range order {
		own := ids[i]
		if messages[i].Key != "" {
			if ids[i], err = claimKey(ctx, tx, messages[i], own); err != nil {
				return nil, nil, err
			}
		}
		first[i] = ids[i] == own
	}
	return ids, first, nil
}

func (q *Queue) enqueue(ctx context.Context, tx pgx.Tx, id string, m message.Message) (func(error), error) {
	r := q.reserve(m, 0)
	d, err := insertMessage(ctx, tx, m, id, r)
	if err != nil {
		return nil, err
	}
	if d.Lease != "" {
		return func(err error) { r.Start(d, err) }, nil
	}
	return q.announce(m), nil
}

// announce returns the function that notifies all processes of a message without a lease.
func (q *Queue) announce(m message.Message) func(failed error) {
	if m.Delay > 0 {
		return q.WakeTimer
	}
	return q.announceDue
}

// enqueueWork stores pieces of work, or makes those already stored due, after their delays. It returns the work that
// starts with the transaction.
func (q *Queue) enqueueWork(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, work []message.Message,
) (starts []*eventlog.InlineStart, ended []func(error), err error) {
	var all workBatch
	for _, m := range work {
		if m.Work == message.WorkEnd {
			children, err := dropWork(ctx, tx, before, m.RunID)
			if err != nil {
				return nil, nil, err
			}
			if !children {
				continue
			}
		}
		pg.Batch{Batch: before}.Add(upsertWork(m, all.add(q, m)))
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

// EnqueueOptimistic implements [eventlog.Enqueuer] for all work, except for the end of a run with open children. It
// refuses messages for functions, a report to a parent and the cancellation of a child: these are work of another run,
// and the lock order of statements that share a transaction has only one run per statement.
func (q *Queue) EnqueueOptimistic(
	c *pg.Conditional, messages []message.Message,
) (starts []*eventlog.InlineStart, ended func(error), ok bool) {
	var all workBatch
	for _, m := range messages {
		switch m.Work {
		case message.WorkNone, message.WorkReport, message.WorkCancel:
			return nil, nil, false
		case message.WorkEnd:
			store.RequireNoOpenChild(c, m.RunID)
			c.Add(pg.Write{SQL: dropAllWork, Args: []any{m.RunID}})
			continue
		default:
		}
		s := all.add(q, m)
		c.Add(upsertWork(m, s))
		if s.Made() {
			c.Require(isRegistered("$1"), s.holder)
			starts = append(starts, s.InlineStart())
		}
	}
	return starts, all.ended, true
}

// workBatch is the work that one transaction stores.
type workBatch struct {
	stored   []*storedWork
	reserved int
}

// add adds a piece of work, which this process does if it has a free place.
func (b *workBatch) add(q *Queue, m message.Message) *storedWork {
	s := &storedWork{
		Delivery:    Delivery{Project: m.Project, RunID: m.RunID, Work: m.Work, Subject: m.Subject},
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
	if err := entities.ValidateName("topic", m.Topic); err != nil {
		return err
	}
	if err := entities.ValidateID("deployment ID", m.DeploymentID); err != nil {
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
