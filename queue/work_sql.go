package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// enqueueWork sees to it that the work is there, and is done once its delay is over. It returns what of it begins with
// the transaction.
func (q *Queue) enqueueWork(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, work []entities.Message,
) (begins []*eventlog.Beginning, ended []func(error), err error) {
	stored := make([]storedWork, len(work))
	reserved := 0
	for i, m := range work {
		if m.Work == entities.WorkEnd {
			children, err := dropWork(ctx, tx, before, m.RunID)
			if err != nil {
				return nil, nil, err
			}
			if !children {
				continue
			}
		}
		stored[i].reservation = q.reserve(m, reserved)
		if stored[i].made() {
			reserved++
		}
		entities.Batch{Batch: before}.Add(upsertWork(m, &stored[i]))
	}
	if err := eventlog.SendQueued(ctx, tx, before); err != nil {
		return nil, nil, err
	}
	var tickets []Ticket
	for i := range stored {
		switch s := &stored[i]; {
		case s.ID == "": // not needed
		case s.Taken:
			begins = append(begins, s.inlineStart())
			ended = append(ended, s.start)
		case s.Now:
			tickets = append(tickets, Ticket{MessageID: s.ID, Number: s.Ticket})
		default:
			ended = append(ended, q.wakeTimer)
		}
	}
	if len(tickets) == 0 {
		return begins, ended, nil
	}
	return begins, append(ended, q.wakeWorkers), q.issue(ctx, tx, tickets)
}

// EnqueueBelieved implements [eventlog.Enqueuer] for work that is for later, or for this process, and for the end of a
// run with which no children end. A report to a parent is work about another run, for which the order in which chains
// that share a transaction lock has no place.
func (q *Queue) EnqueueBelieved(
	c *entities.Chain, messages []entities.Message,
) (begins []*eventlog.Beginning, ended func(error), ok bool) {
	stored := make([]storedWork, 0, len(messages))
	for _, m := range messages {
		if m.Work == entities.WorkEnd {
			entities.RequireNoOpenChild(c, m.RunID)
			c.Add(entities.Write{SQL: dropAllWork, Args: []any{m.RunID}})
			continue
		}
		stored = append(stored, storedWork{reservation: q.reserve(m, len(begins))})
		s := &stored[len(stored)-1]
		if m.Work == entities.WorkNone || m.Work == entities.WorkReport || m.Delay == 0 && !s.made() {
			return nil, nil, false
		}
		c.Add(upsertWork(m, s))
		if s.made() {
			c.Require(onRecord("$1"), s.holder)
			s.delivery = delivery{RunID: m.RunID, Work: m.Work, Subject: m.Subject}
			begins = append(begins, s.inlineStart())
		}
	}
	return begins, func(failed error) {
		for i := range stored {
			switch s := &stored[i]; {
			case !s.made():
				q.wakeTimer(failed)
			case failed != nil: // it may be there all the same
				s.reservation.start(delivery{Lease: s.handle}, failed)
			case s.Taken:
				s.start(nil)
			}
		}
	}, true
}

// storedWork is a piece of work as it was stored.
type storedWork struct {
	delivery
	reservation

	// Taken says that it is leased as offered, Now that its ticket is to be issued now.
	Taken, Now bool
	Ticket     int
}

// start does the work that was leased as offered, unless that has failed.
func (s *storedWork) start(failed error) { s.reservation.start(s.delivery, failed) }

// upsertWork is to store a piece of work, or to hurry the one that is there along, leased as offered if it is to be
// done now. What is under way is to be done again if the news is of now. What failed, or is parked, is left to its
// backoff: it will see all there is then.
func upsertWork(m entities.Message, s *storedWork) entities.Write {
	ticket, due := firstTicket, ticketTime
	if m.Delay > 0 {
		ticket, due = 0, m.Delay
	}
	return entities.Write{What: "enqueue work", SQL: `
		INSERT INTO messages AS m (id, project, topic, deployment_id, run_id, work, subject, content_type, body,
			expires_at, ticket, due_at, lease, holder, delivery_count)
		SELECT $1, $2, $3, $4, $5, $6, $7, '', '', now() + $8 + $10, $9::integer,
			now() + CASE WHEN taken THEN $13 ELSE $8::interval END,
			CASE WHEN taken THEN $11 ELSE '' END, CASE WHEN taken THEN $12 ELSE '' END, taken::integer
		FROM (SELECT ` + onRecord("$12") + ` AS taken OFFSET 0) AS o -- which has it asked once
		WHERE true`, Rest: `
		ON CONFLICT (run_id, work, subject) WHERE work <> '' DO UPDATE SET
			again = m.again OR m.lease <> '' AND excluded.ticket > 0,
			(ticket, due_at, lease, holder, delivery_count) = (SELECT
				CASE WHEN NOT idle THEN m.ticket WHEN excluded.lease <> '' THEN m.ticket + 1 -- the one that is out is used up
					ELSE greatest(m.ticket, excluded.ticket) END,
				CASE WHEN NOT idle THEN m.due_at WHEN excluded.ticket > 0 THEN excluded.due_at
					ELSE least(m.due_at, excluded.due_at) END,
				CASE WHEN idle THEN excluded.lease ELSE m.lease END,
				CASE WHEN idle THEN excluded.holder ELSE m.holder END,
				CASE WHEN idle THEN excluded.delivery_count ELSE 0 END + m.delivery_count
				FROM (SELECT m.lease = '' AND m.parked_at IS NULL AND m.last_error = '' AS idle) AS was)`,
		Args: []any{
			"msg_" + ulid.Make().String(), m.Project, m.Topic, m.DeploymentID, m.RunID, m.Work, m.Subject, due, ticket,
			MaxRetention, s.handle, s.holder, s.lease,
		},
		Returning: deliveryColumns + `, body, lease <> '' AND lease = $11 AS taken, ticket,
			$9 > 0 AND lease = '' AND parked_at IS NULL AND last_error = '' AS now`,
		Into: append(s.columns(), &s.Body, &s.Taken, &s.Ticket, &s.Now),
	}
}

