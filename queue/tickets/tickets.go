// Package tickets is all that knows River: it issues the jobs that deliver messages, and fetches them.
//
// It imports package eventlog.
//
// A ticket is a River job that may deliver a message once. The message's row is the promise, so a ticket may get lost:
// the message gets another when it is due. That is why three things are done in SQL on River's table instead of by
// River (sql.go): function mode takes tickets out of it without River's loops, since no process lives long enough there
// for these to be cleaned up; a dead process's tickets are taken over in the one statement that takes over the rest;
// and the age of the oldest ticket is part of the statements that issue more and that measure the backlog.
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
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/stepwell-dev/stepwell/entities/pg"
)

const (
	// Queue is the River queue of tickets.
	Queue = "deliveries"

	// River fetches at once when it is hinted, then at most this often; unhinted it looks each second.
	fetchCooldown = 5 * time.Millisecond
	fetchPoll     = time.Second
	// usedRetention is how long River keeps used tickets, which nobody needs.
	usedRetention = time.Minute
	// hardStopTimeout is how long breaking off the deliveries may take.
	hardStopTimeout = 10 * time.Second
	// longestDelivery is how long a delivery may take, however often its lease is extended. River keeps the tickets of
	// processes that died for as long.
	longestDelivery = 24 * time.Hour
)

// Ticket is the River job that may deliver a message once.
type Ticket struct {
	MessageID string `json:"message"`
	Number    int    `json:"ticket"`
	// Size is how many bytes the message's body has, so that its memory can be reserved before it is read.
	Size int64 `json:"size,omitempty"`
}

// Kind names the job in River's tables.
func (Ticket) Kind() string { return "deliver" }

// InsertOpts puts tickets on their queue. A ticket that cannot even claim its message is tried again a
// few times; after that the message gets another when it is due.
func (Ticket) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 3}
}

// Issuer issues tickets.
type Issuer struct {
	client *river.Client[pgx.Tx]
	// Hint tells workers that there are new tickets.
	Hint pg.Hint
}

// NewIssuer makes an issuer for River's tables in the schema.
func NewIssuer(pool *pgxpool.Pool, schema string) (*Issuer, error) {
	client, err := river.NewClient(quietDriver{riverpgxv5.New(pool)}, &river.Config{Schema: schema})
	if err != nil {
		return nil, fmt.Errorf("make River client: %w", err)
	}
	return &Issuer{client, pg.Hint{Channel: schema + ".river_insert", Topic: `{"queue": "` + Queue + `"}`}}, nil
}

// Issue issues tickets as part of the transaction. The hint is the caller's to send, after the commit.
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

// quietDriver keeps River from sending notifications inside our transactions, where each takes a lock on
// the whole database until the commit has reached the disk. The hub sends them after the commit instead.
type quietDriver struct{ *riverpgxv5.Driver }

func (quietDriver) SupportsListener() bool     { return false }
func (quietDriver) SupportsListenNotify() bool { return false }

// Fetcher has River fetch tickets and use them.
type Fetcher struct{ client *river.Client[pgx.Tx] }

// Use uses a ticket that was good from the given time on, by the database's clock. An error has it used again, after
// the time that [Later] says.
type Use func(ctx context.Context, t Ticket, since time.Time) error

// NewFetcher makes a fetcher for a process with the given ID, by which its tickets are found if it dies. It uses up to
// limit tickets at once.
func NewFetcher(
	pool *pgxpool.Pool, schema, process string, limit int, use Use, logger *slog.Logger,
) (*Fetcher, error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &worker{use: use}); err != nil {
		return nil, fmt.Errorf("add worker: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID:                          process,
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

// Start begins to fetch. Tickets are used under the context.
func (f *Fetcher) Start(ctx context.Context) error {
	if err := f.client.Start(ctx); err != nil {
		return fmt.Errorf("start River: %w", err)
	}
	return nil
}

// Stop fetches no more tickets, waits for those in use until the context ends, and then breaks them off.
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

// Later is an error that has a ticket used again after a while, however often that happens.
func Later(d time.Duration) error { return river.JobSnooze(d) }

type worker struct {
	river.WorkerDefaults[Ticket]

	use Use
}

// Timeout is far away: a delivery lasts as long as the function's lease does.
func (*worker) Timeout(*river.Job[Ticket]) time.Duration { return longestDelivery }

// Work uses the ticket. It never fails because of a function: whether a message is delivered again is decided by its
// row.
func (w *worker) Work(ctx context.Context, job *river.Job[Ticket]) error {
	return w.use(ctx, job.Args, job.ScheduledAt)
}

// quietHandler passes on only River's warnings and errors.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}
