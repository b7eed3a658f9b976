package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/concurrency"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/capacity/limiter"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/pull"
	"github.com/stepwell-dev/stepwell/queue/tickets"
	"github.com/stepwell-dev/stepwell/queue/world"
)

const (
	// defaultRetention is how long an idempotency key is kept if the sender does not specify a retention.
	defaultRetention = 24 * time.Hour
	// maxDelay is the longest delay of a message; it covers the delays that clients use (protocol §5.1).
	maxDelay = 7 * 24 * time.Hour
	// maxRetention is the longest retention a sender may ask for.
	maxRetention = 30 * 24 * time.Hour
	// maxVisibility is the longest extension of a lease.
	maxVisibility = 12 * time.Hour

	// timerTopic is the hub's topic for hints that a message may be due earlier than a process has planned for.
	timerTopic = "timer"
	// dueTopic is the hub's topic for hints that a message is due now.
	dueTopic = "due"
)

// Queue stores messages, and lets functions acknowledge, extend and release their leases.
type Queue struct {
	pool *pgxpool.Pool
	// sessions opens connections that keep their session; nil if there are none.
	sessions *pgxpool.Pool
	group    *pg.GroupCommit
	hub      *pg.Hub
	issuer   *tickets.Issuer
	// limits grants slots of limits to what waits for them.
	limits *limiter.Limiter
	// bounds knows how many calls of a deployment may be under way.
	bounds *concurrency.Bounds
	pauses pauses
	// limitsClients is set when this process has met a step of an app of the Workflow SDK that needs slots of limits.
	limitsClients atomic.Bool
	// local delivers the messages that this process accepts; nil if the process does not deliver.
	local atomic.Pointer[dispatcher]
	// underWay has the leases of the deliveries in progress here, and whether this process served their
	// acknowledgement. If it did, the lease is gone and needs no statement to shorten it.
	underWay sync.Map // of *atomic.Bool, by handle
	// polls has the polls of apps that ask this process for their deliveries, and asked the apps that were noted to have
	// asked within askedPause.
	polls *pull.Polls[world.App, Delivery]
	asked sync.Map // by world.App
	// workers has the workers that ask this process for calls, and claiming the apps for which it claims messages.
	workers  *pull.Workers[world.App]
	claiming sync.Map // by world.App
	starts   *startDeployments
	// hosted is the app that is in this process; nil for none.
	hosted *Hosted
	// processors has the slots for work with large payloads.
	processors *share.Processors
	payloads   atrest.Codec
}

// New returns the queue in the pool's database, whose tables are in the given schema.
func New(pool *pgxpool.Pool, schema string, hub *pg.Hub) (*Queue, error) {
	issuer, err := tickets.NewIssuer(pool, schema)
	if err != nil {
		return nil, err
	}
	q := &Queue{
		pool: pool, sessions: pool, group: pg.NewGroupCommit(pool), hub: hub, issuer: issuer,
		pauses: pauses{pool: pool}, polls: pull.NewPolls[world.App, Delivery](),
		workers:    pull.NewWorkers(func(a world.App) string { return string(a.Project) }),
		processors: share.NewProcessors(runtime.GOMAXPROCS(0)), starts: rememberStarts(), payloads: atrest.Identity{},
	}
	q.limits = limiter.New(pool, hub, q.admit, q.expire)
	q.bounds = concurrency.New(pool, gated, q.announceDue)
	return q, nil
}

// UseSessions makes the workers of this process open the connections that must keep their session as those of another
// pool are: the queue's leads to a pooler in transaction mode. Without one, by nil, they do without: they poll for
// tickets, and a dead process is noticed later. It must be called before workers are made.
func (q *Queue) UseSessions(pool *pgxpool.Pool) { q.sessions = pool }

// UsePayloads sets the codec of the pool's payloads, which the queue prepares before it sends messages. It must be
// called before the queue is used.
func (q *Queue) UsePayloads(c atrest.Codec) { q.payloads = c }

// Pool returns the connection pool of the queue's database.
func (q *Queue) Pool() *pgxpool.Pool { return q.pool }

// Processors returns the slots of this process for work with large payloads.
func (q *Queue) Processors() *share.Processors { return q.processors }

// Group returns the group commit of messages and acknowledgements, which a log on the same database may share; see
// [eventlog.WithGroup].
func (q *Queue) Group() *pg.GroupCommit { return q.group }

