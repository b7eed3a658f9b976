package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// A transaction deletes at most maxBatchRuns runs, and none after the run that brings its events and chunks to
	// maxBatchRows: a shorter transaction holds its locks for less time.
	maxBatchRuns = 200
	maxBatchRows = 20_000
	// A stream without a run is deleted at this age. Its run may still be created, but never that much later.
	orphanAge        = 7 * 24 * time.Hour
	orphanBatchSize  = 1000
	maxOrphanBatches = 100 // in one pass
	// A statement removes this many archived runs from lists, or parts of their files.
	forgetBatchSize = 1000
	// A key without a run is deleted at this age. Processes go by one that they have read for minutes.
	unusedKeyAge = time.Hour
	// An archive that has failed for this many runs in a row is considered down.
	maxArchiveFailures = 10
)

// RetentionOptions configures a [Retention].
type RetentionOptions struct {
	// Keep is the age at which ended runs are deleted, unless their project has its own; 0 keeps them forever.
	Keep time.Duration
	// Archive, if set, stores a run durably before it is deleted, and returns the size it had. It fails with
	// [ErrUnreadable] if the run is damaged, and with [entities.ErrConflict] if another process stored the run
	// meanwhile. Any other error counts as a failure of the archive.
	Archive func(context.Context, entities.Project, entities.RunID) (RunSize, error)
	// Listed is how long archived runs stay in lists of the archive; 0 means forever. Their files stay, unless they are in
	// the database.
	Listed time.Duration
	// Sweep deletes payloads outside of the database that no run has; nil if there are none. It returns how many.
	Sweep func(context.Context) (int, error)
	// DeleteRelated deletes the rows of other packages that belong to the runs, in the same transaction.
	DeleteRelated func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error
}

// Retention deletes expired runs with everything that belongs to them. Several processes may run it on one database.
type Retention struct {
	pool    *pgxpool.Pool
	options RetentionOptions
	// Earlier passes of this process have checked the streams up to this one.
	checkedStream int64
	// The keys up to that of this run as well, in this round of all of them.
	checkedKey entities.RunID
}

// NewRetention returns the retention of the database behind pool.
func NewRetention(pool *pgxpool.Pool, o RetentionOptions) *Retention {
	return &Retention{pool: pool, options: o}
}

// PassResult counts what a pass has removed.
type PassResult struct {
	Runs, Streams, Payloads int
	// Unarchived counts the expired runs that remain because they could not be archived.
	Unarchived int
}

// Pass removes expired runs, orphan streams and expired hooks. It deletes runs in batches, each in one
// transaction. It skips a run that is locked, grows meanwhile, or cannot be archived; the next pass tries again. Only
// an archive that is down stops the deletion of all runs. Then it measures what is stored by projects that have a limit
// of it, has payloads swept that no run has, and forgets runs that were archived long ago. The error has the last
// failure of the archive and those of the database.
func (r *Retention) Pass(ctx context.Context) (PassResult, error) {
	p := pass{Retention: r}
	// Each of them continues if another fails: an archive that is down must not keep orphans and hooks.
	err := errors.Join(p.removeRuns(ctx), p.removeOrphans(ctx), p.removeUnusedKeys(ctx),
		store.DeleteExpiredHooks(ctx, p.pool), p.measureStorage(ctx), p.sweep(ctx), p.forgetArchived(ctx))
	if p.archiveErr != nil {
		err = errors.Join(fmt.Errorf("%d runs could not be archived; the last: %w", p.Unarchived, p.archiveErr), err)
	}
	return p.PassResult, err
}

func (p *pass) sweep(ctx context.Context) (err error) {
	if p.options.Sweep != nil {
		p.Payloads, err = p.options.Sweep(ctx)
	}
	return err
}