// dropAllWork ends the work about run $1.
const dropAllWork = `DELETE FROM messages WHERE run_id = $1 AND work <> ''`

// dropWork drops all work about a run, for it has ended, and reports whether children end with it.
func dropWork(ctx context.Context, tx pgx.Tx, before *pgx.Batch, runID entities.RunID) (children bool, err error) {
	before.Queue(dropAllWork, runID)
	entities.LoadOpenChildren(before, runID, &children)
	return children, wrap("drop work", eventlog.SendQueued(ctx, tx, before))
}

// extendLease makes a lease last so long from now.
func extendLease(ctx context.Context, q execer, handle string, d time.Duration) error {
	_, err := q.Exec(ctx, `UPDATE messages SET due_at = now() + $2 WHERE `+ofLease, handle, d)
	return wrap("extend lease", err)
}

// execer is a pool, a transaction, or a batch.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// queued executes later, with the batch, and does not know how it goes.
type queued struct{ *pgx.Batch }

// Exec implements execer.
func (q queued) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// endWork ends the piece of work under the lease $1 for good. That it is work is not asked: of an empty queue, the
// index of all work would be as good as that of leases.
const endWork = `DELETE FROM messages WHERE ` + ofLease

// deleteWork ends a piece of work for good. It may be gone: the end of a run drops all.
func deleteWork(ctx context.Context, q execer, handle string) error {
	_, err := q.Exec(ctx, endWork, handle)
	return wrap("end work", err)
}

// advanceWork keeps how far a piece of work has come, for whoever has to go on with it, and makes its lease last so
// long from now. It fails with [entities.ErrStale] when the lease is over.
func advanceWork(ctx context.Context, q execer, handle string, place []byte, lease time.Duration) error {
	tag, err := q.Exec(ctx, `
		UPDATE messages SET body = $2, due_at = now() + $3
		WHERE `+ofLease+` AND due_at > clock_timestamp()`, handle, place, lease)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: its lease is over", entities.ErrStale)
	}
	return wrap("say how far the work has come", err)
}

// lostWork is the work there ought to be about a run, and is not; and that it is invoked, as it may have missed some.
func lostWork(ctx context.Context, tx pgx.Tx, run stranded) ([]entities.Message, error) {
	rows, err := tx.Query(ctx, `
		SELECT s.id AS subject, s.name AS topic,
			CASE WHEN e.data->'step'->>'childId' IS NULL THEN 'step' ELSE 'report' END AS work,
			coalesce(e.data->'step'->>'deploymentId', $2) AS deployment_id, interval '0' AS delay
		FROM steps s JOIN events e ON e.run_id = s.run_id AND e.seq = s.created_seq
		WHERE s.run_id = $1 AND s.completed_at IS NULL AND e.data->'step' IS NOT NULL
			AND NOT EXISTS (SELECT FROM runs c WHERE c.parent_id = s.run_id AND c.parent_id <> ''
				AND c.parent_step = s.id AND c.completed_at IS NULL)
			AND NOT EXISTS (SELECT FROM messages m
				WHERE m.run_id = s.run_id AND m.work IN ('step', 'report') AND m.subject = s.id)
		UNION ALL
		SELECT '', workflow_name, 'deadline', deployment_id, deadline - now() FROM runs r
		WHERE r.id = $1 AND deadline IS NOT NULL
			AND NOT EXISTS (SELECT FROM messages m WHERE m.run_id = r.id AND m.work = 'deadline')
		LIMIT $3`, run.ID, run.DeploymentID, eventlog.MaxBatch)
	if err != nil {
		return nil, wrap("look for lost work", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[entities.Message])
	if err != nil {
		return nil, wrap("look for lost work", err)
	}
	list = append(list, entities.Message{Work: entities.WorkRun, Topic: run.WorkflowName, DeploymentID: run.DeploymentID})
	for i := range list {
		list[i].Project, list[i].RunID = run.Project, run.ID
	}
	return list, nil
}
