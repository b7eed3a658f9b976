package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// upsertWork stores a piece of work or makes the stored one due, and leases it if it has a reservation. Work in
// progress is marked to be done again, unless the new request is for later. Work that failed or is parked keeps its
// backoff: it sees all new events when it runs.
func upsertWork(m message.Message, s *storedWork) pg.Write {
	return pg.Write{What: "enqueue work", SQL: `
		INSERT INTO messages AS m (id, project, topic, deployment_id, run_id, work, subject, content_type, body,
			expires_at, ticket, due_at, lease, holder, delivery_count)
		SELECT $1, $2, $3, $4, $5, $6, $7, '', '', now() + $8 + $10, $9::integer,
			now() + CASE WHEN taken THEN $13 ELSE $8::interval END,
			CASE WHEN taken THEN $11 ELSE '' END, CASE WHEN taken THEN $12 ELSE '' END, taken::integer
		FROM (SELECT ` + isRegistered("$12") + ` AS taken OFFSET 0) AS o -- OFFSET 0: evaluate it once
		WHERE true`, Rest: `
		ON CONFLICT (run_id, work, subject) WHERE work <> '' DO UPDATE SET
			again = m.again OR m.lease <> '' AND excluded.ticket > 0,
			(ticket, due_at, lease, holder, delivery_count) = (SELECT
				CASE WHEN NOT idle THEN m.ticket WHEN excluded.lease <> '' THEN m.ticket + 1 -- invalidates the issued ticket
					ELSE greatest(m.ticket, excluded.ticket) END,
				CASE WHEN NOT idle THEN m.due_at WHEN excluded.ticket > 0 THEN excluded.due_at
					ELSE least(m.due_at, excluded.due_at) END,
				CASE WHEN idle THEN excluded.lease ELSE m.lease END,
				CASE WHEN idle THEN excluded.holder ELSE m.holder END,
				CASE WHEN idle THEN excluded.delivery_count ELSE 0 END + m.delivery_count
				FROM (SELECT m.lease = '' AND m.parked_at IS NULL AND m.last_error = '' AS idle) AS was)`,
		Args: []any{
			"msg_" + ulid.Make().String(), m.Project, m.Topic, m.DeploymentID, m.RunID, m.Work, m.Subject, m.Delay, ticketOf(m),
			maxRetention, s.handle, s.holder, s.lease,
		},
		Returning: deliveryColumns + `, body, lease <> '' AND lease = $11 AS taken`,
		Into:      append(s.columns(), &s.Body, &s.Taken),
	}
}

// dropAllWork deletes the work about run $1.
const dropAllWork = `DELETE FROM messages WHERE run_id = $1 AND work <> ''`

// dropWork deletes all work about a run that has ended, and reports whether the run has children to end.
func dropWork(ctx context.Context, tx pgx.Tx, before *pgx.Batch, runID entities.RunID) (children bool, err error) {
	before.Queue(dropAllWork, runID)
	store.LoadOpenChildren(before, runID, &children)
	return children, wrap("drop work", pg.SendQueued(ctx, tx, before))
}

// extendSQL sets the time that the lease $1 lasts from now.
const extendSQL = `UPDATE messages SET due_at = now() + $2 WHERE ` + OfLease

func extendLease(ctx context.Context, pool *pgxpool.Pool, handle string, d time.Duration) error {
	_, err := pg.NewPool(pool).Exec(ctx, extendSQL, handle, d)
	return wrap("extend lease", err)
}

// endWork deletes the piece of work under the lease $1. It has no condition on the column work: on an empty queue the
// planner would consider the index on work as good as that on leases; see [ofMessage].
const endWork = `DELETE FROM messages WHERE ` + OfLease