// Delivering returns how many deliveries are under way in this process.
func (q *Queue) Delivering() int {
	d := q.local.Load()
	if d == nil {
		return 0
	}
	return int(d.slots.Held() + d.deliverer.slots.Held())
}

// DeliveringOf returns how many of them are the project's.
func (q *Queue) DeliveringOf(project string) int {
	d := q.local.Load()
	if d == nil {
		return 0
	}
	return int(d.slots.HeldBy(project) + d.deliverer.slots.HeldBy(project))
}

// Awaited implements [eventlog.Limiter].
func (q *Queue) Awaited(project entities.Project, uses []entities.LimitUse) {
	q.limits.Awaited(project, uses)
}

// Freed implements [eventlog.Limiter].
func (q *Queue) Freed(project entities.Project, uses []entities.LimitUse) {
	q.limits.Freed(project, uses)
}

// Grants implements [eventlog.Limiter].
func (q *Queue) Grants() bool { return q.limits.Running() }

// LimitsChanged notifies the processes that grant permits of changed settings.
func (q *Queue) LimitsChanged() { q.limits.CheckEverywhere() }

// announceDue notifies all processes that a message is due now. It does nothing if the transaction failed.
func (q *Queue) announceDue(failed error) {
	if failed == nil {
		q.hub.Publish(dueTopic)
	}
}

// WakeTimer notifies all processes that a message may be due earlier than they have planned for. It does nothing if the
// transaction failed.
func (q *Queue) WakeTimer(failed error) {
	if failed == nil {
		q.hub.Publish(timerTopic)
	}
}

// Acknowledge deletes a message that its function has processed. It fails with [message.ErrLeaseNotFound] when the
// project's topic has no live lease with this handle.
//
// If the run has hooks, it also notes how much of the log the delivery has seen: later events without a message tell
// the sweeper that the run is stranded. A message that needs a note is deleted in a transaction of its own, since the
// note locks another row.
func (q *Queue) Acknowledge(ctx context.Context, project entities.Project, topic, handle string) error {
	a := acknowledgement{project: project, topic: topic, handle: handle}
	err := q.group.Do(ctx, &a)
	if err == nil && a.shared && !a.ended {
		err = a.Execute(ctx, q.pool)
	}
	if err == nil && !a.ended {
		err = message.ErrLeaseNotFound
	}
	if err == nil {
		q.noteAcknowledged(handle)
	}
	return pg.Wrap(err, "acknowledge message")
}

// noteAcknowledged says to the delivery in progress that its lease is gone.
func (q *Queue) noteAcknowledged(handle string) {
	if acknowledged, ok := q.underWay.Load(handle); ok {
		acknowledged.(*atomic.Bool).Store(true)
	}
}

// AcknowledgeWith returns the companion with which an append deletes the message too, if its lease is live then. The
// caller must call committed after the append has succeeded. The message is locked before the append claims the keys of
// its own messages; see ARCHITECTURE.md, "Locks".
func (q *Queue) AcknowledgeWith(
	project entities.Project, topic, handle string,
) (with eventlog.Companion, committed func()) {
	a := acknowledgement{project: project, topic: topic, handle: handle}
	return a, func() { q.noteAcknowledged(handle) }
}

// Lock locks the message.
func (a acknowledgement) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	b.Queue(`SELECT FROM messages WHERE `+ofMessage+` FOR UPDATE`, a.handle, a.project, a.topic)
	return func([]eventlog.Request) error { return nil }
}

// AddTo deletes the message.
func (a acknowledgement) AddTo(s *pg.Conditional, _ eventlog.Outlook) { a.addTo(s) }

