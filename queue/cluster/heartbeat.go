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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
)

const (
	// BeatInterval is how often a process beats.
	BeatInterval = time.Second
	// SilenceLimit is how long the beats of a process may be missing before it is suspected. If its session is gone as
	// well, it is dead: its messages are delivered again within 5 s of its death.
	SilenceLimit = 2500 * time.Millisecond
	// FrozenLimit is how long they may be missing while its session is open. Until then the process is slow and keeps its
	// leases; afterwards it counts as dead.
	FrozenLimit = 30 * time.Second
	// beatTimeout is longer than a database may stall: a timeout ends the session, which others would notice.
	beatTimeout = 10 * time.Second

	// SteadyBeats is after how many beats a process can tell which others are dead: its own have come for longer than the
	// others may be silent.
	SteadyBeats = int(SilenceLimit/BeatInterval) + 2
)

// Heartbeat shows the other processes that this one lives, and takes over from those that are dead.
//
// It has a connection of its own, so that no load of the pool keeps it from beating. On it the process holds
// an advisory lock, which Postgres frees when the process is gone, and not when it is merely slow.
type Heartbeat struct {
	// ID is the process's, under which it is on record and holds leases and tickets.
	ID string

	host     string
	key      int64 // of the advisory lock
	pool     *pgxpool.Pool
	tookOver func()
	logger   *slog.Logger

	conn *pgx.Conn // nil while there is none
}

// NewHeartbeat makes the heartbeat of a new process, which calls tookOver when messages of the dead became due.
func NewHeartbeat(pool *pgxpool.Pool, tookOver func(), logger *slog.Logger) *Heartbeat {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Heartbeat{
		ID: "proc_" + ulid.Make().String(), host: strings.ToValidUTF8(host, "?"),
		key:  int64(rand.Uint64()), //nolint:gosec // unique enough; nobody gains by guessing it
		pool: pool, tookOver: tookOver, logger: logger,
	}
}

// storable makes a host's name fit for a text column.
func storable(host string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(host, "?"), "\x00", "?")
}

// Beat beats once, and takes over from processes that are dead.
func (h *Heartbeat) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	silent, err := h.Silent(ctx)
	if err != nil || len(silent) == 0 {
		return err
	}
	dead, err := TakeOver(ctx, h.conn, silent, SilenceLimit, FrozenLimit)
	if err != nil || len(dead.Processes) == 0 {
		return err
	}
	h.logger.WarnContext(ctx, "took over from servers that died",
		"processes", dead.Processes, "deliveries", dead.Leases, "tickets", dead.Tickets)
	h.tookOver()
	return nil
}

// connect opens the session that proves the process alive, if it is not open.
func (h *Heartbeat) connect(ctx context.Context) error {
	if h.conn != nil && !h.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, h.pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// Beats need not survive a crash of the database, so they do not wait for the disk.
	_, err = conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', false), pg_advisory_lock($1)`, h.key)
	if err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("open session: %w", err)
	}
	h.conn = conn
	return nil
}

// Suspects reports whether beats of other processes are missing. Whether those are dead, [Heartbeat.Beat] finds out
// once this process's own beats are steady.
func (h *Heartbeat) Suspects(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var any bool
	err := pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM processes WHERE id <> $1 AND beat_at < now() - $2::interval)`,
		h.ID, SilenceLimit).Scan(&any)
	return any, wrap("look for silent processes", err)
}

// SignOff takes the process, which holds nothing any more, off the record, so that no other suspects it.
func (h *Heartbeat) SignOff(ctx context.Context) {
	if h.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if _, err := h.conn.Exec(ctx, `DELETE FROM processes WHERE id = $1`, h.ID); err != nil {
		h.logger.WarnContext(ctx, "sign off", "error", err)
	}
	_ = h.conn.Close(ctx)
	h.conn = nil
}

// Silent records that the process lives and returns the processes whose beats are missing. It returns none unless this
// process has beaten without a pause for as long: one that was away with the database, or frozen, gives the others time
// to come back as well.
func (h *Heartbeat) Silent(ctx context.Context) (silent []string, err error) {
	if err := h.connect(ctx); err != nil {
		return nil, err
	}
	err = h.conn.QueryRow(ctx, `
		WITH me AS (
			INSERT INTO processes AS p (id, host, session_key) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET beat_at = now(),
				steady_since = CASE WHEN p.beat_at >= now() - $4::interval THEN p.steady_since ELSE now() END
			RETURNING steady_since
		)
		SELECT coalesce(array_agg(o.id), '{}') FROM processes o, me
		WHERE o.id <> $1 AND o.beat_at < now() - $4::interval AND me.steady_since < now() - $4::interval`,
		h.ID, h.host, h.key, SilenceLimit).Scan(&silent)
	return silent, wrap("beat", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
