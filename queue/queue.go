package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const (
	// DefaultRetention is how long an idempotency key is remembered when the sender does not say.
	DefaultRetention = 24 * time.Hour
	// MaxDelay is the longest a message may be delayed; it covers what clients ask for (protocol §5.1).
	MaxDelay = 7 * 24 * time.Hour
	// MaxRetention bounds what a sender may ask for.
	MaxRetention = 30 * 24 * time.Hour
	// MaxVisibility is the longest a lease may be extended at once.
	MaxVisibility = 12 * time.Hour

	// timerTopic is the hub's topic for "something is due sooner than you may think".
	timerTopic = "timer"
)

// Queue accepts messages, and what functions say about them.
type Queue struct {
	pool   *pgxpool.Pool
	group  *eventlog.Group
	hub    *eventlog.Hub
	issuer *tickets.Issuer
	// local delivers in this process what it accepts, if it does.
	local atomic.Pointer[dispatcher]
	// underWay are the leases this process delivers with, and whether it has heard of their acknowledgement.
	underWay sync.Map // of *atomic.Bool, by handle
}

// New makes the queue of the database behind pool, whose tables are in the given schema.
func New(pool *pgxpool.Pool, schema string, hub *eventlog.Hub) (*Queue, error) {
	issuer, err := tickets.NewIssuer(pool, schema)
	if err != nil {
		return nil, err
	}
	return &Queue{pool: pool, group: eventlog.NewGroup(pool), hub: hub, issuer: issuer}, nil
}

// Pool is the queue's database.
func (q *Queue) Pool() *pgxpool.Pool { return q.pool }

// Group is what commits messages and acknowledgements, for a log on the same database to share; see
// [eventlog.WithGroup].
func (q *Queue) Group() *eventlog.Group { return q.group }