// forgetArchived removes archived runs from lists.
func (p *pass) forgetArchived(ctx context.Context) error {
	for p.options.Listed > 0 {
		n, err := store.ForgetArchived(ctx, pg.NewPool(p.pool), p.options.Listed, forgetBatchSize)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// pass is one pass in progress.
type pass struct {
	*Retention
	PassResult
	archiveErr      error // of the last run that could not be archived
	archiveFailures int   // since the archive last stored a run
}

func (p *pass) isArchiveDown() bool { return p.archiveFailures >= maxArchiveFailures }

// removeRuns removes the expired runs of all projects.
func (p *pass) removeRuns(ctx context.Context) error {
	retentions, err := p.retentions(ctx)
	if err != nil {
		return err
	}
	for _, r := range retentions {
		if r.Keep == nil {
			continue
		}
		if err := p.removeRunsOf(ctx, r.Project, *r.Keep); err != nil {
			return err
		}
	}
	return nil
}

// retentions returns the retention of each project with ended runs. Without a default it returns only those that are
// set.
func (p *pass) retentions(ctx context.Context) ([]admin.Retention, error) {
	if p.options.Keep > 0 {
		return admin.RetentionsInUse(ctx, p.pool, p.options.Keep)
	}
	return admin.Retentions(ctx, p.pool)
}

// removeRunsOf goes through the expired runs of a project once. It pages by position, since runs that remain would
// otherwise fill every page.
func (p *pass) removeRunsOf(ctx context.Context, project entities.Project, keep time.Duration) error {
	var after store.EndedRun
	for !p.isArchiveDown() {
		batch, err := store.ExpiredRuns(ctx, p.pool, project, keep, after, maxBatchRuns)
		if err != nil || len(batch) == 0 {
			return err
		}
		batch = limitRows(batch)
		after = batch[len(batch)-1].EndedRun
		ready, err := p.archive(ctx, project, batch)
		if err != nil {
			return err
		}
		if err := p.remove(ctx, project, ready); err != nil {
			return err
		}
	}
	return nil
}

// limitRows cuts a batch off after the run that brings its events and chunks to maxBatchRows.
func limitRows(batch []store.ExpiredRun) []store.ExpiredRun {
	rows := int64(0)
	for i, run := range batch {
		if rows += run.LastSeq + run.Chunks; rows >= maxBatchRows {
			return batch[:i+1]
		}
	}
	return batch
}

// removable has the runs that may be deleted, each with the size that was archived: a run that has another size now has
// grown and must stay. The size is nil without an archive.
type removable map[entities.RunID]*RunSize

// archive stores a batch of runs and returns those that may be deleted.
func (p *pass) archive(ctx context.Context, project entities.Project, batch []store.ExpiredRun) (removable, error) {
	ready := removable{}
	for _, run := range batch {
		if p.options.Archive == nil {
			ready[run.ID] = nil
			continue
		}
		if p.isArchiveDown() {
			break
		}
		size, err := p.options.Archive(ctx, project, run.ID)
		if err == nil {
			p.archiveFailures = 0
			ready[run.ID] = &size
			continue
		}
		if err := p.recordFailure(ctx, run.ID, err); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// recordFailure records why a run could not be archived. It ignores a run that another process has archived or removed
// meanwhile. It returns an error only if the database fails.
func (p *pass) recordFailure(ctx context.Context, id entities.RunID, cause error) error {
	if errors.Is(cause, entities.ErrConflict) { // it is archived, and the other process deletes it
		return nil
	}
	_, err := store.RunOfAny(ctx, p.pool, id)
	if errors.Is(err, entities.ErrRunNotFound) {
		return nil
	}
	if err != nil {
		return errors.Join(err, cause)
	}
	p.Unarchived++
	p.archiveErr = fmt.Errorf("archive run %s: %w", id, cause)
	// A damaged run says nothing about the archive; many of them in a row must not stop the pass.
	if !errors.Is(cause, ErrUnreadable) {
		p.archiveFailures++
	}
	return nil
}

// remove deletes runs with everything that belongs to them, in one transaction.
func (p *pass) remove(ctx context.Context, project entities.Project, ready removable) error {
	n := 0
	err := pg.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		// The server bounds its statements, but no bound fits the deletion of a run with a million events.
		ctx, err := pg.WithStatementTimeout(ctx, tx, 0)
		if err != nil {
			return err
		}
		runs, streams, err := lockRemovable(ctx, tx, project, ready)
		n = len(runs) // each attempt sets it again; it counts only after the commit
		if err != nil || n == 0 {
			return err
		}
		if err := p.options.DeleteRelated(ctx, tx, project, runs); err != nil {
			return err
		}
		var b pgx.Batch
		admin.CountDeletedStarts(&b, project, runs)
		store.DeleteStreams(&b, streams)
		if p.options.Archive != nil {
			store.KeepArchived(&b, runs)
			store.KeepKeys(&b, runs)
		}
		store.DeleteRuns(&b, runs)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	p.Runs += n
	return nil
}

// lockRemovable locks the runs that may be deleted and their streams. It skips runs that are locked or have grown.
func lockRemovable(
	ctx context.Context, tx pgx.Tx, project entities.Project, ready removable,
) (runs []entities.RunID, streams []int64, err error) {
	locked, err := store.LockEndedRuns(ctx, tx, slices.Collect(maps.Keys(ready)))
	if err != nil || len(locked) == 0 {
		return nil, nil, err
	}
	sizes := map[entities.RunID]*RunSize{}
	for _, run := range locked {
		sizes[run.ID] = &RunSize{LastSeq: run.LastSeq}
	}
	// The run's lock does not stop writes to its streams. A chunk that waits for the stream's lock starts a new stream,
	// without a run, once this one is gone.
	all, err := store.LockStreams(ctx, tx, project, slices.Collect(maps.Keys(sizes)))
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		sizes[s.RunID].add(s)
	}
	maps.DeleteFunc(sizes, func(id entities.RunID, size *RunSize) bool {
		return ready[id] != nil && *ready[id] != *size
	})
	for _, s := range all {
		if sizes[s.RunID] != nil {
			streams = append(streams, s.ID)
		}
	}
	return slices.Collect(maps.Keys(sizes)), streams, nil
}

// LockUnchanged locks an ended run and its streams until the transaction ends. It fails with [entities.ErrConflict] if
// the run is gone or locked, has not ended, or has another size.
func LockUnchanged(
	ctx context.Context, tx pgx.Tx, project entities.Project, id entities.RunID, size RunSize,
) error {
	runs, _, err := lockRemovable(ctx, tx, project, removable{id: &size})
	if err == nil && len(runs) == 0 {
		err = entities.ErrConflict
	}
	return err
}

// removeUnusedKeys removes old keys whose run does not exist, and was not archived.
func (p *pass) removeUnusedKeys(ctx context.Context) (err error) {
	for range maxOrphanBatches {
		p.checkedKey, err = store.DeleteUnusedKeys(ctx, p.pool, p.checkedKey, unusedKeyAge, orphanBatchSize)
		if err != nil || p.checkedKey == "" {
			return err
		}
	}
	return nil
}

// removeOrphans removes old streams whose run does not exist. One check of each stream suffices, because a run that is
// deleted later takes its streams along. The next pass starts again at the first stream that was locked.
func (p *pass) removeOrphans(ctx context.Context) error {
	at, locked := p.checkedStream, int64(0)
	for range maxOrphanBatches {
		done, err := store.DeleteOrphans(ctx, p.pool, at, orphanAge, orphanBatchSize, maxBatchRows)
		if err != nil {
			return err
		}
		at = done.Next
		p.Streams += done.Deleted
		locked = cmp.Or(locked, done.Locked)
		p.checkedStream = at
		if locked > 0 {
			p.checkedStream = locked - 1
		}
		if !done.More {
			return nil
		}
	}
	return nil
}
