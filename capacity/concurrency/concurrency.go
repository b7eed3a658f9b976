// Package concurrency bounds how many calls of a deployment's functions are under way at once, over all servers.
//
// A call that is under way is a lease of its message, so the leases are what is counted: no slot can be lost. A lease
// at a deployment with a bound is only taken by [Bounds.Claim], under a lock on the deployment's row. It counts in a
// statement after the one that obtained the lock, so it sees each lease that was taken under the lock before; see
// package capacity/limit. All other ways to lease a message leave those of such deployments alone, [IsBounded], but
// take no lock: those that are under way while the first bound is set may not see it.
//
// A message for which there is no room waits: awaits_since is set, and it is due in the far future, or when the time of
// its step is over: then it needs no room, since the step fails without a call. Whoever commits the end of a lease, or
// such a wait, makes due afterwards what may go: [Bounds.Freed]. Both commits precede both checks, so the later check
// sees both. If a process dies in between, [Bounds.CheckAll] makes up for it. Making messages due that wait needs no
// lock, since each is claimed before it is delivered. Who came first goes first: a message that has not waited finds no
// room while others wait, and a lease ends the wait.
package concurrency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// MaxCalls is the highest bound.
const MaxCalls = 10_000

// perCheck is how many messages a check makes due at a deployment whose calls nothing bounds any more, and how many
// deployments [Bounds.CheckAll] checks.
const perCheck = 500

// lateMargin is how long after its deadline a step is late by the clocks of all servers.
const lateMargin = `interval '1 s'`

// calls is the condition that a kind of work calls a function of its deployment.
func calls(work string) string { return work + ` IN ('', 'run', 'step')` }

// IsBounded is the condition that a message with these columns is for a call whose deployment has a bound.
func IsBounded(project, deployment, work string) string {
	return `(` + calls(work) + ` AND EXISTS (SELECT FROM deployments b
		WHERE b.project = ` + project + ` AND b.id = ` + deployment + ` AND b.max_concurrent IS NOT NULL))`
}

// isBounded is [IsBounded] for a row of messages m.
var isBounded = IsBounded("m.project", "m.deployment_id", "m.work")

// lateAt is when the step of the message m is late, so that it fails without a call; NULL for never.
const lateAt = `(SELECT (e.data->'step'->>'deadline')::timestamptz + ` + lateMargin + `
	FROM steps s JOIN events e ON e.run_id = s.run_id AND e.seq = s.created_seq
	WHERE m.work = 'step' AND s.run_id = m.run_id AND s.id = m.subject)`

// underWay counts the calls of a deployment that are under way.
func underWay(project, deployment string) string {
	return `(SELECT count(*) FROM messages l WHERE l.project = ` + project + ` AND l.lease LIKE '_%'
		AND l.deployment_id = ` + deployment + ` AND ` + calls("l.work") + `)`
}

// waiting selects the messages that wait for a deployment.
func waiting(project, deployment string) string {
	return ` FROM messages w WHERE w.project = ` + project + ` AND w.deployment_id = ` + deployment + `
		AND w.awaits_since IS NOT NULL AND w.parked_at IS NULL AND w.lease = ''`
}

// isBelow is the condition that fewer calls of a deployment are under way than it may have.
func isBelow(project, deployment string) string {
	return `coalesce(` + underWay(project, deployment) + ` < (SELECT max_concurrent FROM deployments d
		WHERE d.project = ` + project + ` AND d.id = ` + deployment + `), true)`
}

// hasRoom is the condition that the message m may be leased, in a statement after the lock.
var hasRoom = `((m.awaits_since IS NOT NULL OR NOT EXISTS (SELECT` + waiting("m.project", "m.deployment_id") + `))
	AND ` + isBelow("m.project", "m.deployment_id") + ` OR coalesce(` + lateAt + ` <= now(), false))`

