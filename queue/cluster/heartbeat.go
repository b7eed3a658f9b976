package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// BeatInterval is how often a process beats.
	BeatInterval = time.Second
	// SilenceLimit is how long the beats of a process may be missing before it is suspected. If its session is gone too,
	// the process is dead, and its messages are delivered again within 5 s of its death.
	SilenceLimit = 2500 * time.Millisecond
	// FrozenLimit is how long beats may be missing while the session of the process is open. Until then the process is
	// slow and keeps its leases; afterwards it counts as dead. It is longer than a beat of a healthy process may
	// take, and Postgres has ended the transactions of a frozen one by then (idle_in_transaction_session_timeout).
	FrozenLimit = 15 * time.Second
	// beatTimeout is longer than any stall of a healthy database: a timeout ends the session, and then the others would
	// take this process for dead.
	beatTimeout = 10 * time.Second

	// SteadyBeats is the number of beats after which a process can tell that others are dead: it has then been beating for
	// longer than SilenceLimit.
	SteadyBeats = int(SilenceLimit/BeatInterval) + 2
)

// Heartbeat shows the other processes that this one is alive, and takes over from dead ones.
//
// It has a connection of its own, so that a busy pool cannot keep it from beating. On this connection it holds an
// advisory lock. Postgres frees the lock when the process is gone, but not when the process is merely slow. Where no
// connection keeps its session, behind a pooler, only the beats tell: the process counts as dead when they have been
// missing for FrozenLimit.
type Heartbeat struct {
	// ID identifies the process in the table processes and as the holder of leases and tickets.
	ID string

	host     string
	program  Program
	key      int64 // of the advisory lock; 0 without one
	pool     *pgxpool.Pool
	sessions *pgxpool.Pool // nil if there are none
	tookOver func()
	logger   *slog.Logger

	// awaited says whether something waited for a slot of a limit at the last beat, paused whether anything was paused.
	awaited, paused bool
	conn            *pgx.Conn // nil before the first beat, after SignOff, and without sessions
}

// NewHeartbeat makes the heartbeat of a new process that runs a program. Its session is opened as those of the pool
// sessions, and if that is nil, it has none. It calls tookOver after messages of a dead process became due.
func NewHeartbeat(
	pool, sessions *pgxpool.Pool, program Program, tookOver func(), logger *slog.Logger,
) *Heartbeat {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	h := &Heartbeat{
		ID: "proc_" + ulid.Make().String(), host: strings.ToValidUTF8(host, "?"), program: program,
		pool: pool, sessions: sessions, tookOver: tookOver, logger: logger,
	}
	if sessions != nil {
		h.key = int64(rand.Uint64()) //nolint:gosec // unique enough; nobody gains by guessing it
	}
	return h
}

// statements executes the statements of a beat.
type statements interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beat beats once, and takes over from dead processes. It returns how long it is until the next message is due, as
// [UntilDue] does.
func (h *Heartbeat) Beat(ctx context.Context) (untilDue time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	silent, untilDue, err := h.Silent(ctx)
	if err != nil || len(silent) == 0 {
		return untilDue, err
	}
	q, err := h.connect(ctx)
	if err != nil {
		return untilDue, err
	}
	dead, err := TakeOver(ctx, q, silent, SilenceLimit, FrozenLimit)
	if err != nil || len(dead.Processes) == 0 {
		return untilDue, err
	}
	h.logger.WarnContext(ctx, "took over from servers that died",
		"processes", dead.Processes, "deliveries", dead.Leases, "tickets", dead.Tickets)
	h.tookOver()
	return untilDue, nil
}

// connect returns what executes the statements. It opens the session whose lock proves that the process is alive,
// unless it is open.
func (h *Heartbeat) connect(ctx context.Context) (statements, error) {
	if h.sessions == nil {
		return pg.NewPool(h.pool), pg.BeginEpoch(ctx, h.pool)
	}
	if h.conn != nil && !h.conn.IsClosed() {
		return h.conn, nil
	}
	config := h.sessions.Config()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// Beats need not survive a crash of the database, so they do not wait for the disk.
	_, err = conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', false), pg_advisory_lock($1)`, h.key)
	if err == nil { // connections of a pooler outlive a restart of Postgres
		err = pg.BeginEpoch(ctx, conn)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("open session: %w", err)
	}
	h.conn = conn
	return conn, nil
}

