package tickets

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/pg"
)

const (
	available = `state = 'available' AND queue = '` + Queue + `'`

	// OldestSince selects the time since which the next ticket has been waiting, or no row if none waits.
	OldestSince = `SELECT scheduled_at FROM river_job WHERE ` + available + ` ORDER BY priority, scheduled_at, id LIMIT 1`
	// Waiting selects the project of each ticket that waits to be used, up to 10,000.
	Waiting = `SELECT args->>'project' AS project FROM river_job WHERE ` + available + ` LIMIT 10000`
	// DeleteHeldByDead deletes the tickets in use by processes whose id is in the relation dead. It returns the message
	// and the number of each. River appends the ID of the process that uses a job to attempted_by.
	DeleteHeldByDead = `DELETE FROM river_job j USING dead
			WHERE j.state = 'running' AND j.queue = '` + Queue + `'
				AND j.attempted_by[array_upper(j.attempted_by, 1)] = dead.id
			RETURNING j.args->>'message' AS message, (j.args->>'ticket')::integer AS ticket`
)

// Take takes up to n usable tickets out of River's table, for the caller to use. If the caller dies, their messages get
// new tickets when they are due, as with any lost ticket.
func Take(ctx context.Context, pool *pgxpool.Pool, n int) ([]Ticket, error) {
	tickets, err := pg.CollectAll[Ticket](pg.NewPool(pool).Query(ctx, `
		WITH taken AS (
			DELETE FROM river_job WHERE id = ANY (ARRAY(
				SELECT id FROM river_job WHERE `+available+` AND scheduled_at <= now()
				ORDER BY priority, scheduled_at, id LIMIT $1
				FOR UPDATE SKIP LOCKED))
			RETURNING args, scheduled_at
		)
		SELECT args->>'message' AS message_id, (args->>'ticket')::integer AS number,
			coalesce(args->>'project', '') AS project, coalesce((args->>'size')::bigint, 0) AS size, scheduled_at AS issued_at
		FROM taken`, n))
	if err != nil {
		return nil, fmt.Errorf("take tickets: %w", err)
	}
	return tickets, nil
}
