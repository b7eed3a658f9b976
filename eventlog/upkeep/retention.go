package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// One transaction deletes no more runs than this, and none after the one that fills it with rows.
	maxBatchRuns = 200
	maxBatchRows = 20_000
	// A stream whose run never was, or has left, stays this long; longer than a run may take to come.
	orphanAge        = 7 * 24 * time.Hour
	orphanBatchSize  = 1000
	maxOrphanBatches = 100 // of one pass
	// An archive that has refused so many runs in a row is out of order.
	maxArchiveFailures = 10
)

// RetentionOptions configures a [Retention].
type RetentionOptions struct {
	// Keep is how long runs stay after their end, unless their project says otherwise; 0 is for ever.
	Keep time.Duration
	// Archive, if there is one, stores a run durably before it leaves, and says how much there was of it. It fails
	// with [ErrUnreadable] when that is due to the run, and with [entities.ErrConflict] when another stored the
	// run meanwhile; whatever else it fails with is about the archive.
	Archive func(context.Context, entities.Project, entities.RunID) (RunSize, error)
	// Drop deletes what else there is about runs that leave, in the same transaction.
	DeleteRelated func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error
}

// Retention lets runs leave that ended long enough ago, with everything that belongs to them. Several may be
// at it on one database.
type Retention struct {
	pool    *pgxpool.Pool
	options RetentionOptions
	// Streams up to this one have been looked at since the start, and need not be again.
	lookedAt int64
}

// NewRetention makes the retention of the database behind pool.
func NewRetention(pool *pgxpool.Pool, o RetentionOptions) *Retention {
	return &Retention{pool: pool, options: o}
}

// Extent is how much there is of a run: it has grown since if it differs.
type RunSize struct {
	// LastSeq is the position of the last event.
	LastSeq int64 `json:"lastSeq"`
	// Streams is how many streams there are, Closed how many of them are closed, and Chunks how many chunks
	// they have together.
	Streams int64 `json:"streams"`
	Closed  int64 `json:"closed"`
	Chunks  int64 `json:"chunks"`
}

func (e *RunSize) add(s store.Stream) {
	e.Streams++
	e.Chunks += s.Chunks
	if s.ClosedAt != nil {
		e.Closed++
	}
}

// Passed is what a pass has removed.
type PassResult struct {
	Runs, Streams int
	// Unarchived is how many runs stay because they could not be archived.
	Unarchived int
}

// Pass removes everything whose time is over. Each batch is one transaction, in which a run goes wholly or
// not at all. A run that others have locked or append to just then, or that could not be archived, is left
// for the next pass, and the others go. Only an archive that refuses one run after the other ends it for all
// runs. The error tells of the last run that could not be archived, and of what the database refused.
func (r *Retention) Pass(ctx context.Context) (PassResult, error) {
	p := pass{Retention: r}
	err := errors.Join(p.runs(ctx), p.orphans(ctx), store.DeleteExpiredHooks(ctx, p.pool))
	if p.failure != nil {
		err = errors.Join(fmt.Errorf("%d runs could not be archived; the last: %w", p.Unarchived, p.failure), err)
	}
	return p.PassResult, err
}

func (r *Retention) ages(ctx context.Context) ([]admin.Retention, error) {
	if r.options.Keep > 0 {
		return admin.RetentionsInUse(ctx, r.pool, r.options.Keep)
	}
	return admin.Retentions(ctx, r.pool)
}

// pass is one pass under way.
type pass struct {
	*Retention
	PassResult
	failure error // of the last of those that could not be archived
	// refusals is how many runs the archive has refused since it took one.
	refusals int
}

func (p *pass) archiveIsOut() bool { return p.refusals >= maxArchiveFailures }

// runs lets the expired runs of all projects leave.
func (p *pass) runs(ctx context.Context) error {
	ages, err := p.ages(ctx)
	if err != nil {
		return err
	}
	for _, age := range ages {
		if age.Keep == nil {
			continue
		}
		if err := p.project(ctx, age.Project, *age.Keep); err != nil {
			return err
		}
	}
	return nil
}

// project goes through the project's expired runs once, so that those left behind do not hold up the rest.
func (p *pass) project(ctx context.Context, project entities.Project, keep time.Duration) error {
	var after store.EndedRun
	for !p.archiveIsOut() {
		batch, err := store.ExpiredRuns(ctx, p.pool, project, keep, after, maxBatchRuns)
		if err != nil || len(batch) == 0 {
			return err
		}
		batch = limitRows(batch)
		after = batch[len(batch)-1].EndedRun
		ready, err := p.archived(ctx, project, batch)
		if err != nil {
			return err
		}
		if err := p.remove(ctx, project, ready); err != nil {
			return err
		}
	}
	return nil
}

