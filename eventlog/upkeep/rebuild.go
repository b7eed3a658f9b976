package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Rebuilt is what a rebuild did to a run.
type RebuildResult struct {
	// Changed says that the rows differed from the log and were written anew.
	Changed bool
	// Left is what is still wrong and the log cannot mend; the first hundred of it.
	Remaining []Difference
}

const maxRemaining = 100

func (r *RebuildResult) leave(d Difference) {
	if len(r.Remaining) < maxRemaining {
		r.Remaining = append(r.Remaining, d)
	}
}

// errUnsound: the log itself is damaged, so its fold means nothing.
var errUnsound = errors.New("the log is not sound")

// Rebuild restores the rows of a run from its log, if they differ from it. It is one transaction under the
// run's lock: an append comes before it and is in the log, or after it and finds the new rows. Its memory
// does not grow with the log.
//
// Not restored are: rows of a run whose log is not sound; a hook whose token another run has taken
// meanwhile; streams, which are not in the log; and the run's ID and project, which are in no event. It
// fails with [entities.ErrRunNotFound].
func (a *Maintainer) Rebuild(ctx context.Context, id entities.RunID) (RebuildResult, error) {
	wrong := false
	err := a.Verify(ctx, id, func(Difference) { wrong = true })
	if err != nil || !wrong {
		return RebuildResult{}, err
	}
	var result RebuildResult
	err = pg.InTx(ctx, a.pool, func(tx pgx.Tx) error {
		result = RebuildResult{} // also that of an earlier try, which was rolled back
		return rebuild(ctx, tx, id, a.now(), &result)
	})
	if err != nil && !errors.Is(err, errUnsound) {
		return RebuildResult{}, fmt.Errorf("rebuild run %s: %w", id, err)
	}
	return result, nil
}

// rebuild looks again, now under the lock, and writes if need be.
func rebuild(ctx context.Context, tx pgx.Tx, id entities.RunID, at time.Time, result *RebuildResult) error {
	run, err := store.LockRunOfAny(ctx, tx, id)
	if err != nil {
		return err
	}
	sound := true
	c := verifier{tx: tx, row: run, at: at, report: func(d Difference) {
		if d.Fault == "" {
			result.Changed = true
		} else {
			sound = false
			result.leave(d)
		}
	}}
	if err := c.log(ctx); err != nil {
		return err
	}
	if !sound {
		result.Changed = false
		return errUnsound
	}
	c.report = result.leave
	if err := c.streams(ctx); err != nil || !result.Changed {
		return err
	}
	return restore(ctx, tx, run, at, result.leave)
}

// restore writes all rows of a run anew, under its lock. It leaves what cannot be. Here the hooks' rows are
// locked before their tokens: whoever takes over an expired one the other way round may deadlock with this,
// and both try again.
func restore(ctx context.Context, tx pgx.Tx, run entities.Run, at time.Time, leave func(Difference)) error {
	var b pgx.Batch
	clearRows(&b, run.ID)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("clear rows: %w", err)
	}
	f := folder{
		runID: run.ID, project: run.Project,
		fault: func(string, string) {}, // seen before, under the same lock
		whole: func(run *entities.Run) error {
			var b pgx.Batch
			store.RewriteRun(&b, run)
			return tx.SendBatch(ctx, &b).Close()
		},
		piece: func(s *eventlog.Snapshot, span store.Span) error {
			var b pgx.Batch
			for _, k := range rowTypes {
				k.restore(&b, s, span, at, leave)
			}
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return fmt.Errorf("restore rows: %w", err)
			}
			return nil
		},
	}
	return f.all(ctx, tx)
}

// restore queues the insertion of the rows of a span that count.
func (k rowType) restore(b *pgx.Batch, s *eventlog.Snapshot, span store.Span, at time.Time, leave func(Difference)) {
	rows := k.within(s, span)
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if k.over(rows[key], at) {
			continue
		}
		k.insert(b, rows[key], at, func(obstacle string) {
			leave(Difference{RunID: s.Run.ID, Entity: k.name + " " + key, Fault: obstacle})
		})
	}
}
