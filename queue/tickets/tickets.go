// Package tickets issues and fetches tickets: River jobs that may each deliver one message once. It is the only package
// that knows River.
//
// The message's row is the promise (I6), so a ticket may get lost: the message gets another one when it is due. River
// does not keep the delays of messages, because its scheduler runs every five seconds in one elected process. A ticket
// is issued when its message is due, and River fetches it at once.
//
// Three tasks need SQL on River's table, because River's API cannot do them (sql.go):
//
//   - Function mode takes tickets out of the table without River's loops. There no process lives long enough to clean
//     up after them.
//   - A takeover deletes the tickets of a dead process in the same statement that takes over its leases, so that no
//     crash can separate the two.
//   - The age of the oldest ticket, and the number of those that wait, are part of larger statements that measure the
//     backlog and decide how many tickets to issue.
package tickets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// Queue is the River queue of tickets.
	Queue = "deliveries"

	// River fetches immediately after a hint, but at most once per fetchCooldown. Without hints it polls.
	fetchCooldown = 5 * time.Millisecond
	fetchPoll     = time.Second
	// usedRetention is how long River keeps used tickets, which nothing reads.
	usedRetention = time.Minute
	// hardStopTimeout limits how long Stop waits for deliveries after it has cancelled them.
	hardStopTimeout = 10 * time.Second
	// longestDelivery limits a delivery, however often its lease is extended. River also keeps the tickets of dead
	// processes for this long.
	longestDelivery = 24 * time.Hour
)

// Ticket is the River job that may deliver a message once.
type Ticket struct {
	MessageID string `json:"message"`
	// Number is the message's ticket number. A claim uses the number up, so that of all tickets with the same number only
	// one delivers.
	Number int `json:"ticket"`
	// Project is the message's project; empty in tickets that earlier versions issued.
	Project entities.Project `json:"project,omitempty"`
	// Size is the length of the message's body in bytes, so that memory can be reserved before the body is read.
	Size int64 `json:"size,omitempty"`
	// IssuedAt is since when the ticket has been usable, by the database's clock. River would use the clock of the process
	// that issues it: a clock that is ahead would delay the ticket.
	IssuedAt time.Time `json:"-"`
}

// Kind is the name of the job in River's tables.
func (Ticket) Kind() string { return "deliver" }

// InsertOpts puts tickets on their queue. River retries a ticket that cannot claim its message, because the database is
// away, twice; after that the message gets another ticket when it is due.
func (Ticket) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 3}
}

// Issuer issues tickets.
type Issuer struct {
	client *river.Client[pgx.Tx]
	// Hint tells workers to fetch. The caller of Issue sends it after its commit.
	Hint pg.Hint
}

// NewIssuer makes an issuer for River's tables in the schema.
func NewIssuer(pool *pgxpool.Pool, schema string) (*Issuer, error) {
	client, err := river.NewClient(quietDriver{riverpgxv5.New(pool)}, &river.Config{
		Schema: schema, Middleware: []rivertype.Middleware{river.JobInsertMiddlewareFunc(useDatabaseClock)},
	})
	if err != nil {
		return nil, fmt.Errorf("make River client: %w", err)
	}
	return &Issuer{client, pg.Hint{Channel: schema + ".river_insert", Topic: `{"queue": "` + Queue + `"}`}}, nil
}

// Issue inserts tickets in the transaction. The caller sends the hint after the commit.
func (i *Issuer) Issue(ctx context.Context, tx pgx.Tx, tickets []Ticket) error {
	params := make([]river.InsertManyParams, len(tickets))
	for i, t := range tickets {
		params[i].Args = t
	}
	if _, err := i.client.InsertManyFastTx(ctx, tx, params); err != nil {
		return fmt.Errorf("issue tickets: %w", err)
	}
	return nil
}

// useDatabaseClock makes River insert jobs with the times of their tickets.
func useDatabaseClock(
	ctx context.Context, jobs []*rivertype.JobInsertParams,
	insert func(context.Context) ([]*rivertype.JobInsertResult, error),
) ([]*rivertype.JobInsertResult, error) {
	for _, job := range jobs {
		if t, ok := job.Args.(Ticket); ok {
			job.CreatedAt, job.ScheduledAt = &t.IssuedAt, &t.IssuedAt
		}
	}
	return insert(ctx)
}

// quietDriver keeps River from sending notifications inside our transactions: NOTIFY holds a lock on the whole database
// until the commit is on disk. The hub sends hints after the commit instead.
type quietDriver struct{ *riverpgxv5.Driver }

func (quietDriver) SupportsListener() bool     { return false }
func (quietDriver) SupportsListenNotify() bool { return false }

// listeningDriver listens on a connection of another pool than that of its statements.
type listeningDriver struct {
	*riverpgxv5.Driver

	sessions *riverpgxv5.Driver
}

// GetListener implements [riverdriver.Driver].
func (d listeningDriver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return d.sessions.GetListener(p)
}

// Fetcher fetches tickets through River and uses them.
type Fetcher struct{ client *river.Client[pgx.Tx] }

// NewFetcher makes a fetcher that uses up to limit tickets at once. If use fails, River uses the ticket again after a
// backoff. The process is its ID in the table processes, so that other processes find its tickets if it dies. It
// listens for hints on a connection of sessions, and without sessions, by nil, it polls.
func NewFetcher(
	pool, sessions *pgxpool.Pool, schema, process string, limit int, use func(context.Context, Ticket) error,
	logger *slog.Logger,
) (*Fetcher, error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &worker{use: use}); err != nil {
		return nil, fmt.Errorf("add worker: %w", err)
	}
	driver := listeningDriver{riverpgxv5.New(pool), riverpgxv5.New(sessions)}
	client, err := river.NewClient(driver, &river.Config{
		ID:                          process,
		PollOnly:                    sessions == nil,
		Schema:                      schema,
		Queues:                      map[string]river.QueueConfig{Queue: {MaxWorkers: limit}},
		Workers:                     workers,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           fetchPoll,
		JobTimeout:                  -1,
		CompletedJobRetentionPeriod: usedRetention,
		Logger:                      slog.New(quietHandler{logger.Handler()}),
	})
	if err != nil {
		return nil, fmt.Errorf("make River client: %w", err)
	}
	return &Fetcher{client}, nil
}

// Start starts to fetch. Tickets are used under the context.
func (f *Fetcher) Start(ctx context.Context) error {
	if err := f.client.Start(ctx); err != nil {
		return fmt.Errorf("start River: %w", err)
	}
	return nil
}

// Stop stops fetching, waits for the tickets in use until the context ends, and then cancels them.
func (f *Fetcher) Stop(ctx context.Context) error {
	err := f.client.Stop(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStopTimeout)
		defer cancel()
		err = f.client.StopAndCancel(hard)
	}
	if err != nil {
		return fmt.Errorf("stop River: %w", err)
	}
	return nil
}

type worker struct {
	river.WorkerDefaults[Ticket]

	use func(context.Context, Ticket) error
}

// Timeout is long, because a delivery lasts as long as the function keeps extending its lease.
func (*worker) Timeout(*river.Job[Ticket]) time.Duration { return longestDelivery }

// Work uses the ticket. It does not fail if the function does: the message's row decides whether to deliver again.
func (w *worker) Work(ctx context.Context, job *river.Job[Ticket]) error {
	t := job.Args
	t.IssuedAt = job.ScheduledAt
	return w.use(ctx, t)
}

// quietHandler passes on only River's warnings and errors.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}
