package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// A function of the contract may say in short intervals that it works on a call, through any server. Its call is then
// not bound to the server that made it: when that stops or dies, the lease stays with the function, as long as it says
// so, and the answer comes by a request of its own.

// ofCall selects the work of run $3 in project $2 under the live lease $1; see [ofMessage].
const ofCall = OfLease +
	` AND (project, run_id) IS NOT DISTINCT FROM ($2, $3) AND work <> '' AND due_at > clock_timestamp()`

// keepMessages begins the statement that keeps calls for the time $4, unless no server waits for them and the function
// has not sent the heartbeats that its step asks for.
const keepMessages = `
	UPDATE messages SET kept_until = now() + $4, drained_lease = '',
		due_at = CASE holder WHEN '' THEN now() + $4 ELSE due_at END
	WHERE (holder <> '' OR NOT ` + silent + `) AND `

// KeepCall notes that a function works on the call with the lease. It fails with [message.ErrStale] if the call is
// over, or if no server waits for it and the function has not sent the heartbeats that its step asks for.
func (q *Queue) KeepCall(ctx context.Context, c token.Call) error {
	tag, err := pg.NewPool(q.pool).Exec(ctx, keepMessages+ofCall, c.Invocation, c.Project, c.RunID, cluster.KeptLease)
	if err == nil && tag.RowsAffected() == 0 {
		return errCallOver
	}
	return pg.Wrap(err, "keep call")
}

// errCallOver refuses what a function sends for a call that is over.
var errCallOver = fmt.Errorf("%w: the call is over, or another server makes it again: stop", message.ErrStale)

// Called returns the delivery of a call that is under way, for its answer. It is bound to no worker: it cannot call. It
// fails with [message.ErrStale] if the call is over.
func (q *Queue) Called(ctx context.Context, c token.Call) (Delivery, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx,
		`SELECT `+deliveryColumns+`, body FROM messages m WHERE `+ofCall, c.Invocation, c.Project, c.RunID)
	d, err := pg.CollectOne[Delivery](rows, err, pgx.ErrNoRows)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, errCallOver
	}
	d.by = &deliverer{queue: q, lease: leaseTime}
	return d, pg.Wrap(err, "find call")
}

// Release ends the lease of work after a failure; see [Persist].
func (d Delivery) Release(ctx context.Context, f Failure) error { return d.by.nack(ctx, d.Lease, f) }

// leaveCall ends what this process has to do with work whose call it has cut off because it stops. If the function says
// that it works, it keeps the lease, and must say so again within [minLeftLease]. Otherwise the work is due at once. It
// counts as called only if the call's error says so.
func (w *deliverer) leaveCall(ctx context.Context, d Delivery, cut error) error {
	left := false
	err := Persist(ctx, func(ctx context.Context) error {
		tag, err := pg.NewPool(w.queue.pool).Exec(ctx, `
			UPDATE messages SET holder = '', drained_lease = lease, due_at = least(due_at, now() + $2)
			WHERE `+OfLease+` AND holder <> '' AND (kept_until > now() OR $3)`,
			d.Lease, minLeftLease, d.place != nil && d.place.InHand)
		left = tag.RowsAffected() > 0
		return pg.Wrap(err, "leave call")
	})
	if err != nil || left {
		return err
	}
	return w.nack(ctx, d.Lease, Failure{Reason: message.ServerStopped, Reached: errors.Is(cut, ErrCalled)})
}