// Nack releases a leased message after a failure of its function. It does nothing if the project's topic has no live
// lease with this handle.
func (q *Queue) Nack(ctx context.Context, project entities.Project, topic, handle string, f Failure) error {
	var live bool
	err := pg.NewPool(q.pool).QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM messages WHERE `+ofMessage+`)`, handle, project, topic).Scan(&live)
	if err != nil || !live {
		return pg.Wrap(err, "find lease")
	}
	err = exec(ctx, q.pool, "release failed message", nackSQL, f.nackArgs(handle)...)
	q.WakeTimer(err)
	return err
}

// Postpone ends the lease of a message whose function wants it again after d, and has not failed. It does nothing if
// the project's topic has no live lease with this handle.
func (q *Queue) Postpone(
	ctx context.Context, project entities.Project, topic, handle string, d time.Duration,
) error {
	err := q.SetVisibility(ctx, project, topic, handle, d)
	if errors.Is(err, message.ErrLeaseNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return postpone(ctx, q.pool, handle)
}

// CheckLease fails with [message.ErrStale] unless the lease of the call is live.
func (q *Queue) CheckLease(ctx context.Context, c token.Call) error {
	g := LeaseGuard{}
	err := pg.NewPool(q.pool).QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM messages WHERE `+OfLease+`
			AND (project, run_id) IS NOT DISTINCT FROM ($2, $3) AND due_at > clock_timestamp())`,
		c.Invocation, c.Project, c.RunID,
	).Scan(&g.alive)
	if err != nil {
		return fmt.Errorf("check lease: %w", err)
	}
	return g.Check()
}

// SetVisibility makes a leased message due again after d: a long time extends the lease, zero releases the message for
// another delivery. From then on the function holds the lease: it is alive and can reach a server, so the lease
// outlives the process that called it. It fails with [entities.ErrInvalid] when d is out of bounds and with
// [message.ErrLeaseNotFound] as [Queue.Acknowledge] does.
func (q *Queue) SetVisibility(
	ctx context.Context, project entities.Project, topic, handle string, d time.Duration,
) error {
	if d < 0 || d > maxVisibility {
		return entities.Invalid("a visibility timeout of %s is not between 0 and %s", d, maxVisibility)
	}
	err := q.changeLeased(ctx, project, topic, handle, `holder = '', drained_lease = '', due_at = now() + $4`, d)
	if err != nil {
		return fmt.Errorf("change visibility of message: %w", err)
	}
	if d == 0 {
		q.announceDue(nil)
	} else {
		q.WakeTimer(nil)
	}
	return nil
}

// KeepLease notes that the function works on a leased message. While the process that called it holds the lease, it
// goes on holding it, for long: it learns of the function's death by the call. Functions that have said so do it every
// few seconds: when they have not for [cluster.KeptLease], and no server is calling them, the message is delivered
// again. It fails with [message.ErrLeaseNotFound] as [Queue.Acknowledge] does.
func (q *Queue) KeepLease(ctx context.Context, project entities.Project, topic, handle string) error {
	err := q.changeLeased(ctx, project, topic, handle, `kept_until = now() + $4, drained_lease = '', due_at = CASE
		WHEN holder = '' THEN now() + $4 WHEN due_at < now() + $5::interval / 2 THEN now() + $5 ELSE due_at END`,
		cluster.KeptLease, leaseTime)
	return pg.Wrap(err, "keep lease")
}

// Claim leases the message of a ticket to the holder, and invalidates the ticket. It reports false if there is nothing
// to deliver, because the ticket has been used or the message is gone or parked, or if the holder is not registered,
// since others would take over its lease.
func (q *Queue) Claim(
	ctx context.Context, t tickets.Ticket, handle, holder string, lease time.Duration,
) (Delivery, bool, error) {
	args := []any{t.MessageID, t.Number, handle, holder, lease}
	rows, err := pg.NewPool(q.pool).Query(ctx, claimSQL(`NOT `+isBounded), args...)
	d, err := pg.CollectOne[Delivery](rows, err, pgx.ErrNoRows)
	if !errors.Is(err, pgx.ErrNoRows) {
		return d, err == nil, pg.Wrap(err, "claim message")
	}
	var claimed *Delivery
	err = q.bounds.Claim(ctx, t, holder, mayClaim+` AND `+mayHold("$3"), func(b *pgx.Batch, condition string) {
		pg.LoadInto(b, &claimed, claimSQL(condition), args...)
	})
	if err != nil {
		return Delivery{}, false, pg.Wrap(err, "claim message")
	}
	if claimed == nil {
		return Delivery{}, false, q.holdBack(ctx, t)
	}
	return *claimed, true, nil
}

// claimable is the condition that the message $1 with the ticket $2 may be leased.
var claimable = `id = $1 AND ticket = $2 AND lease = '' AND ` + notParked + ` AND NOT ` + messageWaits + `
	AND NOT ` + limit.MessageWaits

// mayHold is the condition that a process, or the client ”, may have leases.
func mayHold(process string) string { return `(` + process + ` = '' OR ` + isRegistered(process) + `)` }

