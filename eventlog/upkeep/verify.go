package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// Maintainer verifies, rebuilds, exports and imports runs. It is safe to use beside live traffic.
type Maintainer struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewMaintainer returns a maintainer of the database behind pool. Now is the clock that decides whether a hook has
// expired.
func NewMaintainer(pool *pgxpool.Pool, now func() time.Time) *Maintainer {
	return &Maintainer{pool: pool, now: now}
}

// Runs lists the IDs of at most limit runs after the given one, in the order of IDs. An empty project lists the runs of
// all projects.
func (m *Maintainer) Runs(
	ctx context.Context, project entities.Project, after entities.RunID, limit int,
) ([]entities.RunID, error) {
	return store.RunIDs(ctx, m.pool, project, after, limit)
}

// Verify folds the log of a run and reports illegal events, rows that differ from the fold (I2), and streams whose
// chunks do not match their counters. It reads one snapshot and takes no lock, so appends go on. Its memory does not
// grow with the log. It fails with [entities.ErrRunNotFound].
func (m *Maintainer) Verify(ctx context.Context, id entities.RunID, report func(Difference)) error {
	err := pg.InSnapshot(ctx, m.pool, func(tx pgx.Tx) error {
		// All reads must see the same moment, or an append between two of them would look like a difference.
		run, err := store.RunOfAny(ctx, tx, id)
		if err != nil {
			return err
		}
		v := verifier{tx: tx, run: run, at: m.now(), report: report}
		if err := v.verifyRows(ctx); err != nil {
			return err
		}
		return v.verifyStreams(ctx)
	})
	if err != nil {
		return fmt.Errorf("verify run %s: %w", id, err)
	}
	return nil
}

// verifier compares one run with its log in one transaction.
type verifier struct {
	tx     pgx.Tx
	run    entities.Run // its row
	at     time.Time
	report func(Difference)
}

// verifyRows compares the row of the run and of all its entities with the fold of the log.
func (v *verifier) verifyRows(ctx context.Context) error {
	f := logFold{
		runID: v.run.ID, project: v.run.Project,
		fault: v.fault,
		onRun: func(run *entities.Run) error {
			row := v.run
			row.Await = nil // it is not in the log
			v.compare(entities.KindRun, *run, row)
			return nil
		},
		onSpan: func(s *eventlog.Snapshot, span store.Span) error {
			for _, t := range rowTypes {
				if err := t.verify(ctx, v, s, span); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return f.fold(ctx, v.tx)
}

// verifyStreams compares the chunk counters of the run's streams with their chunks. Streams are not in the log.
func (v *verifier) verifyStreams(ctx context.Context) error {
	faults, err := store.StreamFaults(ctx, v.tx, v.run.Project, v.run.ID)
	for _, s := range faults {
		fault := fmt.Sprintf("it counts %d chunks and has %d", s.Counted, s.Stored)
		if !s.Dense {
			fault += ", which are not numbered from 0 without a gap"
		}
		v.fault("stream "+string(s.Name), fault)
	}
	return err
}

// differ reports a differing field. For a row that is missing or superfluous the field is "row".
func (v *verifier) differ(entity, field, log, row string) {
	v.report(Difference{RunID: v.run.ID, Entity: entity, Field: field, Log: log, Row: row})
}

// fault reports an error that rebuilding the rows cannot repair.
func (v *verifier) fault(entity, fault string) {
	v.report(Difference{RunID: v.run.ID, Entity: entity, Fault: fault})
}
