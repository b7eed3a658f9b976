package eventlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Enqueuer puts messages on the queue as part of an append. Package queue implements it.
//
// Both methods return the work that starts in this process with the commit, and a function to call once the
// transaction is over: with nil after the commit, else with the error. The function only speeds up the delivery.
type Enqueuer interface {
	// Enqueue adds messages to a transaction. The batch has statements to execute first; Enqueue may execute it or add
	// to it.
	Enqueue(
		ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []entities.Message,
	) (starts []*InlineStart, ended func(error), err error)
	// EnqueueOptimistic adds messages to a conditional statement. It reports false if they need more than a statement.
	EnqueueOptimistic(c *pg.Conditional, messages []entities.Message) (starts []*InlineStart, ended func(error), ok bool)
}

// Log appends events to runs, and reads them.
type Log struct {
	*read.Log

	pool     *pgxpool.Pool
	hub      *pg.Hub
	enqueuer Enqueuer
	observer Observer
	cache    *runCache
	group    *pg.GroupCommit
}

// New makes a log on the database behind pool. The hub tells readers of new events and of runs that ended. Now is the
// clock; it is read once per append and cut to whole milliseconds.
func New(pool *pgxpool.Pool, hub *pg.Hub, enqueuer Enqueuer, now func() time.Time, options ...Option) *Log {
	l := &Log{
		Log: read.New(pool, hub, now), pool: pool, hub: hub, enqueuer: enqueuer,
		observer: unobserved{}, cache: newRunCache(), group: pg.NewGroupCommit(pool),
	}
	for _, o := range options {
		o(l)
	}
	return l
}

// Option changes how a [Log] is made.
type Option func(*Log)

// WithObserver makes the observer watch the log's appends.
func WithObserver(o Observer) Option { return func(l *Log) { l.observer = o } }

// WithGroup makes appends share transactions with everything else that the group commits.
func WithGroup(g *pg.GroupCommit) Option { return func(l *Log) { l.group = g } }

// Observer watches appends, for metrics and traces. Many goroutines call it at once, so it must be quick.
type Observer interface {
	// Append is called before requests about a run are appended. The append uses the context that it returns, and calls
	// the function once at its end.
	Append(ctx context.Context, runID entities.RunID, requests []Request) (context.Context, func(Appended))
}

// Appended is the outcome of an append, as an [Observer] sees it.
type Appended struct {
	// Events are the committed events of the run and of children that it started; none when Err is set.
	Events []entities.Event
	// Run is the run afterwards; nil when there is none, or Err is set.
	Run *entities.Run
	// Refused is the error of the first refused request; nil when none was refused, or Err is set.
	Refused error
	// Err is why nothing was committed.
	Err error
}

// unobserved is the observer of a log that has none.
type unobserved struct{}

func (unobserved) Append(
	ctx context.Context, _ entities.RunID, _ []Request,
) (context.Context, func(Appended)) {
	return ctx, func(Appended) {}
}