// mayClaim is the condition that it may be leased now, unless the calls of its deployment have a bound.
var mayClaim = claimable + ` AND NOT ` + limit.MustHoldBack

// holdBack has the message of a ticket wait for its slots, if it is for a step of an app of the Workflow SDK that
// needs some.
func (q *Queue) holdBack(ctx context.Context, t tickets.Ticket) error {
	uses, err := limit.HoldBack(ctx, q.pool, claimable, gated, t.MessageID, t.Number)
	if len(uses) > 0 {
		q.limitsClients.Store(true)
		q.limits.Awaited(t.Project, uses)
	}
	return err
}

// noteFreed says to the limiter that a delivery may have freed slots: that of a step of an app of the Workflow SDK.
func (q *Queue) noteFreed(ctx context.Context, d Delivery) error {
	if !q.limitsClients.Load() || d.Work != message.WorkNone || !stepTopic.MatchString(d.Topic) {
		return nil
	}
	uses, err := limit.OfClientStep(context.WithoutCancel(ctx), q.pool, d.Project, d.RunID, d.Topic)
	if len(uses) > 0 {
		q.limits.Awaited(d.Project, uses)
	}
	return err
}

// claimSQL leases the message $1 of ticket $2 under the handle $3 to the process $4 for the time $5, if it meets a
// further condition.
func claimSQL(condition string) string {
	return `
		UPDATE messages m
		SET lease = $3, holder = $4, ticket = ticket + 1, delivery_count = delivery_count + 1, due_at = now() + $5,
			begins_run = false, redeliver = false, awaits_since = NULL, leased_seq = ` + logLength + `
		WHERE ` + mayClaim + ` AND ` + mayHold("$4") + ` AND ` + condition + `
		RETURNING ` + deliveryColumns + `, body`
}

// isBounded is the condition that the message m is for a call whose deployment has a bound.
var isBounded = concurrency.IsBounded("m.project", "m.deployment_id", "m.work")

// Receive leases a message to a client that asks for it by ID. This counts as a delivery. It fails with
// [message.ErrMessageNotFound] when the project's topic does not have the message, for example because it has been
// acknowledged, and with [entities.ErrConflict] while the message is delayed, parked or leased, if its run, workflow or
// deployment is paused, or if the calls of its deployment have a bound or its step has limits.
func (q *Queue) Receive(
	ctx context.Context, project entities.Project, topic, id string, lease time.Duration,
) (Delivery, error) {
	if lease <= 0 || lease > maxVisibility {
		return Delivery{}, entities.Invalid("a visibility timeout of %s is not between 0 and %s", lease, maxVisibility)
	}
	// Like a claim, this invalidates the issued ticket.
	rows, err := pg.NewPool(q.pool).Query(ctx, `
		UPDATE messages m
		SET lease = $4, holder = '', ticket = ticket + 1, delivery_count = delivery_count + 1, due_at = now() + $5,
			begins_run = false, awaits_since = NULL, leased_seq = `+logLength+`
		WHERE `+ofID+` AND (topic, work) IS NOT DISTINCT FROM ($3, '') AND lease = '' AND `+notParked+` AND NOT `+isBounded+`
			AND NOT `+limit.MustHoldBack+` AND NOT `+limit.MessageWaits+`
			AND (ticket > 0 OR due_at <= now())
			AND NOT EXISTS (`+pausesOf("m.project", "m.run_id", "m.deployment_id")+`)
		RETURNING `+deliveryColumns+`, body`,
		id, project, topic, newHandle(), lease)
	m, err := pg.CollectOne[Delivery](rows, err, pgx.ErrNoRows)
	if errors.Is(err, pgx.ErrNoRows) {
		err = q.whyNotReceived(ctx, project, topic, id)
	}
	return m, pg.Wrap(err, "receive message %s", id)
}

func (q *Queue) whyNotReceived(ctx context.Context, project entities.Project, topic, id string) error {
	var exists bool
	err := pg.NewPool(q.pool).QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM messages WHERE `+ofID+` AND topic = $3)`,
		id, project, topic).Scan(&exists)
	switch {
	case err != nil:
		return err
	case exists:
		return fmt.Errorf("message is delayed, parked, leased or paused: %w", entities.ErrConflict)
	default:
		return message.ErrMessageNotFound
	}
}
