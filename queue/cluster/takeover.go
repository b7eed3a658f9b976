package cluster

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// ProcessDied is the last error of a message whose delivery was lost with its process.
const ProcessDied = "the server that made the delivery died"

// TakenOver is the result of [TakeOver].
type TakenOver struct {
	Processes []string
	// Leases counts deliveries that were under way, Tickets those that had not begun.
	Leases, Tickets int
}

// LockOrder is the order in which statements of a group commit lock messages (see [pg.LockOrder]): messages
// for functions by their lease, then work by its run.
const LockOrder = ` ORDER BY work <> '', CASE work WHEN '' THEN lease ELSE run_id END, work, subject FOR UPDATE`

// ReleaseOrphans ends the leases of holders that are on no record: the claim of a dying process may still be carried
// out after others took over. It returns their number.
func ReleaseOrphans(ctx context.Context, tx pgx.Tx) (int64, error) {
	tag, err := tx.Exec(ctx, `
		WITH leased AS (
			SELECT id FROM messages
			WHERE lease <> '' AND holder <> '' AND NOT EXISTS (SELECT FROM processes p WHERE p.id = holder)`+LockOrder+`
		)
		UPDATE messages SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1, last_error = $1
		WHERE id = ANY (ARRAY(SELECT id FROM leased))`, ProcessDied)
	return tag.RowsAffected(), wrap("release leases of the dead", err)
}

// TakeOver finds the dead among the silent processes, deletes them from the record, and makes the messages they held
// due. It is one statement: whichever process deletes the row of a dead one takes over from it.
//
// A delivery lost in this way is not counted: it is no failure of its message, and a server that keeps crashing must
// not use up the deliveries of a healthy message. Leases that functions have extended are their own, not the process's,
// and stay.
func TakeOver(
	ctx context.Context, q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}, silent []string, silence, frozen time.Duration,
) (t TakenOver, err error) {
	err = q.QueryRow(ctx, `
		WITH dead AS (
			DELETE FROM processes p
			WHERE id = ANY($1) AND beat_at < now() - $2::interval AND (
				beat_at < now() - $3::interval
				OR NOT EXISTS (
					SELECT FROM pg_locks
					WHERE locktype = 'advisory' AND granted AND objsubid = 1
						AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
						AND classid::bigint << 32 | objid::bigint = p.session_key))
			RETURNING id
		), jobs AS (
			`+tickets.DeleteHeldByDead+`
		), leased AS (
			SELECT id FROM messages WHERE lease <> '' AND holder IN (SELECT id FROM dead)`+LockOrder+`
		), leases AS (
			UPDATE messages
			SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1, last_error = $4
			WHERE id = ANY (ARRAY(SELECT id FROM leased))
			RETURNING id
		), tickets AS (
			UPDATE messages m SET due_at = now()
			WHERE id = ANY (ARRAY(SELECT message FROM jobs)) AND lease = '' AND coalesce(m.parked_at, 'infinity') = 'infinity'
				AND EXISTS (SELECT FROM jobs j WHERE j.message = m.id AND j.ticket = m.ticket)
			RETURNING id
		)
		SELECT (SELECT coalesce(array_agg(id), '{}') FROM dead), (SELECT count(*) FROM leases),
			(SELECT count(*) FROM tickets)`,
		silent, silence, frozen, ProcessDied).Scan(&t.Processes, &t.Leases, &t.Tickets)
	return t, wrap("take over from the dead", err)
}
