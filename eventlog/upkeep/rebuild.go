package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// RebuildResult is the outcome of a rebuild.
type RebuildResult struct {
	// Changed reports whether the rows differed from the log and were rewritten.
	Changed bool
	// Remaining are the first hundred differences that the log cannot repair.
	Remaining []Difference
}

// maxRemaining bounds memory: each event of a damaged log may be a difference.
const maxRemaining = 100

func (r *RebuildResult) remain(d Difference) {
	if len(r.Remaining) < maxRemaining {
		r.Remaining = append(r.Remaining, d)
	}
}

// errDamagedLog rolls a rebuild back: the fold of a damaged log means nothing.
var errDamagedLog = errors.New("the log is damaged")

// Rebuild restores the rows of a run from its log if they differ from it. It is one transaction under the run's lock:
// an append either precedes it and is in the log, or follows it and finds the new rows. Its memory does not grow with
// the log.
//
// It cannot restore rows of a run whose log is damaged; a hook whose token another run has taken meanwhile; streams,
// which are not in the log; and the run's ID and project, which no event has. It fails with
// [entities.ErrRunNotFound].
func (m *Maintainer) Rebuild(ctx context.Context, id entities.RunID) (RebuildResult, error) {
	differs := false
	err := m.Verify(ctx, id, func(Difference) { differs = true }) // without a lock, as most runs are sound
	if err != nil || !differs {
		return RebuildResult{}, err
	}
	var result RebuildResult
	err = pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		result = RebuildResult{} // an earlier attempt may have been rolled back
		return rebuild(ctx, tx, id, m.now(), &result)
	})
	if err != nil && !errors.Is(err, errDamagedLog) {
		return RebuildResult{}, fmt.Errorf("rebuild run %s: %w", id, err)
	}
	return result, nil
}

// rebuild verifies the run again, now under its lock, and rewrites its rows if they differ.
func rebuild(ctx context.Context, tx pgx.Tx, id entities.RunID, at time.Time, result *RebuildResult) error {
	run, err := store.LockRunOfAny(ctx, tx, id)
	if err != nil {
		return err
	}
	v := verifier{tx: tx, runs: []entities.Run{run}, at: at, report: func(d Difference) {
		if d.Fault == "" { // a row differs, which the log can repair
			result.Changed = true
		} else {
			result.remain(d)
		}
	}}
	if err := v.verifyRows(ctx); err != nil {
		return err
	}
	if len(result.Remaining) > 0 {
		result.Changed = false
		return errDamagedLog
	}
	// A fault in a stream is reported but does not stop the rebuild: streams and rows do not depend on each other.
	if err := v.verifyStreams(ctx); err != nil || !result.Changed {
		return err
	}
	return restore(ctx, tx, run, at, result.remain)
}

// restore rewrites all rows of a locked run and reports those it could not write. It locks the rows of hooks before
// their tokens. A takeover of an expired token locks in the other order and may deadlock with it; then both retry.
func restore(ctx context.Context, tx pgx.Tx, run entities.Run, at time.Time, report func(Difference)) error {
	// All rows first: a damaged row of one span may hold a key that a row of another span needs.
	var b pgx.Batch
	store.DeleteRows(&b, run.ID)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("delete rows: %w", err)
	}
	f := logFold{
		runs:  []entities.Run{run},
		fault: func(entities.RunID, string, string) {}, // rebuild has verified the log under the same lock
		onRun: func(run *entities.Run) error {
			var b pgx.Batch
			store.RewriteRun(&b, run)
			return tx.SendBatch(ctx, &b).Close()
		},
		onSpan: func(s span) error {
			var b pgx.Batch
			for _, t := range rowTypes {
				t.restore(&b, run.Project, s, at, report)
			}
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return fmt.Errorf("restore rows: %w", err)
			}
			return nil
		},
	}
	return f.fold(ctx, tx)
}
