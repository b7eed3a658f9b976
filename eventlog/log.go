package eventlog

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// Enqueuer puts messages on the queue as part of an append. Package queue implements it.
//
// Both methods return the work that starts in this process right after the commit, and a function that must be called
// when the transaction has ended: with nil after the commit, else with the error.
type Enqueuer interface {
	// Enqueue adds messages to a transaction. The batch has statements that must be executed first; Enqueue may execute
	// it or add to it.
	Enqueue(
		ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
	) (starts []*InlineStart, ended func(error), err error)
	// EnqueueOptimistic adds messages to a conditional statement. It reports false if they need more than a statement.
	EnqueueOptimistic(c *pg.Conditional, messages []message.Message) (starts []*InlineStart, ended func(error), ok bool)
}

// Log appends events to runs, and reads them.
type Log struct {
	*read.Log

	pool     *pgxpool.Pool
	hub      *pg.Hub
	enqueuer Enqueuer
	observer Observer
	cache    *runCache
	quotas   *quotas
	limiter  Limiter // nil if nobody grants slots
	limited  limitedStarts
	group    *pg.GroupCommit
	// long has a unit for each transaction that writes many events.
	long *share.Pool

	durability *pg.Durability
	blobs      *blob.Store // nil if all payloads are in the database
	payloads   atrest.Codec
	// after is set by MeasureAfter.
	after atomic.Pointer[func(entities.RunID) int64]
	// starts is set by FollowStarts.
	starts atomic.Pointer[Follow]
	// builds is set by NoteBuilds.
	builds atomic.Pointer[Builds]
}

// New returns a log on the database behind pool. The hub notifies readers of new events and of the ends of runs. Now is
// the clock; it is read once per append and truncated to milliseconds.
func New(pool *pgxpool.Pool, hub *pg.Hub, enqueuer Enqueuer, now func() time.Time, options ...Option) *Log {
	l := &Log{
		Log: read.New(pool, hub, now), pool: pool, hub: hub, enqueuer: enqueuer,
		observer: unobserved{}, cache: newRunCache(), quotas: newQuotas(pool), group: pg.NewGroupCommit(pool),
		long: share.NewPool(longPerProcessor * int64(runtime.GOMAXPROCS(0))), limited: newLimitedStarts(pool),
		durability: pg.NewDurability(pool, now), payloads: atrest.Identity{},
	}
	l.limiter, _ = enqueuer.(Limiter)
	l.Ended = l.justEnded
	l.MeasureAfter(func(entities.RunID) int64 { return 0 })
	for _, o := range options {
		o(l)
	}
	return l
}

// RecentRun returns a run as it was a moment ago: after the last append of this process, if that is no longer ago than
// a few seconds, or else as it is now. It fails with [entities.ErrRunNotFound].
func (l *Log) RecentRun(ctx context.Context, project entities.Project, id entities.RunID) (entities.Run, error) {
	release, err := l.cache.acquire(ctx, id)
	if err != nil {
		return entities.Run{}, err
	}
	if cached := l.cache.fresh(project, id, l.Now()); cached != nil {
		defer release()
		return *cached.Run, nil
	}
	release()
	return store.RunByID(ctx, pg.NewPool(l.pool), project, id)
}

// justEnded returns a run that has ended by an append of this process a few seconds ago or less. Nothing of it changes
// any more but the length of its log.
func (l *Log) justEnded(ctx context.Context, project entities.Project, id entities.RunID) (entities.Run, bool) {
	release, err := l.cache.acquire(ctx, id)
	if err != nil {
		return entities.Run{}, false
	}
	defer release()
	cached := l.cache.fresh(project, id, l.Now())
	if cached == nil || !cached.Run.Status.Ended() {
		return entities.Run{}, false
	}
	return *cached.Run, true
}

// Forget forgets what this process has cached of a run: the key of its payloads is destroyed.
func (l *Log) Forget(id entities.RunID) { l.cache.runs.Remove(id) }

// Cached returns a run and its whole log if this process has cached them and the log has at least the given length.
// With the length 0, the log must not have grown since it was cached. Cached reports false if they must be read.
func (l *Log) Cached(
	ctx context.Context, project entities.Project, id entities.RunID, length int64,
) (Result, bool) {
	release, err := l.cache.acquire(ctx, id)
	if err != nil {
		return Result{}, false
	}
	defer release()
	cached := l.cache.fresh(project, id, l.Now())
	if cached == nil {
		return Result{}, false
	}
	log := l.cache.logOf(cached.Run)
	if log == nil || int64(len(log)) < length {
		return Result{}, false
	}
	if length == 0 {
		unchanged, err := store.IsUnchanged(ctx, pg.NewPool(l.pool), cached.Run)
		if err != nil || !unchanged {
			return Result{}, false
		}
	}
	return Result{Run: *cached.Run, Log: log}, true
}

// MeasureAfter sets the function that returns after which position of a run's log an invocation's call will begin: 0
// for a call with the whole log. The size of an [InlineStart] is measured from there.
func (l *Log) MeasureAfter(position func(entities.RunID) int64) { l.after.Store(&position) }

// Option configures a [Log].
type Option func(*Log)

// WithObserver sets the observer of the log's appends.
func WithObserver(o Observer) Option { return func(l *Log) { l.observer = o } }

// WithGroup makes optimistic appends share transactions with the other statements that the group commits.
func WithGroup(g *pg.GroupCommit) Option { return func(l *Log) { l.group = g } }

// WithPayloads sets the codec of the pool's payloads, which appends prepare before they take a lock.
func WithPayloads(c atrest.Codec) Option { return func(l *Log) { l.payloads = c } }

// Observer is notified of appends, for metrics and traces. It is called by many goroutines at once and within appends,
// so it must be fast.
type Observer interface {
	// Append is called before an append. The append uses the context that it returns, and calls the function that it
	// returns once at the end.
	Append(ctx context.Context, runID entities.RunID, requests []Request) (context.Context, func(Appended))
}

// Appended is the outcome of an append, as an [Observer] sees it.
type Appended struct {
	// Events are the committed events of the run and of children that it created; none if Err is set.
	Events []entities.Event
	// Run is the run afterwards; nil if it does not exist, or if Err is set.
	Run *entities.Run
	// Refused is the error of the first refused request; nil if none was refused, or if Err is set.
	Refused error
	// Err is the error of an append that failed as a whole.
	Err error
}

// unobserved is the default observer, which does nothing.
type unobserved struct{}

func (unobserved) Append(
	ctx context.Context, _ entities.RunID, _ []Request,
) (context.Context, func(Appended)) {
	return ctx, func(Appended) {}
}
