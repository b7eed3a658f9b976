package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// shortenLease leaves the function its lease when the process that called it has its answer: for d, the function may
// extend the lease or acknowledge through any server. A lease that the function has extended or released does not
// change.
func shortenLease(ctx context.Context, pool *pgxpool.Pool, handle string, d time.Duration) error {
	return exec(ctx, pool, "shorten lease", `
		UPDATE messages SET holder = '', due_at = least(due_at, now() + $2) WHERE `+OfLease+` AND holder <> ''`,
		handle, d)
}

// leaveLease leaves the function its lease when the process that called it stops, until the function must have extended
// it for the first time, or kept it again. Like [shortenLease], it changes no lease that the function has changed.
func leaveLease(ctx context.Context, pool *pgxpool.Pool, handle string, called time.Time) error {
	return exec(ctx, pool, "leave lease", `
		UPDATE messages SET holder = '', drained_lease = lease,
			due_at = least(due_at, greatest(
				CASE WHEN kept_until > now() THEN now() ELSE $2::timestamptz + $3::interval END, now() + $4::interval))
		WHERE `+OfLease+` AND holder <> ''`, handle, called, leftLease, minLeftLease)
}

// shortenLeftLeases ends the leases that stopped servers have left to a deployment's functions after a while, unless
// the functions extend them.
func shortenLeftLeases(ctx context.Context, pool *pgxpool.Pool, project entities.Project, deployment string) error {
	return exec(ctx, pool, "shorten left leases", `
		WITH left_behind AS (
			SELECT id FROM messages
			WHERE project = $1 AND lease LIKE '_%' AND deployment_id = $2 AND drained_lease = lease AND due_at > now() + $3`+
		cluster.LockOrder+`
		)
		UPDATE messages SET due_at = now() + $3 WHERE id = ANY (ARRAY(SELECT id FROM left_behind))`,
		project, deployment, cluster.KeptLease)
}

// changeLeased changes the message of the project's topic with the live lease $1. The arguments of change begin with
// $4. It fails with [message.ErrLeaseNotFound].
func (q *Queue) changeLeased(
	ctx context.Context, project entities.Project, topic, handle, change string, args ...any,
) error {
	tag, err := pg.NewPool(q.pool).Exec(ctx, `UPDATE messages SET `+change+` WHERE `+ofMessage,
		append([]any{handle, project, topic}, args...)...)
	if err == nil && tag.RowsAffected() == 0 {
		return message.ErrLeaseNotFound
	}
	return err
}

// postpone ends the lease of a delivery whose function has set when the message is due again, and has then answered
// with success. That is no failure: it leaves no error, and what the message has been delivered so far counts neither
// towards parking nor lengthens its backoff.
func postpone(ctx context.Context, pool *pgxpool.Pool, handle string) error {
	return exec(ctx, pool, "postpone message", `
		UPDATE messages
		SET lease = '', awaits_since = NULL, unreached_count = 0, disconnect_count = 0, excused_count = delivery_count,
			first_failed_at = NULL, last_error = '', blocked = NULL
		WHERE `+OfLease+` AND holder = ''`, handle)
}

// leaseLeft returns how long the lease lasts; not positive when it has ended.
func leaseLeft(ctx context.Context, pool *pgxpool.Pool, handle string) (time.Duration, error) {
	var d time.Duration
	err := pg.NewPool(pool).QueryRow(ctx,
		`SELECT due_at - clock_timestamp() FROM messages WHERE `+OfLease, handle).Scan(&d)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return d, pg.Wrap(err, "read lease")
}
