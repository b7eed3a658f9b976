// Package concurrency bounds how many calls of a deployment's functions are under way at once, over all servers.
//
// A call that is under way is a lease of its message, so the leases are what is counted: no place can be lost. A lease
// at a deployment with a bound is only taken by [Claim], under a lock on the deployment's row. It counts in a statement
// after the one that obtained the lock, so it sees each lease that was taken under the lock before; see package
// entities/limit. All other ways to lease a message leave those of such deployments alone: [IsBounded].
//
// A message for which there is no room waits: awaits_since is set, and it is due in the far future. Whoever commits the
// end of a lease, or such a wait, looks afterwards who may go: [Bounds.Look]. Both commits precede both looks, so the
// later look sees both. If a process dies in between, [Bounds.LookAtAll] makes up for it. Making messages due that wait
// needs no lock, since each is claimed before it is delivered. Who came first goes first: a message that has not waited
// finds no room while others wait.
package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// MaxCalls is the highest bound.
const MaxCalls = 10_000

// perLook is how many messages a look makes due at a deployment whose calls nothing bounds any more, and how many
// deployments [Bounds.LookAtAll] looks at.
const perLook = 500

// calls is the condition that a kind of work calls a function of its deployment.
func calls(work string) string { return work + ` IN ('', 'run', 'step')` }

// IsBounded is the condition that a message with these columns is for a call whose deployment has a bound.
func IsBounded(project, deployment, work string) string {
	return `(` + calls(work) + ` AND EXISTS (SELECT FROM deployments b
		WHERE b.project = ` + project + ` AND b.id = ` + deployment + ` AND b.max_concurrent IS NOT NULL))`
}

// isBounded is [IsBounded] for a row of messages m.
var isBounded = IsBounded("m.project", "m.deployment_id", "m.work")

// underWay counts the calls of a deployment that are under way.
func underWay(project, deployment string) string {
	return `(SELECT count(*) FROM messages l WHERE l.project = ` + project + ` AND l.lease > ''
		AND l.deployment_id = ` + deployment + ` AND ` + calls("l.work") + `)`
}

// waiting selects the messages that wait for a deployment.
func waiting(project, deployment string) string {
	return ` FROM messages w WHERE w.project = ` + project + ` AND w.deployment_id = ` + deployment + `
		AND w.awaits_since IS NOT NULL AND w.parked_at IS NULL`
}

// hasRoom is the condition that the message m may be leased, in a statement after the lock.
var hasRoom = `(m.awaits_since IS NOT NULL OR NOT EXISTS (SELECT` + waiting("m.project", "m.deployment_id") + `))
	AND coalesce(` + underWay("m.project", "m.deployment_id") + ` < (SELECT max_concurrent FROM deployments d
		WHERE d.project = m.project AND d.id = m.deployment_id), true)`

// Awaited has, for a message m that waits, how many calls its deployment may have, how many are under way, and how many
// messages are before it, up to 1,000.
var Awaited = `
	CASE WHEN m.awaits_since IS NULL THEN 0 ELSE coalesce((SELECT max_concurrent FROM deployments d
		WHERE d.project = m.project AND d.id = m.deployment_id), 0) END AS max_calls,
	CASE WHEN m.awaits_since IS NULL THEN 0
		ELSE ` + underWay("m.project", "m.deployment_id") + ` END::integer AS under_way,
	CASE WHEN m.awaits_since IS NULL THEN 0 ELSE (SELECT count(*) FROM (
		SELECT` + waiting("m.project", "m.deployment_id") + ` AND (w.awaits_since, w.id) < (m.awaits_since, m.id) LIMIT 1000) AS a) END::integer AS ahead`

// Deployment identifies a deployment.
type Deployment struct {
	Project    entities.Project
	Deployment string
}

// Bounds knows which deployments have a bound, as far as this process has met them.
type Bounds struct {
	pool *pgxpool.Pool
	// gated is the SQL of the time at which messages are due that wait.
	gated string
	// announce tells all processes that messages are due.
	announce func(failed error)

	known sync.Map // of struct{}, by Deployment
}

// New returns bounds of which nothing is known yet.
func New(pool *pgxpool.Pool, gated string, announce func(error)) *Bounds {
	return &Bounds{pool: pool, gated: gated, announce: announce}
}

// Known reports whether the deployment had a bound when this process last met it.
func (b *Bounds) Known(project entities.Project, deployment string) bool {
	_, ok := b.known.Load(Deployment{project, deployment})
	return ok
}

