package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

const (
	// Each turn of the sweeper looks at so many open runs: 100 a second in all, however many servers there
	// are, so that a round over a million takes three hours and costs next to nothing.
	sweepInterval = 10 * time.Second
	sweepBatch    = 1000
	// sweepRepairs is how many runs one turn wakes at most.
	sweepRepairs = 100
	// sweepQuiet is how long nothing may have happened to a run before it is suspected: longer than a client
	// takes between an event and its queue call.
	sweepQuiet = 30 * time.Second
	// A run that was woken and did not move is woken again after 1, 2, 4, … minutes, at most every hour.
	firstRepairBackoff = time.Minute
	maxRepairBackoff   = time.Hour
)

// sweeper finds runs without a way to move (I5) and wakes them. It goes round over the runs that have not
// ended, a batch at a time. All servers share one round: it is one of them that has a turn.
//
// A run has a way to move if a message about it is pending, leased or parked; if a wait or a step's retry is
// not due yet; or if it has an open hook and a delivery has seen all that there was to tell it.
type sweeper struct {
	queue    *Queue
	logger   *slog.Logger
	interval time.Duration
	quiet    time.Duration
	batch    int
	// afterTurn, if there is one, is called after each turn that was this process's.
	afterTurn func(context.Context)
}

func newSweeper(q *Queue, logger *slog.Logger) *sweeper {
	return &sweeper{queue: q, logger: logger, interval: sweepInterval, quiet: sweepQuiet, batch: sweepBatch}
}

// turn looks at the next batch of open runs, if it is time to, and returns the runs that it woke. A batch that
// cannot be looked at is passed over until the next round.
func (s *sweeper) turn(ctx context.Context) ([]stranded, error) {
	if err := s.releaseOrphans(ctx); err != nil {
		return nil, err
	}
	woken, err := s.lookAndWake(ctx)
	if err != nil {
		return nil, errors.Join(err, s.passOver(ctx))
	}
	for _, run := range woken {
		s.logger.WarnContext(ctx, "woke a stranded run", "run", run.ID, "reason", run.Reason)
	}
	return woken, nil
}

func (s *sweeper) lookAndWake(ctx context.Context) (woken []stranded, err error) {
	var ours bool
	err = eventlog.InTxThen(ctx, s.queue.pool, func(tx pgx.Tx) (ended func(error), err error) {
		woken = nil
		place, ok, err := takeTurn(ctx, tx, s.interval)
		if ours = ok; err != nil || !ok {
			return nil, err
		}
		suspects, place, err := s.look(ctx, tx, place)
		if err != nil {
			return nil, err
		}
		if woken, ended, err = s.wake(ctx, tx, suspects); err != nil {
			return nil, err
		}
		return ended, movePlace(ctx, tx, place)
	})
	if err != nil {
		return nil, err
	}
	if ours && s.afterTurn != nil {
		s.afterTurn(ctx)
	}
	return woken, nil
}

// passOver takes the turn and only moves on.
func (s *sweeper) passOver(ctx context.Context) error {
	return eventlog.InTx(ctx, s.queue.pool, func(tx pgx.Tx) error {
		place, ok, err := takeTurn(ctx, tx, s.interval)
		if err != nil || !ok {
			return err
		}
		if _, place, err = s.next(ctx, tx, place); err != nil {
			return err
		}
		return movePlace(ctx, tx, place)
	})
}

// releaseOrphans releases the leases of nobody, whatever becomes of the turn.
func (s *sweeper) releaseOrphans(ctx context.Context) error {
	var orphans int64
	err := eventlog.InTx(ctx, s.queue.pool, func(tx pgx.Tx) (err error) {
		orphans, err = releaseOrphans(ctx, tx)
		return err
	})
	if orphans > 0 && err == nil {
		s.logger.WarnContext(ctx, "released leases that servers took as they died", "deliveries", orphans)
		s.queue.hub.Publish(timerTopic)
	}
	return err
}

// look returns the stranded runs among those of the next batch and those that were stranded before, and
// where the next batch begins.
func (s *sweeper) look(ctx context.Context, tx pgx.Tx, place string) ([]stranded, string, error) {
	known, err := knownStranded(ctx, tx, s.batch)
	if err != nil {
		return nil, "", err
	}
	still, err := findStranded(ctx, tx, known, s.quiet, len(known))
	if err != nil {
		return nil, "", err
	}
	if err := settleStranded(ctx, tx, known, still); err != nil {
		return nil, "", err
	}
	open, place, err := s.next(ctx, tx, place)
	if err != nil {
		return nil, "", err
	}
	open = slices.DeleteFunc(open, func(id string) bool { return slices.Contains(known, id) })
	found, err := findStranded(ctx, tx, open, s.quiet, sweepRepairs)
	if err != nil {
		return nil, "", err
	}
	if len(found) == sweepRepairs {
		place = string(found[len(found)-1].ID)
	}
	return append(still, found...), place, nil
}

// next returns the batch of open runs at the place, and where the one after it begins.
func (s *sweeper) next(ctx context.Context, tx pgx.Tx, place string) ([]string, string, error) {
	open, err := openRuns(ctx, tx, place, s.batch)
	if err != nil || len(open) < s.batch {
		return open, "", err // the round is over
	}
	return open, open[len(open)-1], nil
}

// wake enqueues what makes the runs' clients continue them, except for those that were woken lately. A run that
// no message can be about stays stranded, where it is counted, and does not keep others from being woken.
func (s *sweeper) wake(ctx context.Context, tx pgx.Tx, suspects []stranded) (
	woken []stranded, ended func(error), err error,
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
		if err := validateAll(repair); err != nil {
			s.logger.ErrorContext(ctx, "cannot wake a stranded run", "run", run.ID, "reason", run.Reason, "error", err)
			continue
		}
		if err := forgetLostKeys(ctx, tx, run); err != nil {
			return nil, nil, err
		}
		woken, messages = append(woken, run), append(messages, repair...)
	}
	_, ended, err = s.queue.Enqueue(ctx, tx, &pgx.Batch{}, messages)
	return woken, ended, err
}

// repair is what gets a stranded run going: its client's message, or the work that there ought to be.
func (s *sweeper) repair(ctx context.Context, tx pgx.Tx, run stranded) ([]entities.Message, error) {
	if run.Driver == entities.DriverServer {
		return lostWork(ctx, tx, run)
	}
	m, err := continuation(run)
	return []entities.Message{m}, err
}

// validateAll checks messages for functions.
func validateAll(all []entities.Message) error {
	_, messages := split(all)
	for _, m := range messages {
		if err := validate(m); err != nil {
			return err
		}
	}
	return nil
}