// cutToRows is the beginning of the batch that fills a transaction with events and chunks.
func limitRows(batch []store.ExpiredRun) []store.ExpiredRun {
	rows := int64(0)
	for i, run := range batch {
		if rows += run.LastSeq + run.Chunks; rows >= maxBatchRows {
			return batch[:i+1]
		}
	}
	return batch
}

// leaving are runs that may be deleted unless there is more of them now than was archived; nil when nothing
// need be.
type removable map[entities.RunID]*RunSize

func (p *pass) archived(ctx context.Context, project entities.Project, batch []store.ExpiredRun) (removable, error) {
	ready := removable{}
	for _, run := range batch {
		if p.options.Archive == nil {
			ready[run.ID] = nil
			continue
		}
		if p.archiveIsOut() {
			break
		}
		extent, err := p.options.Archive(ctx, project, run.ID)
		if err == nil {
			p.refusals = 0
			ready[run.ID] = &extent
			continue
		}
		if err := p.unarchived(ctx, run.ID, err); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// unarchived takes down why a run could not be archived. That another has archived it, or removed it, is no
// failure. It fails itself when the database does.
func (p *pass) unarchived(ctx context.Context, id entities.RunID, why error) error {
	if errors.Is(why, entities.ErrConflict) {
		return nil
	}
	_, err := store.RunOfAny(ctx, p.pool, id)
	if errors.Is(err, entities.ErrRunNotFound) {
		return nil
	}
	if err != nil {
		return errors.Join(err, why)
	}
	p.Unarchived++
	p.failure = fmt.Errorf("archive run %s: %w", id, why)
	if !errors.Is(why, ErrUnreadable) {
		p.refusals++
	}
	return nil
}

// remove deletes runs in one transaction, with everything that belongs to them.
func (p *pass) remove(ctx context.Context, project entities.Project, ready removable) error {
	n := 0
	err := pg.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		// A server's statements are bounded, but a run with a million events takes as long as it takes.
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		runs, streams, err := lockRemovable(ctx, tx, project, ready)
		n = len(runs)
		if err != nil || n == 0 {
			return err
		}
		if err := p.options.DeleteRelated(ctx, tx, project, runs); err != nil {
			return err
		}
		var b pgx.Batch
		store.DeleteStreams(&b, streams)
		store.DeleteRuns(&b, runs)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	p.Runs += n
	return nil
}

// lockLeaving locks the runs that may go, and their streams.
func lockRemovable(
	ctx context.Context, tx pgx.Tx, project entities.Project, ready removable,
) (runs []entities.RunID, streams []int64, err error) {
	locked, err := store.LockEndedRuns(ctx, tx, slices.Collect(maps.Keys(ready)))
	if err != nil || len(locked) == 0 {
		return nil, nil, err
	}
	now := map[entities.RunID]*RunSize{}
	for _, run := range locked {
		now[run.ID] = &RunSize{LastSeq: run.LastSeq}
	}
	// Streams have a lock of their own: a chunk that comes after this begins a stream without a run.
	all, err := store.LockStreams(ctx, tx, project, slices.Collect(maps.Keys(now)))
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		now[s.RunID].add(s)
	}
	maps.DeleteFunc(now, func(id entities.RunID, extent *RunSize) bool {
		return ready[id] != nil && *ready[id] != *extent
	})
	for _, s := range all {
		if now[s.RunID] != nil {
			streams = append(streams, s.ID)
		}
	}
	return slices.Collect(maps.Keys(now)), streams, nil
}

// orphans removes streams of runs that are not there. Each stream is looked at once, when it is old enough:
// runs that leave later take theirs along. From the first that was locked on, the next pass looks again.
func (p *pass) orphans(ctx context.Context) error {
	at, locked := p.lookedAt, int64(0)
	for range maxOrphanBatches {
		done, err := store.DeleteOrphans(ctx, p.pool, at, orphanAge, orphanBatchSize, maxBatchRows)
		if err != nil {
			return err
		}
		at = done.Next
		p.Streams += done.Deleted
		if locked == 0 {
			locked = done.Locked
		}
		p.lookedAt = at
		if locked > 0 {
			p.lookedAt = locked - 1
		}
		if !done.More {
			return nil
		}
	}
	return nil
}