// Awaited has, for a message m that waits, how many calls its deployment may have, how many are under way, and how many
// messages are before it, up to the statement's parameter $1.
var Awaited = `
	CASE WHEN m.awaits_since IS NULL THEN 0 ELSE coalesce((SELECT max_concurrent FROM deployments d
		WHERE d.project = m.project AND d.id = m.deployment_id), 0) END AS max_calls,
	CASE WHEN m.awaits_since IS NULL THEN 0
		ELSE ` + underWay("m.project", "m.deployment_id") + ` END::integer AS under_way,
	CASE WHEN m.awaits_since IS NULL THEN 0 ELSE (SELECT count(*) FROM (
		SELECT` + waiting("m.project", "m.deployment_id") + ` AND (w.awaits_since, w.id) < (m.awaits_since, m.id)
		LIMIT $1) AS a) END::integer AS ahead`

// nextSlot selects the deployment after another one for which messages wait.
func nextSlot(project, deployment string) string {
	return `SELECT project, deployment_id FROM messages
		WHERE awaits_since IS NOT NULL AND parked_at IS NULL
			AND (project, deployment_id) > (` + project + `, ` + deployment + `)
		ORDER BY project, deployment_id LIMIT 1`
}

// Deployment identifies a deployment.
type Deployment struct {
	Project    entities.Project
	Deployment string
}

// Bounds knows which deployments have a bound, as far as this process has met them.
type Bounds struct {
	pool *pgxpool.Pool
	// until is the SQL of the time at which a message m is due that waits.
	until string
	// announce tells all processes that messages are due.
	announce func(failed error)

	known sync.Map // of struct{}, by Deployment
	wake  chan struct{}

	mu sync.Mutex
	// last is the last deployment that [Bounds.CheckAll] has checked.
	last Deployment
}

// New returns bounds of which nothing is known yet. Gated is the SQL of the time at which messages are due that wait.
func New(pool *pgxpool.Pool, gated string, announce func(error)) *Bounds {
	return &Bounds{
		pool: pool, until: `least(` + gated + `, ` + lateAt + `)`, announce: announce, wake: make(chan struct{}, 1),
	}
}

// Known reports whether the deployment had a bound when this process last met it.
func (b *Bounds) Known(project entities.Project, deployment string) bool {
	_, ok := b.known.Load(Deployment{project, deployment})
	return ok
}

// note notes whether a deployment has a bound.
func (b *Bounds) note(d Deployment, bounded bool) {
	if bounded {
		b.known.Store(d, struct{}{})
	} else {
		b.known.Delete(d)
	}
}

// Claim leases the message of a ticket to the holder if its deployment has a bound, by the statement that claim queues
// with a further condition on the message m. If there is no room, it has the message wait. It does either only if that
// meets the condition claimable on the ticket's message $1 and number $2, and on the holder $3.
func (b *Bounds) Claim(
	ctx context.Context, t tickets.Ticket, holder, claimable string, claim func(batch *pgx.Batch, condition string),
) error {
	args := []any{t.MessageID, t.Number, holder}
	bounded, err := pg.CollectValue[bool](pg.NewPool(b.pool).Query(ctx,
		`SELECT EXISTS (SELECT FROM messages m WHERE `+claimable+` AND `+isBounded+`)`, args...))
	if err != nil || !bounded {
		return err
	}
	var at *struct {
		Deployment

		Bounded bool
	}
	waits := false
	err = pg.InTxBatch(ctx, b.pool, func(batch *pgx.Batch) {
		at = nil
		// From here on the bound does not change, whether there is one or not.
		pg.LoadInto(batch, &at, `
			SELECT d.project, d.id AS deployment, d.max_concurrent IS NOT NULL AS bounded
			FROM messages m JOIN deployments d ON d.project = m.project AND d.id = m.deployment_id
			WHERE m.id = $1 FOR NO KEY UPDATE OF d`, t.MessageID)
		claim(batch, hasRoom)
		// What was not leased waits, even if a call has ended since: the check makes it due.
		batch.Queue(`
			UPDATE messages m SET awaits_since = coalesce(awaits_since, now()), ticket = ticket + 1, due_at = `+b.until+`
			WHERE `+claimable, args...).
			Exec(func(tag pgconn.CommandTag) error {
				waits = tag.RowsAffected() > 0
				return nil
			})
	})
	if err != nil || at == nil {
		return err
	}
	b.note(at.Deployment, at.Bounded)
	if waits {
		return b.makeDue(ctx, at.Deployment)
	}
	return nil
}