// LimitsAwaited reports whether something waited for a slot of a limit, or for its deployment, at the last beat. It
// must be called by the goroutine that beats.
func (h *Heartbeat) LimitsAwaited() bool { return h.awaited }

// Paused reports whether a project, or a part of one, was paused at the last beat, or whether a pause had ended and may
// hold messages still. It must be called by the goroutine that beats.
func (h *Heartbeat) Paused() bool { return h.paused }

// Suspects reports whether beats of other processes are missing. [Heartbeat.Beat] finds out which of them are dead,
// once this process's own beats are steady.
func (h *Heartbeat) Suspects(ctx context.Context) (bool, error) {
	var suspects bool
	err := pg.NewPool(h.pool).QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM processes WHERE id <> $1 AND beat_at < now() - $2::interval)`,
		h.ID, SilenceLimit).Scan(&suspects)
	return suspects, pg.Wrap(err, "find silent processes")
}

// SignOff deletes the process's row, so that no other process suspects it. The process must not hold any lease or
// ticket.
func (h *Heartbeat) SignOff(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	var q statements = pg.NewPool(h.pool)
	if h.sessions != nil {
		if h.conn == nil {
			return
		}
		defer func() {
			_ = h.conn.Close(ctx)
			h.conn = nil
		}()
		q = h.conn
	}
	if _, err := q.Exec(ctx, `DELETE FROM processes WHERE id = $1`, h.ID); err != nil {
		h.logger.WarnContext(ctx, "sign off", "error", err)
	}
}

// Silent records a beat and returns the processes whose beats are missing. It returns none until this process has
// itself been beating without a pause for SilenceLimit: if all processes lost the database at once, or this one was
// frozen, the others get the time to beat again. It also returns how long it is until the next message is due: searches
// for that and for pauses every second would be a third of what an idle server asks of the database.
func (h *Heartbeat) Silent(ctx context.Context) (silent []string, untilDue time.Duration, err error) {
	q, err := h.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	err = q.QueryRow(ctx, `
		WITH me AS (
			INSERT INTO processes AS p (id, host, session_key, version, commit, role, cell)
			VALUES ($1, $2, $3, $5, $6, $7, $8)
			ON CONFLICT (id) DO UPDATE SET beat_at = now(),
				steady_since = CASE WHEN p.beat_at >= now() - $4::interval THEN p.steady_since ELSE now() END
			RETURNING steady_since
		)
		SELECT coalesce(array_agg(o.id), '{}'), (`+untilDueSQL+`),
			EXISTS (SELECT FROM permits WHERE granted_at IS NULL)
				OR EXISTS (SELECT FROM messages WHERE awaits_since IS NOT NULL AND parked_at IS NULL),
			EXISTS (SELECT FROM projects WHERE paused_at IS NOT NULL) OR EXISTS (SELECT FROM pauses)
		FROM processes o, me
		WHERE o.id <> $1 AND o.beat_at < now() - $4::interval AND me.steady_since < now() - $4::interval`,
		h.ID, h.host, h.key, SilenceLimit, h.program.Version, h.program.Commit, h.program.Role,
		h.program.Cell).
		Scan(&silent, &untilDue, &h.awaited, &h.paused)
	return silent, untilDue, pg.Wrap(err, "beat")
}

// Unparked is the condition that a message is not parked, for statements about all projects. Those about one project
// say parked_at IS NULL, so that they do not match the same index: with it they might read the messages of others.
const Unparked = `num_nulls(parked_at) = 1`

// untilDueSQL selects how long it is until the next message is due; an hour if there is none.
const untilDueSQL = `
	SELECT coalesce((SELECT due_at - clock_timestamp() FROM messages WHERE ` + Unparked + ` ORDER BY due_at LIMIT 1),
		'1 h')`

// UntilDue returns how long it is until the next message is due: negative if it is overdue, and an hour if there is
// none.
func UntilDue(ctx context.Context, pool *pgxpool.Pool) (d time.Duration, err error) {
	err = pg.NewPool(pool).QueryRow(ctx, untilDueSQL).Scan(&d)
	return d, pg.Wrap(err, "find next due message")
}
