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
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

const (
	// Each turn looks at so many open runs: 100 a second in total, for any number of servers. A round over a million runs
	// takes three hours and costs next to nothing.
	sweepInterval = 10 * time.Second
	sweepBatch    = 1000
	// sweepRepairs is how many runs one turn wakes at most.
	sweepRepairs = 100
	// sweepQuiet is longer than a client takes between an event and its queue call.
	sweepQuiet = 30 * time.Second
	// A run that was woken and did not move is woken again after 1, 2, 4, … minutes, at most every hour.
	firstRepairBackoff = time.Minute
	maxRepairBackoff   = time.Hour
)

// Sweeper finds runs without a way to move (I5) and wakes them. It goes through the open runs in batches, round after
// round. All servers share one round: each turn is taken by one of them.
//
// A run has a way to move if a message about it is pending, leased or parked; if a wait or a step's retry is not due
// yet; or if it has an open hook and a delivery has seen all its news.
type Sweeper struct {
	// Interval is how often one of the servers has a turn.
	Interval time.Duration
	// Quiet is for how long nothing may have happened to a run before it is suspected.
	Quiet time.Duration
	// Batch is how many runs a turn looks at.
	Batch int
	// AfterPass, if set, is called after each turn that was this process's.
	AfterPass func(context.Context)

	pool   *pgxpool.Pool
	queue  Queue
	logger *slog.Logger
}

// Queue is what the sweeper needs of the queue.
type Queue interface {
	// Enqueue is as [eventlog.Enqueuer] says.
	Enqueue(context.Context, pgx.Tx, *pgx.Batch, []entities.Message) ([]*eventlog.InlineStart, func(error), error)
	// Validate checks a message before it is enqueued.
	Validate(entities.Message) error
	// WakeTimer tells processes that messages became due, if their transaction did not fail.
	WakeTimer(failed error)
}

// NewSweeper makes a sweeper of the queue, whose database is behind the pool.
func NewSweeper(pool *pgxpool.Pool, q Queue, logger *slog.Logger) *Sweeper {
	return &Sweeper{pool: pool, queue: q, logger: logger, Interval: sweepInterval, Quiet: sweepQuiet, Batch: sweepBatch}
}

// Sweep looks at the next batch of open runs, if a turn is due, and returns the runs that it woke. A batch that fails is
// skipped until the next round.
func (s *Sweeper) Sweep(ctx context.Context) ([]Stranded, error) {
	if err := s.releaseOrphans(ctx); err != nil {
		return nil, err
	}
	woken, err := s.sweepBatch(ctx)
	if err != nil {
		return nil, errors.Join(err, s.skipBatch(ctx))
	}
	for _, run := range woken {
		s.logger.WarnContext(ctx, "woke a stranded run", "run", run.ID, "reason", run.Reason)
	}
	return woken, nil
}

func (s *Sweeper) sweepBatch(ctx context.Context) (woken []Stranded, err error) {
	var ours bool
	err = pg.InTxThen(ctx, s.pool, func(tx pgx.Tx) (ended func(error), err error) {
		woken = nil
		place, ok, err := claimPass(ctx, tx, s.Interval)
		if ours = ok; err != nil || !ok {
			return nil, err
		}
		suspects, place, err := s.findNext(ctx, tx, place)
		if err != nil {
			return nil, err
		}
		if woken, ended, err = s.wake(ctx, tx, suspects); err != nil {
			return nil, err
		}
		return ended, saveCursor(ctx, tx, place)
	})
	if err != nil {
		return nil, err
	}
	if ours && s.AfterPass != nil {
		s.AfterPass(ctx)
	}
	return woken, nil
}

// skipBatch takes the turn only to move on.
func (s *Sweeper) skipBatch(ctx context.Context) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		place, ok, err := claimPass(ctx, tx, s.Interval)
		if err != nil || !ok {
			return err
		}
		if _, place, err = s.openRuns(ctx, tx, place); err != nil {
			return err
		}
		return saveCursor(ctx, tx, place)
	})
}

// releaseOrphans releases leases whose holder is on no record, even if the turn then fails.
func (s *Sweeper) releaseOrphans(ctx context.Context) error {
	var orphans int64
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		orphans, err = ReleaseOrphans(ctx, tx)
		return err
	})
	if orphans > 0 && err == nil {
		s.logger.WarnContext(ctx, "released leases that servers took as they died", "deliveries", orphans)
		s.queue.WakeTimer(nil)
	}
	return err
}

// findNext returns the stranded runs among the next batch and those that were stranded before, and where the next batch
// begins.
func (s *Sweeper) findNext(ctx context.Context, tx pgx.Tx, place string) ([]Stranded, string, error) {
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
	open, place, err := s.openRuns(ctx, tx, place)
	if err != nil {
		return nil, "", err
	}
	open = slices.DeleteFunc(open, func(id string) bool { return slices.Contains(known, id) })
	found, err := findStranded(ctx, tx, open, s.Quiet, sweepRepairs)
	if err != nil {
		return nil, "", err
	}
	if len(found) == sweepRepairs {
		place = string(found[len(found)-1].ID)
	}
	return append(still, found...), place, nil
}

// openRuns returns the batch of open runs at the place, and where the one after it begins.
func (s *Sweeper) openRuns(ctx context.Context, tx pgx.Tx, place string) ([]string, string, error) {
	open, err := selectOpenRuns(ctx, tx, place, s.Batch)
	if err != nil || len(open) < s.Batch {
		return open, "", err // the round is over
	}
	return open, open[len(open)-1], nil
}

// wake enqueues what makes the runs' clients continue them, except for those that were woken lately. A run that
// no message can be about stays Stranded, where it is counted, and does not keep others from being woken.
func (s *Sweeper) wake(ctx context.Context, tx pgx.Tx, suspects []Stranded) (
	woken []Stranded, ended func(error), err error,
) {
	var messages []entities.Message
	for _, run := range suspects {
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
		if err := s.validate(repair); err != nil {
			s.logger.ErrorContext(ctx, "cannot wake a stranded run", "run", run.ID, "reason", run.Reason, "error", err)
			continue
		}
		if err := ForgetLostKeys(ctx, tx, run); err != nil {
			return nil, nil, err
		}
		woken, messages = append(woken, run), append(messages, repair...)
	}
	_, ended, err = s.queue.Enqueue(ctx, tx, &pgx.Batch{}, messages)
	return woken, ended, err
}

// repair returns the messages that continue a stranded run: its client's message, or the missing work.
func (s *Sweeper) repair(ctx context.Context, tx pgx.Tx, run Stranded) ([]entities.Message, error) {
	if run.Driver == entities.DriverServer {
		return missingWork(ctx, tx, run)
	}
	m, err := continuation.Of(entities.Run{
		ID: run.ID, Project: run.Project, DeploymentID: run.DeploymentID, WorkflowName: run.WorkflowName,
		SpecVersion: run.SpecVersion,
	})
	return []entities.Message{m}, err
}

// validate checks messages for functions.
func (s *Sweeper) validate(messages []entities.Message) error {
	for _, m := range messages {
		if m.Work != entities.WorkNone {
			continue
		}
		if err := s.queue.Validate(m); err != nil {
			return err
		}
	}
	return nil
}
