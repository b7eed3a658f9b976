package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

const (
	// One pass every sweepInterval reads sweepBatch open runs: 100 a second in total, for any number of servers. A
	// round over a million runs takes three hours and costs next to nothing.
	sweepInterval = 10 * time.Second
	sweepBatch    = 1000
	// sweepRepairs limits the number of runs that a pass finds stranded, and so the messages that it enqueues.
	sweepRepairs = 100
	// sweepQuiet is longer than a client takes between writing an event and sending the message for it.
	sweepQuiet = 10 * time.Second
	// A run that was woken and did not move is woken again after 1, 2, 4, … minutes, at most every hour.
	firstRepairBackoff = time.Minute
	maxRepairBackoff   = time.Hour
)

// Sweeper finds runs without a way to move (I5) and wakes them. It goes through the open runs in batches, round after
// round. All servers share one round: each pass is made by one of them.
type Sweeper struct {
	// Interval is the time between two passes, over all servers.
	Interval time.Duration
	// Quiet is how long a run must not have changed before it can count as stranded.
	Quiet time.Duration
	// Batch is the number of runs that a pass reads.
	Batch int
	// AfterPass, if set, is called after each pass that this process made.
	AfterPass func(context.Context)

	pool   *pgxpool.Pool
	queue  Queue
	logger *slog.Logger
}

// Queue has the functions of the queue that the sweeper uses.
type Queue interface {
	// Enqueue enqueues messages in the transaction, as [eventlog.Enqueuer] describes.
	Enqueue(context.Context, pgx.Tx, *pgx.Batch, []message.Message) ([]*eventlog.InlineStart, func(error), error)
	// Validate checks a message before it is enqueued.
	Validate(message.Message) error
	// WakeTimer tells processes that messages became due, unless their transaction failed.
	WakeTimer(failed error)
}

// NewSweeper makes a sweeper that enqueues into q, the queue of the pool's database.
func NewSweeper(pool *pgxpool.Pool, q Queue, logger *slog.Logger) *Sweeper {
	return &Sweeper{pool: pool, queue: q, logger: logger, Interval: sweepInterval, Quiet: sweepQuiet, Batch: sweepBatch}
}

// Sweep makes the next pass over the open runs, if it is due and no other process makes it, and returns the runs that
// it woke. A batch that fails is skipped until the next round.
func (s *Sweeper) Sweep(ctx context.Context) ([]Stranded, error) {
	if err := s.releaseOrphans(ctx); err != nil {
		return nil, err
	}
	woken, err := s.pass(ctx)
	if err != nil {
		return nil, errors.Join(err, s.skipBatch(ctx))
	}
	for _, run := range woken {
		s.logger.WarnContext(ctx, "woke a stranded run", "run", run.ID, "reason", run.Reason)
	}
	return woken, nil
}

// pass wakes the stranded runs of the next batch, in one transaction that holds the claim on the pass.
func (s *Sweeper) pass(ctx context.Context) (woken []Stranded, err error) {
	var claimed bool
	err = pg.InTxThen(ctx, s.pool, func(tx pgx.Tx) (afterCommit func(error), err error) {
		woken = nil // the transaction may be retried
		cursor, ok, err := claimPass(ctx, tx, s.Interval)
		if claimed = ok; err != nil || !ok {
			return nil, err
		}
		stranded, next, err := s.findNext(ctx, tx, cursor)
		if err != nil {
			return nil, err
		}
		if woken, afterCommit, err = s.wake(ctx, tx, stranded); err != nil || next == cursor {
			return afterCommit, err
		}
		return afterCommit, saveCursor(ctx, tx, next)
	})
	if err != nil {
		return nil, err
	}
	if claimed && s.AfterPass != nil {
		s.AfterPass(ctx)
	}
	return woken, nil
}

// skipBatch makes a pass that only moves the cursor on, so that one bad batch cannot stop the round.
func (s *Sweeper) skipBatch(ctx context.Context) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		cursor, ok, err := claimPass(ctx, tx, s.Interval)
		if err != nil || !ok {
			return err
		}
		if _, cursor, err = s.openRuns(ctx, tx, cursor); err != nil {
			return err
		}
		return saveCursor(ctx, tx, cursor)
	})
}