// Claim leases the message of a ticket, whose deployment may have a bound, by the statement that claim queues with a
// further condition on the message m. If there is no room, it has the message wait, if that meets the condition mayWait
// on the ticket's message $1 and number $2.
func (b *Bounds) Claim(
	ctx context.Context, t tickets.Ticket, mayWait string, claim func(batch *pgx.Batch, condition string),
) error {
	var at *Deployment
	waits := false
	err := pg.InTxBatch(ctx, b.pool, func(batch *pgx.Batch) {
		at = nil
		pg.LoadInto(batch, &at, `
			SELECT d.project, d.id AS deployment FROM messages m
				JOIN deployments d ON d.project = m.project AND d.id = m.deployment_id
			WHERE m.id = $1 AND d.max_concurrent IS NOT NULL AND `+calls("m.work")+` FOR NO KEY UPDATE OF d`, t.MessageID)
		claim(batch, hasRoom)
		batch.Queue(`
			UPDATE messages m SET awaits_since = coalesce(awaits_since, now()), ticket = ticket + 1, due_at = `+b.gated+`
			WHERE `+mayWait+` AND `+isBounded+` AND NOT (`+hasRoom+`)`, t.MessageID, t.Number).
			Exec(func(tag pgconn.CommandTag) error {
				waits = tag.RowsAffected() > 0
				return nil
			})
	})
	if err == nil && at != nil {
		b.known.Store(*at, struct{}{})
	}
	if err == nil && waits {
		err = b.look(ctx, *at)
	}
	return err
}

// Look makes messages due that may go after a call of a deployment has ended. It looks only at deployments that have a
// bound as far as this process knows.
func (b *Bounds) Look(ctx context.Context, project entities.Project, deployment string) error {
	if !b.Known(project, deployment) {
		return nil
	}
	return b.look(context.WithoutCancel(ctx), Deployment{project, deployment})
}

// look makes those messages due that came first, as many as there is room for. Those that were made due and have not
// been claimed yet are among them.
func (b *Bounds) look(ctx context.Context, d Deployment) error {
	var bounded bool
	var due int
	err := pg.NewPool(b.pool).QueryRow(ctx, `
		WITH room AS MATERIALIZED (
			SELECT greatest(0, max_concurrent - `+underWay("$1", "$2")+`) AS n FROM deployments
			WHERE project = $1 AND id = $2 AND max_concurrent IS NOT NULL
		), next AS MATERIALIZED (
			SELECT id`+waiting("$1", "$2")+` ORDER BY awaits_since, id LIMIT coalesce((SELECT n FROM room), $3)
		), locked AS MATERIALIZED (
			SELECT id FROM messages WHERE id = ANY (ARRAY(SELECT id FROM next)) AND lease = '' AND due_at = `+b.gated+`
			ORDER BY id FOR UPDATE SKIP LOCKED
		), made AS (
			UPDATE messages SET due_at = now() WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
		)
		SELECT EXISTS (SELECT FROM room), (SELECT count(*) FROM made)`, d.Project, d.Deployment, perLook).
		Scan(&bounded, &due)
	if err != nil {
		return fmt.Errorf("look who may call deployment %s: %w", d.Deployment, err)
	}
	if bounded {
		b.known.Store(d, struct{}{})
	} else {
		b.known.Delete(d)
	}
	if due > 0 {
		b.announce(nil)
	}
	return nil
}

// Changed looks at a deployment whose bound may have changed.
func (b *Bounds) Changed(ctx context.Context, project entities.Project, deployment string) error {
	return b.look(ctx, Deployment{project, deployment})
}

// LookAtAll looks at all deployments for which messages wait.
func (b *Bounds) LookAtAll(ctx context.Context) error {
	list, err := pg.CollectAll[Deployment](pg.NewPool(b.pool).Query(ctx, `
		WITH RECURSIVE places AS (
			(SELECT project, deployment_id, 1 AS n FROM messages WHERE awaits_since IS NOT NULL
				ORDER BY project, deployment_id LIMIT 1)
			UNION ALL
			SELECT next.*, n + 1 FROM places p, LATERAL (
				SELECT project, deployment_id FROM messages
				WHERE awaits_since IS NOT NULL AND (project, deployment_id) > (p.project, p.deployment_id)
				ORDER BY project, deployment_id LIMIT 1) AS next
			WHERE n < $1
		)
		SELECT project, deployment_id AS deployment FROM places`, perLook))
	failed := []error{err}
	for _, d := range list {
		failed = append(failed, b.look(ctx, d))
	}
	return errors.Join(failed...)
}
