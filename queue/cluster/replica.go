package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxReplicaLag is how far a replica may be behind that is read from.
	MaxReplicaLag = 10 * time.Second
	// replicaInterval is how often a replica is looked at, and replicaPatience how long it may take to answer then.
	replicaInterval = time.Second
	replicaPatience = 2 * time.Second
	// replicaReads is how long a request may read from a replica before it asks the primary.
	replicaReads = 5 * time.Second
)

// The reasons why a replica is not read from. They are shown to everybody.
var (
	errReplicaUnknown  = errors.New("the read replica was not looked at yet")
	errReplicaAway     = errors.New("the read replica does not answer")
	errReplicaSchema   = errors.New("the read replica has another schema")
	errReplicaDatabase = errors.New("the read replica is one of another database")
	errReplicaBehind   = errors.New("the read replica is too far behind")
)

// Replica is a copy of the database that is kept by Postgres, for reads that may be a little late.
//
// How late it is, it tells by the places that the log of the primary had when it was looked at: what was committed
// before that, a replica that has replayed the place has too. The time of the last replayed transaction does not tell:
// it grows old on an idle primary. A copy that does not know what it has replayed, as of some managed engines, tells by
// the newest heartbeat of a server that it has.
type Replica struct {
	pool, primary *pgxpool.Pool
	// schema fails if the replica does not have the tables of this program.
	schema func(context.Context) error
	// now is the time of the primary.
	now    func() time.Time
	logger *slog.Logger

	current atomic.Int64          // until when it has all that was committed, in ns since 1970
	marks   []mark                // of the last MaxReplicaLag, oldest first; only Look uses it
	fault   atomic.Pointer[error] // what was wrong when it was last looked at
	epoch   epoch                 // of the database, as the primary knows it; only Run uses it
	logged  error                 // the reason that was logged last; only Run uses it
	answers [3]atomic.Int64       // by Answer
}

// Answer says from where a read that may be late was answered.
type Answer int

const (
	// FromReplica answers come from the replica.
	FromReplica Answer = iota
	// FailedThere answers come from the primary because the replica failed.
	FailedThere
	// NotThere answers come from the primary because the replica is not read from.
	NotThere
)

// NewReplica returns a replica of the primary that is not read from before [Replica.Run] has looked at it. Schema fails
// if it does not have the tables of this program; now is the time of the primary.
func NewReplica(
	pool, primary *pgxpool.Pool, schema func(context.Context) error, now func() time.Time, logger *slog.Logger,
) *Replica {
	r := &Replica{
		pool: pool, primary: primary, schema: schema, now: now, logger: logger, logged: errReplicaUnknown,
	}
	r.fault.Store(&errReplicaUnknown)
	return r
}

// Lag returns how far the replica is behind at most.
func (r *Replica) Lag() time.Duration { return max(0, r.now().Sub(time.Unix(0, r.current.Load()))) }

// Problem returns why the replica is not read from; nil if it is.
func (r *Replica) Problem() error {
	if fault := *r.fault.Load(); fault != nil {
		return fault
	}
	if r.Lag() > MaxReplicaLag {
		return errReplicaBehind
	}
	return nil
}

// Read calls read with a context whose reads are the replica's, and how far that is behind at most. It reports false if
// the replica is not read from, or has failed: then the primary must be asked. A refusal counts as a failure, because
// the replica may lack what was asked for.
func (r *Replica) Read(ctx context.Context, read func(ctx context.Context, lag time.Duration) error) bool {
	lag := r.Lag()
	if r.Problem() != nil {
		r.answers[NotThere].Add(1)
		return false
	}
	within, cancel := context.WithTimeout(pg.ReadFrom(ctx, r.pool), replicaReads)
	defer cancel()
	err := read(within, lag)
	switch {
	case err == nil:
		r.answers[FromReplica].Add(1)
		return true
	case within.Err() == nil && isAway(err): // who reads for too long does not decide for others
		r.fault.Store(&errReplicaAway) // until it is looked at again
	}
	r.answers[FailedThere].Add(1)
	return false
}

// isAway reports whether an error is about the replica and not about what was read: it can cancel a statement that
// sees what the primary has removed.
func isAway(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return !answered && pg.IsUnavailable(err)
}

// Answers returns how many reads that may be late were answered so.
func (r *Replica) Answers(a Answer) int64 { return r.answers[a].Load() }

