package queue

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
)

const (
	beatInterval = time.Second
	// silenceLimit is how long the beats of a process may be missing before it is looked for. Whoever is
	// gone by then, as its session is, is dead: what it held is delivered again within 5 s of its death.
	silenceLimit = 2500 * time.Millisecond
	// frozenLimit is how long they may be missing while its session is open. It is slow until then, and
	// keeps what it holds; afterwards it counts as dead.
	frozenLimit = 30 * time.Second
	// beatTimeout is longer than a database may stall: giving up ends the session, which others watch.
	beatTimeout = 10 * time.Second

	// processDied is the last error of a message whose delivery was lost that way.
	processDied = "the server that made the delivery died"
)

// heartbeat shows the others that this process lives, and takes over from those that do not.
//
// It has a connection of its own, so that no load of the pool keeps it from beating. On it the process holds
// an advisory lock, which Postgres frees when the process is gone, and not when it is merely slow.
type heartbeat struct {
	id, host       string
	key            int64 // of the advisory lock
	queue          *Queue
	logger         *slog.Logger
	silent, frozen time.Duration

	conn *pgx.Conn // nil while there is none
}

func newHeartbeat(q *Queue, logger *slog.Logger) *heartbeat {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &heartbeat{
		id: "proc_" + ulid.Make().String(), host: storable(host),
		key:   int64(rand.Uint64()), //nolint:gosec // unique enough; nobody gains by guessing it
		queue: q, logger: logger, silent: silenceLimit, frozen: frozenLimit,
	}
}

// turn beats once, and takes over from those that are dead.
func (p *heartbeat) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if err := p.connect(ctx); err != nil {
		return err
	}
	silent, err := beat(ctx, p.conn, p)
	if err != nil || len(silent) == 0 {
		return err
	}
	dead, err := reap(ctx, p.conn, silent, p.silent, p.frozen)
	if err != nil || len(dead.Processes) == 0 {
		return err
	}
	p.logger.WarnContext(ctx, "took over from servers that died",
		"processes", dead.Processes, "deliveries", dead.Leases, "tickets", dead.Tickets)
	p.queue.hub.Publish(timerTopic)
	return nil
}

// connect opens the session that proves the process alive, if it is not open.
func (p *heartbeat) connect(ctx context.Context) error {
	if p.conn != nil && !p.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, p.queue.pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// A beat need not survive a crash of the database, so it need not wait for the disk.
	_, err = conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', false), pg_advisory_lock($1)`, p.key)
	if err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("open session: %w", err)
	}
	p.conn = conn
	return nil
}

// suspects reports whether the beats of other processes are missing. Whether those are dead, a turn tells once this
// process's own beats have been steady for long enough.
func (p *heartbeat) suspects(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var any bool
	err := pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM processes WHERE id <> $1 AND beat_at < now() - $2::interval)`,
		p.id, p.silent).Scan(&any)
	return any, wrap("look for silent processes", err)
}

// leave signs the process off, so that nobody looks for it. It holds nothing any more.
func (p *heartbeat) leave(ctx context.Context) {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if _, err := p.conn.Exec(ctx, `DELETE FROM processes WHERE id = $1`, p.id); err != nil {
		p.logger.WarnContext(ctx, "sign off", "error", err)
	}
	_ = p.conn.Close(ctx)
	p.conn = nil
}

// beat records that the process lives and returns those whose beats are missing. It returns none unless its
// own beats have come without a pause for as long: whoever was away with the database, or frozen, gives the
// others time to be back as well.
func beat(ctx context.Context, conn *pgx.Conn, p *heartbeat) (silent []string, err error) {
	err = conn.QueryRow(ctx, `
		WITH me AS (
			INSERT INTO processes AS p (id, host, session_key) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET beat_at = now(),
				steady_since = CASE WHEN p.beat_at >= now() - $4::interval THEN p.steady_since ELSE now() END
			RETURNING steady_since
		)
		SELECT coalesce(array_agg(o.id), '{}') FROM processes o, me
		WHERE o.id <> $1 AND o.beat_at < now() - $4::interval AND me.steady_since < now() - $4::interval`,
		p.id, p.host, p.key, p.silent).Scan(&silent)
	return silent, wrap("beat", err)
}

// reaped is what the dead left behind.
type reaped struct {
	Processes []string
	// Leases are deliveries that were under way, Tickets those that had not begun.
	Leases, Tickets int
}

// inOrder is the order in which members of a group lock messages (see [eventlog.Rank]): by lease what they acknowledge,
// then work by its run.
const inOrder = ` ORDER BY work <> '', CASE work WHEN '' THEN lease ELSE run_id END, work, subject FOR UPDATE`

// releaseOrphans frees leases whose holder is on no record: a process whose claim was still on its way to the
// database when it died, and was carried out after others took over. It returns how many there were.
func releaseOrphans(ctx context.Context, tx pgx.Tx) (int64, error) {
	tag, err := tx.Exec(ctx, `
		WITH leased AS (
			SELECT id FROM messages
			WHERE lease <> '' AND holder <> '' AND NOT EXISTS (SELECT FROM processes p WHERE p.id = holder)`+inOrder+`
		)
		UPDATE messages SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1, last_error = $1
		WHERE id = ANY (ARRAY(SELECT id FROM leased))`, processDied)
	return tag.RowsAffected(), wrap("release leases of the dead", err)
}

// reap declares those of the processes dead that are, forgets them, and makes what they held due. It is one
// statement, and whoever deletes a process's row is the one who takes over from it.
//
// A delivery lost in this way is not counted: it says nothing about its message, and a server that keeps
// crashing must not use a healthy message's deliveries up. Leases that functions extended by themselves are
// not the process's (see setDue) and stay.
func reap(ctx context.Context, conn *pgx.Conn, silent []string, silence, frozen time.Duration) (r reaped, err error) {
	err = conn.QueryRow(ctx, `
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
			DELETE FROM river_job j USING dead
			WHERE j.state = 'running' AND j.queue = $4 AND j.attempted_by[array_upper(j.attempted_by, 1)] = dead.id
			RETURNING j.args->>'message' AS message, (j.args->>'ticket')::integer AS ticket
		), leased AS (
			SELECT id FROM messages WHERE lease <> '' AND holder IN (SELECT id FROM dead)`+inOrder+`
		), leases AS (
			UPDATE messages
			SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1, last_error = $5
			WHERE id = ANY (ARRAY(SELECT id FROM leased))
			RETURNING id
		), tickets AS (
			UPDATE messages m SET due_at = now()
			WHERE id = ANY (ARRAY(SELECT message FROM jobs)) AND lease = '' AND `+notParked+`
				AND EXISTS (SELECT FROM jobs j WHERE j.message = m.id AND j.ticket = m.ticket)
			RETURNING id
		)
		SELECT (SELECT coalesce(array_agg(id), '{}') FROM dead), (SELECT count(*) FROM leases),
			(SELECT count(*) FROM tickets)`,
		silent, silence, frozen, riverQueue, processDied).Scan(&r.Processes, &r.Leases, &r.Tickets)
	return r, wrap("take over from the dead", err)
}