// Freed makes messages due that may go after a call of a deployment has ended. It checks only deployments that have a
// bound as far as this process knows.
func (b *Bounds) Freed(ctx context.Context, project entities.Project, deployment string) error {
	if !b.Known(project, deployment) {
		return nil
	}
	return b.makeDue(context.WithoutCancel(ctx), Deployment{project, deployment})
}

// makeDue makes those messages due that came first, as many as there is room for. Those that were made due and have not
// been claimed yet are among them.
func (b *Bounds) makeDue(ctx context.Context, d Deployment) error {
	var bounded bool
	var due int
	err := pg.NewPool(b.pool).QueryRow(ctx, `
		WITH room AS MATERIALIZED (
			SELECT greatest(0, max_concurrent - `+underWay("$1", "$2")+`) AS n FROM deployments
			WHERE project = $1 AND id = $2 AND max_concurrent IS NOT NULL
		), next AS MATERIALIZED (
			SELECT id`+waiting("$1", "$2")+` ORDER BY awaits_since, id LIMIT coalesce((SELECT n FROM room), $3)
		), locked AS MATERIALIZED (
			SELECT id FROM messages m WHERE id = ANY (ARRAY(SELECT id FROM next)) AND lease = '' AND due_at = `+b.until+`
			ORDER BY id FOR UPDATE SKIP LOCKED
		), made AS (
			UPDATE messages SET due_at = now() WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
		)
		SELECT EXISTS (SELECT FROM room), (SELECT count(*) FROM made)`, d.Project, d.Deployment, perCheck).
		Scan(&bounded, &due)
	if err != nil {
		return fmt.Errorf("make the next calls of deployment %s due: %w", d.Deployment, err)
	}
	b.note(d, bounded)
	if due > 0 {
		b.announce(nil)
	}
	return nil
}

// Changed checks a deployment whose bound may have changed.
func (b *Bounds) Changed(ctx context.Context, project entities.Project, deployment string) error {
	return b.makeDue(ctx, Deployment{project, deployment})
}

// CheckSoon has [Bounds.Run] check all deployments for which messages wait.
func (b *Bounds) CheckSoon() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Run checks all deployments whenever [Bounds.CheckSoon] was called, until the context ends.
func (b *Bounds) Run(ctx context.Context, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		if err := b.CheckAll(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "select callable deployments", "error", err)
		}
	}
}

// CheckAll checks the deployments for which messages wait that may go. Of many it checks a part, and the next part when
// it is called again.
func (b *Bounds) CheckAll(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	type slot struct {
		Deployment

		Bounded, Goes bool
	}
	list, err := pg.CollectAll[slot](pg.NewPool(b.pool).Query(ctx, `
		WITH RECURSIVE slots AS (
			SELECT next.*, 1 AS n FROM (`+nextSlot("$2", "$3")+`) AS next
			UNION ALL
			SELECT next.*, n + 1 FROM slots p, LATERAL (`+nextSlot("p.project", "p.deployment_id")+`) AS next WHERE n < $1
		)
		SELECT project, deployment_id AS deployment,
			EXISTS (SELECT FROM deployments d
				WHERE d.project = p.project AND d.id = p.deployment_id AND d.max_concurrent IS NOT NULL) AS bounded,
			`+isBelow("p.project", "p.deployment_id")+` AND EXISTS (SELECT FROM (
				SELECT w.*`+waiting("p.project", "p.deployment_id")+`) AS m WHERE due_at = `+b.until+`) AS goes
		FROM slots p`, perCheck, b.last.Project, b.last.Deployment))
	if err != nil {
		return fmt.Errorf("select callable deployments: %w", err)
	}
	b.last = Deployment{}
	if len(list) == perCheck {
		b.last = list[perCheck-1].Deployment
	}
	var failed []error
	for _, p := range list {
		b.note(p.Deployment, p.Bounded)
		if p.Goes {
			failed = append(failed, b.makeDue(ctx, p.Deployment))
		}
	}
	return errors.Join(failed...)
}
