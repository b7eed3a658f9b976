package upkeep

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
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

const (
	// verifiedTogether is how many runs are verified in one transaction, with a few statements for all of them.
	verifiedTogether = 100
	// verifiers is how many transactions verify runs at the same time.
	verifiers = 4
)

// Verify is [Maintainer.VerifyAll] for one run. It fails with [entities.ErrRunNotFound].
func (m *Maintainer) Verify(ctx context.Context, id entities.RunID, report func(Difference)) error {
	found, err := m.verify(ctx, []entities.RunID{id}, report)
	if err == nil && found == 0 {
		err = pg.Wrap(entities.ErrRunNotFound, "read run %s", id)
	}
	return pg.Wrap(err, "verify run %s", id)
}

// VerifyAll folds the logs of runs, which are ordered by ID, and reports illegal events, rows that differ from the fold
// (I2), and streams whose chunks do not match their counters. It reads one snapshot of each run and takes no lock, so
// appends go on. Its memory does not grow with the logs. Runs that do not exist are left out: retention may have
// deleted them.
//
// It verifies several parts of the runs at the same time, but reports their differences in their order. It calls
// verified with each part that is done.
func (m *Maintainer) VerifyAll(
	ctx context.Context, ids []entities.RunID, report func(Difference), verified func([]entities.RunID),
) error {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	parts := slices.Collect(slices.Chunk(ids, verifiedTogether))
	for i, running := 0, []*verification{}; i < len(parts) || len(running) > 0; running = running[1:] {
		for ; i < len(parts) && len(running) < verifiers; i++ {
			running = append(running, m.start(ctx, &all, parts[i]))
		}
		first := running[0]
		for d := range first.found {
			report(d)
		}
		if first.err != nil {
			return fmt.Errorf("verify runs from %s to %s: %w", first.ids[0], first.ids[len(first.ids)-1], first.err)
		}
		verified(first.ids)
	}
	return nil
}

// verification verifies a part of the runs.
type verification struct {
	ids   []entities.RunID
	found chan Difference // closed at the end
	err   error           // once found is closed
}

func (m *Maintainer) start(ctx context.Context, all *sync.WaitGroup, ids []entities.RunID) *verification {
	v := &verification{ids: ids, found: make(chan Difference)}
	all.Go(func() {
		defer close(v.found)
		_, v.err = m.verify(ctx, ids, func(d Difference) {
			select {
			case v.found <- d:
			case <-ctx.Done():
			}
		})
	})
	return v
}

// verify verifies runs in one transaction, and returns how many of them exist.
func (m *Maintainer) verify(ctx context.Context, ids []entities.RunID, report func(Difference)) (found int, err error) {
	err = pg.InSnapshot(ctx, m.pool, func(tx pgx.Tx) error {
		// All reads must see the same moment, or an append between two of them would look like a difference.
		runs, err := store.RunsOfAny(ctx, tx, ids)
		if found = len(runs); err != nil || found == 0 {
			return err
		}
		v := verifier{tx: tx, runs: runs, at: m.now(), report: report}
		if err := v.verifyRows(ctx); err != nil {
			return err
		}
		return v.verifyStreams(ctx)
	})
	return found, err
}

// verifier compares runs with their logs in one transaction.
type verifier struct {
	tx     pgx.Tx
	runs   []entities.Run // their rows, ordered by ID
	at     time.Time
	report func(Difference)
}

// verifyRows compares the rows of the runs and of all their entities with the fold of the logs.
func (v *verifier) verifyRows(ctx context.Context) error {
	stored := make(map[entities.RunID]entities.Run, len(v.runs))
	for _, r := range v.runs {
		r.Await = nil // it is not in the log
		stored[r.ID] = r
	}
	f := logFold{
		runs:  v.runs,
		fault: v.fault,
		onRun: func(run *entities.Run) error {
			v.compare(run.ID, entities.KindRun, *run, stored[run.ID])
			return nil
		},
		onSpan: func(s span) error {
			for _, t := range rowTypes {
				if err := t.verify(ctx, v, s); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return f.fold(ctx, v.tx)
}

// verifyStreams compares the chunk counters of the runs' streams with their chunks. Streams are not in the log.
func (v *verifier) verifyStreams(ctx context.Context) error {
	faults, err := store.StreamFaults(ctx, v.tx, v.runs)
	for _, s := range faults {
		fault := fmt.Sprintf("it counts %d chunks and has %d", s.Counted, s.Stored)
		if !s.Dense {
			fault += ", which are not numbered from 0 without a gap"
		}
		v.fault(s.RunID, "stream "+string(s.Name), fault)
	}
	return err
}

// differ reports a differing field. For a row that is missing or superfluous the field is "row".
func (v *verifier) differ(run entities.RunID, entity, field, log, row string) {
	v.report(Difference{RunID: run, Entity: entity, Field: field, Log: log, Row: row})
}

// fault reports an error that rebuilding the rows cannot repair.
func (v *verifier) fault(run entities.RunID, entity, fault string) {
	v.report(Difference{RunID: run, Entity: entity, Fault: fault})
}
