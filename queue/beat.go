package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/pg"
)

// The function of a step may send heartbeats: they say that it works, and how far it is. What it said last is in the
// message, for the call of the next attempt. If the step has a time for heartbeats, the server that makes the call
// gives up an attempt that is silent for longer. If there is no such server any more, the lease is what ends: the
// function cannot keep it (see [Queue.KeepCall]). Heartbeats extend nothing.

const (
	// MaxProgress limits what a function says about how far it is, in bytes.
	MaxProgress = 4 << 10
	// BeatPause is how far apart the heartbeats of a step are at least: one that comes earlier is refused.
	BeatPause = time.Second
)

// ErrTooSoon refuses a heartbeat within [BeatPause] of the one before.
var ErrTooSoon = errors.New("the last heartbeat is less than a second ago")

// silentAt is when the time for the next heartbeat of a message's function is over; NULL if it need not send any. It
// allows for one that the function has held back because of [BeatPause].
const silentAt = `(beat_at + beat_timeout + interval '1 s')`

// silent is the condition that the function of a message has sent no heartbeat for its time.
const silent = `coalesce(` + silentAt + ` < clock_timestamp(), false)`

// stepOpen is the condition that the step of a message has no result.
const stepOpen = `NOT EXISTS (SELECT FROM steps s
	WHERE s.run_id = messages.run_id AND s.id = messages.subject AND s.completed_at IS NOT NULL)`

// Beat notes a heartbeat of the function that executes a step, with what it says about how far it is; nil for nothing
// new. It fails with message.ErrStale if nobody waits for the step any more, and with [ErrTooSoon]. Of an invocation,
// it has no effect.
func (q *Queue) Beat(ctx context.Context, c token.Call, progress []byte) error {
	tag, err := pg.NewPool(q.pool).Exec(ctx, `
		UPDATE messages SET beat_at = clock_timestamp(), progress = coalesce($4, progress)
		WHERE `+ofCall+` AND `+stepOpen+` AND (beat_at > clock_timestamp() - $5::interval) IS NOT TRUE`,
		c.Invocation, c.Project, c.RunID,
		atrest.Payload{Place: progressPlace(c.RunID), Project: string(c.Project), Bytes: progress}, BeatPause)
	if err != nil || tag.RowsAffected() > 0 {
		return pg.Wrap(err, "note heartbeat")
	}
	return q.whyNoBeat(ctx, c)
}

// whyNoBeat returns why a heartbeat was refused.
func (q *Queue) whyNoBeat(ctx context.Context, c token.Call) error {
	var open bool
	err := pg.NewPool(q.pool).QueryRow(ctx, `SELECT `+stepOpen+` FROM messages WHERE `+ofCall,
		c.Invocation, c.Project, c.RunID).Scan(&open)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && !open:
		return errCallOver
	case err != nil:
		return pg.Wrap(err, "find call")
	default:
		return ErrTooSoon
	}
}

// StartBeats begins the time within which the function that is about to be called must send its first heartbeat; 0 if
// it need not send any.
func (d Delivery) StartBeats(ctx context.Context, silence time.Duration) error {
	if silence == 0 {
		return nil
	}
	return exec(ctx, d.by.queue.pool, "expect heartbeats", `
		UPDATE messages SET beat_at = clock_timestamp() - $3::interval, beat_timeout = $2 WHERE `+OfLease,
		d.Lease, silence, BeatPause)
}

// WatchBeats calls lost when the function has sent no heartbeat for the time, unless the context ends first.
func (d Delivery) WatchBeats(ctx context.Context, silence time.Duration, lost func()) {
	watch(ctx, "heartbeats", silence, func(ctx context.Context) time.Duration { return d.untilSilent(ctx, silence) }, lost)
}

// untilSilent returns how much longer the function may be silent; 0 if it was silent for too long. While the database
// does not answer, no heartbeat can be noted: the time begins anew then.
func (d Delivery) untilSilent(ctx context.Context, silence time.Duration) (left time.Duration) {
	soon, cancel := context.WithTimeout(ctx, BeatPause)
	defer cancel()
	err := pg.NewPool(d.by.queue.pool).QueryRow(soon, `
		SELECT CASE WHEN `+silent+` THEN '0' ELSE greatest(`+silentAt+` - clock_timestamp(), interval '1 ms') END
		FROM messages WHERE `+OfLease, d.Lease).Scan(&left)
	if err != nil { // or the call is over, which ends the context
		return silence
	}
	return left
}