// Send accepts a message and returns its ID. The ID of a duplicate is that of the message it repeats,
// whether or not that one has been acknowledged. It fails with [entities.ErrInvalid].
func (q *Queue) Send(ctx context.Context, m entities.Message) (string, error) {
	if r := q.reserve(m, 0); r.Made() {
		return q.sendReserved(ctx, m, r)
	}
	ids, err := q.SendAll(ctx, []entities.Message{m})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// sendReserved accepts a message that this process delivers.
func (q *Queue) sendReserved(ctx context.Context, m entities.Message, r Reservation) (string, error) {
	if m.Retention == 0 {
		m.Retention = DefaultRetention
	}
	if err := validate(m); err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	d, err := insertReserved(ctx, q.group, m, "msg_"+ulid.Make().String(), r)
	if errors.Is(err, pgx.ErrNoRows) {
		return keyHolder(ctx, q.pool, m)
	}
	if d.Lease == "" && err == nil {
		q.WakeTimer(nil)
		return d.ID, nil
	}
	d.Lease = r.handle
	r.Start(d, err)
	if err != nil {
		return "", fmt.Errorf("send message: %w", err)
	}
	return d.ID, nil
}

// SendAll accepts messages, all or none of them, and returns their IDs; see [Queue.Send].
func (q *Queue) SendAll(ctx context.Context, messages []entities.Message) ([]string, error) {
	var ids []string
	err := eventlog.InTxThen(ctx, q.pool, func(tx pgx.Tx) (ended func(error), err error) {
		ids, _, ended, err = q.enqueueAll(ctx, tx, &pgx.Batch{}, messages)
		return ended, err
	})
	if err != nil {
		return nil, fmt.Errorf("send message: %w", err)
	}
	return ids, nil
}

// Enqueue accepts messages as part of a transaction; see [eventlog.Enqueuer].
func (q *Queue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []entities.Message,
) ([]*eventlog.Beginning, func(error), error) {
	_, begins, ended, err := q.enqueueAll(ctx, tx, before, messages)
	if err != nil {
		return nil, nil, fmt.Errorf("enqueue message: %w", err)
	}
	return begins, ended, nil
}

func (q *Queue) enqueueAll(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []entities.Message,
) (ids []string, begins []*eventlog.Beginning, ended func(error), err error) {
	work, messages := split(messages)
	for i := range messages {
		if messages[i].Retention == 0 {
			messages[i].Retention = DefaultRetention
		}
		if err := validate(messages[i]); err != nil {
			return nil, nil, nil, err
		}
	}
	begins, hooks, err := q.enqueueWork(ctx, tx, before, work)
	if err != nil {
		return nil, nil, nil, err
	}
	ids, first, err := claimKeys(ctx, tx, messages)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, m := range messages {
		if !first[i] {
			continue
		}
		hook, err := q.enqueue(ctx, tx, ids[i], m)
		if err != nil {
			return nil, nil, nil, err
		}
		hooks = append(hooks, hook)
	}
	return ids, begins, func(err error) {
		for _, hook := range hooks {
			hook(err)
		}
	}, nil
}

// split tells work from messages for functions; both are copies.
func split(all []entities.Message) (work, messages []entities.Message) {
	for _, m := range all {
		if m.Work == entities.WorkNone {
			messages = append(messages, m)
		} else {
			work = append(work, m)
		}
	}
	return work, messages
}

// claimKeys gives each message its ID, and tells whether it is the first with its idempotency key; of one that is
// not, the ID is that of the first. Keys are claimed in one order by all, for a claim waits for a rival's
// transaction to end.
func claimKeys(ctx context.Context, tx pgx.Tx, messages []entities.Message) (ids []string, first []bool, err error) {
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

func (q *Queue) enqueue(ctx context.Context, tx pgx.Tx, id string, m entities.Message) (func(error), error) {
	r := q.reserve(m, 0)
	d, err := insertMessage(ctx, tx, m, id, r)
	if err != nil {
		return nil, err
	}
	switch {
	case d.Lease != "":
		return func(err error) { r.Start(d, err) }, nil
	case m.Delay > 0:
		return q.WakeTimer, nil
	default:
		return q.wakeWorkers, q.issuer.Issue(ctx, tx, []tickets.Ticket{{MessageID: id, Number: firstTicket, Size: int64(len(m.Body))}})
	}
}

// wakeWorkers tells workers of new tickets, if their transaction was committed.
func (q *Queue) wakeWorkers(failed error) {
	if failed == nil {
		q.hub.Send(q.issuer.Hint)
	}
}

// WakeTimer tells processes that a message may be due sooner than they know, if the transaction was committed.
func (q *Queue) WakeTimer(failed error) {
	if failed == nil {
		q.hub.Publish(timerTopic)
	}
}

// Issued returns a channel that gets an item after each commit of this process that made something due at once, before
// the call returns that committed; and a function that ends the subscription.
func (q *Queue) Issued() (news <-chan struct{}, cancel func()) {
	return q.hub.Subscribe(q.issuer.Hint.Topic)
}

// Validate checks a message for a function. It fails with [entities.ErrInvalid].
func (q *Queue) Validate(m entities.Message) error { return validate(m) }

func validate(m entities.Message) error {
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
	if m.Delay < 0 || m.Delay > MaxDelay {
		return entities.Invalid("a delay of %s is not between 0 and %s", m.Delay, MaxDelay)
	}
	if m.Retention < 0 || m.Retention > MaxRetention {
		return entities.Invalid("a retention of %s is not between 0 and %s", m.Retention, MaxRetention)
	}
	return nil
}

// Acknowledge ends a message: the function is done with it. It fails with [entities.ErrLeaseNotFound]
// when the handle is not that of a living lease of this project and topic.
func (q *Queue) Acknowledge(ctx context.Context, project entities.Project, topic, handle string) error {
	if err := q.deleteLeased(ctx, project, topic, handle); err != nil {
		return fmt.Errorf("acknowledge message: %w", err)
	}
	if acknowledged, ok := q.underWay.Load(handle); ok {
		acknowledged.(*atomic.Bool).Store(true)
	}
	return nil
}

// SetVisibility makes a leased message due again after d: far away to go on working on it, near to give it
// back for another delivery. It fails with [entities.ErrInvalid] on a time out of bounds and with
// [entities.ErrLeaseNotFound] as [Queue.Acknowledge] does.
func (q *Queue) SetVisibility(
	ctx context.Context, project entities.Project, topic, handle string, d time.Duration,
) error {
	if d < 0 || d > MaxVisibility {
		return entities.Invalid("a visibility timeout of %s is not between 0 and %s", d, MaxVisibility)
	}
	if err := setDue(ctx, q.pool, project, topic, handle, d); err != nil {
		return fmt.Errorf("change visibility of message: %w", err)
	}
	q.hub.Publish(timerTopic)
	if d == 0 {
		q.wakeWorkers(nil)
	}
	return nil
}
