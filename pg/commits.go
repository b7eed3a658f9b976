package pg

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// commitPause is the time between two commits of the probe.
	commitPause = 5 * time.Second
	// commitTimeout is how long one commit of the probe may take before it tries another connection.
	commitTimeout = 10 * time.Second
	// maxCommitAge is how long no commit may succeed before the process is not ready. It is longer than the stalls of a
	// busy disk.
	maxCommitAge = 15 * time.Second
	// maxHidden bounds the commits that are remembered while followers cannot see them: those of a day.
	maxHidden = 24 * 60 * 60 / 5
)

// CommitProbe commits a tiny transaction every 5 s, to know whether commits succeed and how far followers of a
// project's events are behind. Reads can succeed for long while no commit does, as when the last synchronous standby is
// gone. The probe has a connection of its own, so that a busy pool does not look like a broken database.
type CommitProbe struct {
	config  *pgx.ConnConfig
	primary *Primary
	logger  *slog.Logger
	now     func() time.Time

	mu     sync.Mutex
	last   time.Time // the last success; before the first, when the probe was made
	hidden []commit  // those that followers could not see at the last commit, oldest first
}

// commit is a commit of the probe.
type commit struct {
	xid uint64
	at  time.Time
}

// NewCommitProbe makes a probe, which probes while [CommitProbe.Run] runs. The configuration should be that of the
// pool, in which the primary is installed.
func NewCommitProbe(config *pgx.ConnConfig, p *Primary, now func() time.Time, logger *slog.Logger) *CommitProbe {
	return &CommitProbe{config: config, primary: p, now: now, logger: logger, last: now()}
}

// Run probes until the context ends.
func (c *CommitProbe) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.connectAndProbe(ctx); err != nil && ctx.Err() == nil {
			c.logger.WarnContext(ctx, "probe commits", "error", err)
		}
		sleep(ctx, reconnectDelay)
	}
}

// Age is the time since the last success.
func (c *CommitProbe) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Sub(c.last)
}

// FeedLag is the age of the oldest commit of the probe that those who follow a project's events could not see at the
// last commit, because an older transaction was still open: of any client, in any database of the server. It is 0 if
// there is none.
func (c *CommitProbe) FeedLag() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hidden) < 2 { // the last one is always hidden when it is made
		return 0
	}
	return c.now().Sub(c.hidden[0].at)
}

// Problem says that commits do not succeed; it is empty while they do.
func (c *CommitProbe) Problem() string {
	age := c.Age()
	if age < maxCommitAge {
		return ""
	}
	return fmt.Sprintf("no commit for %s", age.Round(time.Second))
}

// connectAndProbe probes on one connection until that fails.
func (c *CommitProbe) connectAndProbe(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connecting, c.config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for ctx.Err() == nil {
		if err := c.probe(ctx, conn); err != nil {
			return err
		}
		sleep(ctx, commitPause)
	}
	return nil
}

// probe makes one commit.
func (c *CommitProbe) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	at := c.now()
	var readOnly bool
	var xid, oldest uint64
	// Followers read the events of transactions below the snapshot's xmin. The message makes the transaction wait for the
	// disk and for synchronous standbys.
	err := conn.QueryRow(ctx, `
		SELECT current_setting('transaction_read_only')::boolean, pg_snapshot_xmin(pg_current_snapshot()),
			pg_current_xact_id(), pg_logical_emit_message(true, 'stepwell', ''::text) IS NULL`).
		Scan(&readOnly, &oldest, &xid, nil)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if readOnly { // although this transaction, which changes no table, was possible
		c.primary.dropAll("a node became read-only: all connections are closed")
		return errNotPrimary
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = c.now()
	c.hidden = slices.DeleteFunc(c.hidden, func(h commit) bool { return h.xid < oldest })
	if len(c.hidden) < maxHidden {
		c.hidden = append(c.hidden, commit{xid, at})
	}
	return nil
}
