package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// TakenOver is the result of [TakeOver].
type TakenOver struct {
	// Processes has the IDs of the dead processes.
	Processes []string
	// Leases is the number of deliveries under way that were lost, Tickets that of deliveries not started yet.
	Leases, Tickets int
}

// LockOrder locks messages in the order that all statements of a group commit follow (see [pg.LockOrder]): messages for
// functions by their lease, then work by its run. Without one order, a takeover and a group commit could deadlock.
const LockOrder = ` ORDER BY work <> '', CASE work WHEN '' THEN lease ELSE run_id END, work, subject FOR UPDATE`

// CountsExactly is the condition that the deliveries of message m must be counted exactly, since it is for the function
// of a run with a fence: on the first delivery, that does not read what others may have done.
var CountsExactly = fmt.Sprintf(`m.work = '' AND m.run_id <> '' AND NOT EXISTS (
	SELECT FROM runs r WHERE r.id = m.run_id AND r.project IS NOT DISTINCT FROM m.project AND r.spec_version < %d)`,
	entities.SpecFence)

// KeptLease is how long a function keeps its lease without saying that it works, if no server is calling it.
const KeptLease = 10 * time.Second

// lost ends the lease of message m whose server died. The message did not fail, and a server that keeps crashing must
// not use up the deliveries of a healthy message; but it may have reached its function. A function that was still
// working then, by the condition, has the lease from then on.
func lost(works string) string {
	return fmt.Sprintf(`holder = '', unreached_count = 0, (lease, due_at, delivery_count, excused_count) = (
		SELECT CASE WHEN works THEN lease ELSE '' END, now() + CASE WHEN works THEN interval '%d s' ELSE '0' END,
			delivery_count - (NOT works AND NOT exact)::integer, excused_count + (NOT works AND exact)::integer
		FROM (SELECT coalesce(%s, false) AS works, %s AS exact) AS run)`, int(KeptLease.Seconds()), works, CountsExactly)
}

// ReleaseOrphans ends the leases whose holder has no row in processes, and returns their number. They exist because
// Postgres may still execute the claim of a dying process after another process has taken over from it.
func ReleaseOrphans(
	ctx context.Context, q interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	},
) (int64, error) {
	tag, err := q.Exec(ctx, `
		WITH leased AS (
			SELECT id FROM messages
			WHERE lease <> '' AND holder <> '' AND NOT EXISTS (SELECT FROM processes p WHERE p.id = holder)
				AND `+pg.Staying("project")+LockOrder+`
		)
		UPDATE messages m SET `+lost("m.kept_until > now()")+`, last_error = $1
		WHERE id = ANY (ARRAY(SELECT id FROM leased))`, message.ServerDied)
	return tag.RowsAffected(), pg.Wrap(err, "release orphaned leases")
}

// TakeOver deletes the rows of those silent processes that are dead, and makes the messages they held due. It is one
// statement, so of all processes that try, the one that deletes the row takes over.
//
// A lease that a function has extended has no holder any more, so it stays, and so does that of a function which said
// until its server died that it works: it must say so again within [KeptLease].
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
				OR p.session_key <> 0 AND NOT EXISTS (
					SELECT FROM pg_locks
					WHERE locktype = 'advisory' AND granted AND objsubid = 1
						AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
						AND classid::bigint << 32 | objid::bigint = p.session_key))
			RETURNING id, beat_at
		), jobs AS (
			`+tickets.DeleteHeldByDead+`
		), leased AS (
			SELECT id FROM messages WHERE lease <> '' AND holder IN (SELECT id FROM dead)
				AND `+pg.Staying("project")+LockOrder+`
		), leases AS (
			UPDATE messages m
			SET `+lost("m.kept_until > (SELECT beat_at FROM dead WHERE dead.id = m.holder)")+`, last_error = $4
			WHERE id = ANY (ARRAY(SELECT id FROM leased))
			RETURNING lease
		), tickets AS (
			UPDATE messages m SET due_at = now()
			WHERE id = ANY (ARRAY(SELECT message FROM jobs)) AND lease = '' AND coalesce(m.parked_at, 'infinity') = 'infinity'
				AND `+pg.Staying("m.project")+`
				AND EXISTS (SELECT FROM jobs j WHERE j.message = m.id AND j.ticket = m.ticket)
			RETURNING id
		)
		SELECT (SELECT coalesce(array_agg(id), '{}') FROM dead), (SELECT count(*) FROM leases WHERE lease = ''),
			(SELECT count(*) FROM tickets)`,
		silent, silence, frozen, message.ServerDied).Scan(&t.Processes, &t.Leases, &t.Tickets)
	return t, pg.Wrap(err, "take over from dead processes")
}