// releaseOrphans ends the leases whose holder has no row in processes. It is a statement of its own, so it
// takes effect even if the pass then fails.
func (s *Sweeper) releaseOrphans(ctx context.Context) error {
	orphans, err := ReleaseOrphans(ctx, s.pool)
	if orphans > 0 && err == nil {
		s.logger.WarnContext(ctx, "released leases of servers that died while claiming", "deliveries", orphans)
		s.queue.WakeTimer(nil)
	}
	return err
}

// findNext returns the stranded runs among the next batch and among those that were stranded at their last check, and
// the cursor of the batch after it.
func (s *Sweeper) findNext(ctx context.Context, tx pgx.Tx, cursor string) ([]Stranded, string, error) {
	known, err := knownStranded(ctx, tx, s.Batch)
	if err != nil {
		return nil, "", err
	}
	still, err := findStranded(ctx, tx, known, s.Quiet, len(known))
	if err != nil {
		return nil, "", err
	}
	if err := clearStranded(ctx, tx, known, still); err != nil {
		return nil, "", err
	}
	open, cursor, err := s.openRuns(ctx, tx, cursor)
	if err != nil {
		return nil, "", err
	}
	open = slices.DeleteFunc(open, func(id string) bool { return slices.Contains(known, id) })
	found, err := findStranded(ctx, tx, open, s.Quiet, sweepRepairs)
	if err != nil {
		return nil, "", err
	}
	if len(found) == sweepRepairs { // the batch may have more: the next pass continues after the last one found
		cursor = string(found[len(found)-1].ID)
	}
	return append(still, found...), cursor, nil
}

// openRuns returns the batch of open runs after the cursor, and the cursor of the batch after it, which is empty at the
// end of the round.
func (s *Sweeper) openRuns(ctx context.Context, tx pgx.Tx, cursor string) ([]string, string, error) {
	open, err := selectIDs(ctx, tx,
		`SELECT id FROM runs WHERE completed_at IS NULL AND id > $1 ORDER BY id LIMIT $2`, cursor, s.Batch)
	if err != nil || len(open) < s.Batch {
		return open, "", err
	}
	return open, open[len(open)-1], nil
}

// wake enqueues messages that continue the runs, except for runs that were woken recently. A run for which no valid
// message exists stays stranded and counted, and does not keep the others from being woken.
func (s *Sweeper) wake(ctx context.Context, tx pgx.Tx, stranded []Stranded) (
	woken []Stranded, afterCommit func(error), err error,
) {
	var messages []message.Message
	for _, run := range stranded {
		due, err := noteStranded(ctx, tx, run)
		if err != nil {
			return nil, nil, err
		}
		if !due {
			continue
		}
		repair, err := s.repair(ctx, tx, run)
		if err != nil {
			return nil, nil, err
		}
		if run.Driver != entities.DriverServer { // work needs no check, since the server wrote it
			err = s.queue.Validate(repair[0])
		}
		if err != nil {
			s.logger.ErrorContext(ctx, "cannot wake a stranded run", "run", run.ID, "reason", run.Reason, "error", err)
			continue
		}
		if err := ForgetLostKeys(ctx, tx, run); err != nil {
			return nil, nil, err
		}
		woken, messages = append(woken, run), append(messages, repair...)
	}
	_, afterCommit, err = s.queue.Enqueue(ctx, tx, &pgx.Batch{}, messages)
	return woken, afterCommit, err
}

// repair returns the messages that continue a stranded run: the continuation that its client would have sent, or the
// work that is missing if the server continues the run.
func (s *Sweeper) repair(ctx context.Context, tx pgx.Tx, run Stranded) ([]message.Message, error) {
	if run.Driver == entities.DriverServer {
		return missingWork(ctx, tx, run)
	}
	m, err := continuation.Of(entities.Run{
		ID: run.ID, Project: run.Project, DeploymentID: run.DeploymentID, WorkflowName: run.WorkflowName,
		SpecVersion: run.SpecVersion,
	})
	return []message.Message{m}, err
}
