package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Audit compares rows with the log they must be the fold of (I2), and restores them from it. It may be
// used beside live traffic.
type Maintainer struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewAudit makes an audit of the database behind pool. Now is the clock, which says what has expired.
func NewMaintainer(pool *pgxpool.Pool, now func() time.Time) *Maintainer {
	return &Maintainer{pool: pool, now: now}
}

// Runs reads the IDs of at most limit runs after the given one, in the order of IDs; of all projects when
// project is empty.
func (a *Maintainer) Runs(
	ctx context.Context, project entities.Project, after entities.RunID, limit int,
) ([]entities.RunID, error) {
	return store.RunIDs(ctx, a.pool, project, after, limit)
}

// Verify folds the log of a run and reports everything in which it is not sound, its rows are not its
// fold, or the run's streams do not have the chunks they count. It sees one moment of the run and keeps
// nobody from appending. Its memory does not grow with the log. It fails with [entities.ErrRunNotFound].
func (a *Maintainer) Verify(ctx context.Context, id entities.RunID, report func(Difference)) error {
	err := pg.InSnapshot(ctx, a.pool, func(tx pgx.Tx) error {
		run, err := store.RunOfAny(ctx, tx, id)
		if err != nil {
			return err
		}
		c := verifier{tx: tx, row: run, at: a.now(), report: report}
		if err := c.log(ctx); err != nil {
			return err
		}
		return c.streams(ctx)
	})
	if err != nil {
		return fmt.Errorf("verify run %s: %w", id, err)
	}
	return nil
}

// comparison is of one run in one transaction.
type verifier struct {
	tx     pgx.Tx
	row    entities.Run
	at     time.Time
	report func(Difference)
}

// log compares all rows with the fold of the log.
func (c *verifier) log(ctx context.Context) error {
	f := folder{
		runID: c.row.ID, project: c.row.Project,
		fault: func(entity, what string) { c.report(Difference{RunID: c.row.ID, Entity: entity, Fault: what}) },
		whole: func(run *entities.Run) error {
			compareFields(*run, c.row, func(field, log, row string) { c.differs(entities.KindRun, field, log, row) })
			return nil
		},
		piece: func(s *eventlog.Snapshot, span store.Span) error {
			for _, k := range rowTypes {
				if err := c.rows(ctx, k, k.within(s, span), span); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return f.all(ctx, c.tx)
}

// rows compares the rows of one kind in a span with those that the log says are there.
func (c *verifier) rows(ctx context.Context, k rowType, folded map[string]any, span store.Span) error {
	err := k.rows(ctx, c.tx, c.row.ID, span, func(key string, row any) error {
		entity := k.name + " " + key
		log, ok := folded[key]
		if !ok {
			c.differs(entity, "row", "none", "exists")
			return nil
		}
		delete(folded, key)
		compareFields(log, row, func(field, log, row string) { c.differs(entity, field, log, row) })
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(folded)) {
		if !k.over(folded[key], c.at) {
			c.differs(k.name+" "+key, "row", "exists", "none")
		}
	}
	return nil
}

func (c *verifier) differs(entity, field, log, row string) {
	c.report(Difference{RunID: c.row.ID, Entity: entity, Field: field, Log: log, Row: row})
}

// streams compares the counters of the run's streams with their chunks.
func (c *verifier) streams(ctx context.Context) error {
	faults, err := store.StreamFaults(ctx, c.tx, c.row.Project, c.row.ID)
	for _, s := range faults {
		what := fmt.Sprintf("it counts %d chunks and has %d", s.Counted, s.Stored)
		if !s.Dense {
			what += ", which are not numbered from 0 without a gap"
		}
		c.report(Difference{RunID: c.row.ID, Entity: "stream " + string(s.Name), Fault: what})
	}
	return err
}