// Run looks at the replica every second until the context ends.
func (r *Replica) Run(ctx context.Context) {
	every := time.NewTicker(replicaInterval)
	defer every.Stop()
	for ctx.Err() == nil {
		r.Look(ctx)
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}

// Look looks at the replica once, and logs if it is read from from now on, or not any more.
func (r *Replica) Look(ctx context.Context) {
	detail := r.look(ctx)
	if ctx.Err() != nil {
		return
	}
	fault := reasonOf(detail)
	r.fault.Store(&fault)
	now := r.Problem()
	if errors.Is(now, r.logged) {
		return
	}
	r.logged = now
	if now == nil {
		r.logger.InfoContext(ctx, "lists and statistics are read from the replica", "lag", r.Lag())
		return
	}
	r.logger.WarnContext(ctx, "lists and statistics are read from the primary", "reason", now, "error", detail,
		"lag", r.Lag())
}

// reasonOf returns the reason in an error; nil for none.
func reasonOf(err error) error {
	for _, reason := range []error{errReplicaSchema, errReplicaDatabase} {
		if errors.Is(err, reason) {
			return reason
		}
	}
	if err != nil {
		return errReplicaAway
	}
	return nil
}

// look reads what the replica has, and fails if it must not be read from, however late it is.
func (r *Replica) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	r.mark(ctx)
	if err := r.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping the replica: %w", err)
	}
	if err := r.schema(ctx); err != nil {
		return fmt.Errorf("%w: %w", errReplicaSchema, err)
	}
	var e epoch
	var beat time.Time
	err := pg.NewPool(r.pool).QueryRow(ctx, `
		SELECT number, id, coalesce((SELECT max(beat_at) FROM processes), 'epoch')
		FROM feed_epochs ORDER BY number DESC LIMIT 1`).Scan(&e.number, &e.id, &beat)
	if err != nil {
		return fmt.Errorf("read the newest heartbeat: %w", err)
	}
	if err := r.checkEpoch(ctx, e); err != nil {
		return err
	}
	return r.catchUp(ctx, beat)
}

// mark is a moment of the primary.
type mark struct {
	at    time.Time
	place string    // of its log
	beat  time.Time // the newest heartbeat
}

// mark notes the moment of the primary, if that tells it. Marks that are too old are of no use.
func (r *Replica) mark(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, replicaPatience/2)
	defer cancel()
	m := mark{at: r.now()}
	err := pg.NewPool(r.primary).QueryRow(ctx, `
		SELECT pg_current_wal_lsn()::text, coalesce((SELECT max(beat_at) FROM processes), 'epoch')`).Scan(&m.place, &m.beat)
	if err == nil {
		r.marks = append(r.marks, m)
	}
	r.marks = slices.DeleteFunc(r.marks, func(old mark) bool { return m.at.Sub(old.at) > MaxReplicaLag })
}

// catchUp finds out which marks the replica has reached; beat is the newest heartbeat that it has. It must have that of
// the mark, too: after a failover, a replica of the old primary may have replayed more than there is, and something
// else.
func (r *Replica) catchUp(ctx context.Context, beat time.Time) error {
	places := make([]string, len(r.marks))
	for i, m := range r.marks {
		places[i] = m.place
	}
	var reached []bool // none if the replica does not know
	err := pg.NewPool(r.pool).QueryRow(ctx, `
		SELECT CASE WHEN pg_is_in_recovery() AND pg_last_wal_replay_lsn() IS NOT NULL THEN ARRAY(
			SELECT place::pg_lsn <= pg_last_wal_replay_lsn() FROM unnest($1::text[]) WITH ORDINALITY AS m (place, n)
			ORDER BY n) END`, places).Scan(&reached)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused || err == nil && len(reached) == 0 {
		r.current.Store(beat.UnixNano())
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the replica has replayed: %w", err)
	}
	for i, m := range r.marks {
		if reached[i] && !m.beat.After(beat) {
			r.current.Store(m.at.UnixNano())
		}
	}
	return nil
}

// epoch identifies the history of a database; its ID is empty before a server has worked on it.
type epoch struct {
	number int64
	id     string
}

// checkEpoch fails unless the primary has the newest epoch of the replica. Only databases with the same history do.
func (r *Replica) checkEpoch(ctx context.Context, e epoch) error {
	if e == r.epoch && e.id != "" {
		return nil
	}
	var known bool
	err := pg.NewPool(r.primary).QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM feed_epochs WHERE number = $1 AND id = $2 AND id <> '')`, e.number, e.id).Scan(&known)
	switch {
	case err != nil:
		return fmt.Errorf("read the epochs of the primary: %w", err)
	case !known:
		return errReplicaDatabase
	}
	r.epoch = e
	return nil
}
