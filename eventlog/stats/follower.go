package stats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/pg"
)

// Follower counts the events of all projects. Each call of [Follower.Follow] continues where the last one of any
// process ended.
type Follower struct {
	pool *pgxpool.Pool
	// batch is the most events that one transaction counts.
	batch int
}

// maxBatches limits what one call counts in a project, so that a long log does not hold up what follows the call.
const maxBatches = 10

// defaultBatch keeps transactions short, because other readers of a project's events wait for open ones.
const defaultBatch = 10_000

// NewFollower returns a follower of the pool's database.
func NewFollower(pool *pgxpool.Pool) *Follower { return &Follower{pool: pool, batch: defaultBatch} }

// Follow counts events that are not counted yet, up to 100,000 of each project. If there are none, it is one statement.
// A project that fails does not keep the others from being counted.
func (f *Follower) Follow(ctx context.Context) error {
	rows, err := pg.NewPool(f.pool).Query(ctx, projectsWithNewEvents, countedTypes)
	if err != nil {
		return fmt.Errorf("find projects with new events: %w", err)
	}
	var (
		failed   error
		project  entities.Project
		projects []entities.Project
	)
	_, err = pgx.ForEachRow(rows, []any{&project}, func() error {
		projects = append(projects, project)
		return nil
	})
	if err != nil {
		return fmt.Errorf("find projects with new events: %w", err)
	}
	for _, project := range projects {
		err := rescue.Do(ctx, "stats", func() error { return f.followProject(ctx, project) })
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("count the events of project %s: %w", project, err))
		}
	}
	return failed
}

// followProject counts the project's events, batch after batch.
func (f *Follower) followProject(ctx context.Context, project entities.Project) error {
	for range maxBatches {
		counted, err := f.countBatch(ctx, project)
		if err != nil || counted < f.batch {
			return err
		}
	}
	return nil
}

// countBatch counts the next events of the project in one transaction, and returns their number. It returns 0 if
// another process is counting.
func (f *Follower) countBatch(ctx context.Context, project entities.Project) (counted int, err error) {
	err = pg.InTx(ctx, f.pool, func(tx pgx.Tx) error {
		counted = 0
		if _, err := tx.Exec(ctx, addProgress, project); err != nil {
			return err
		}
		claim, err := tx.Exec(ctx, `SELECT FROM stats_progress WHERE project = $1 FOR UPDATE SKIP LOCKED`, project)
		if err != nil || claim.RowsAffected() == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, prune, project); err != nil {
			return fmt.Errorf("delete old counts: %w", err)
		}
		return tx.QueryRow(ctx, countNext, project, f.batch, countedTypes, maxNames, others).Scan(&counted)
	})
	return counted, err
}

// restart forgets what was counted in a project, so that [Follower.Follow] counts its whole log again.
func (f *Follower) restart(ctx context.Context, project entities.Project) error {
	err := pg.InTx(ctx, f.pool, func(tx pgx.Tx) error {
		// The deleted row stays locked until the end, so that no process counts meanwhile.
		var b pgx.Batch
		b.Queue(`DELETE FROM stats_progress WHERE project = $1`, project)
		b.Queue(`DELETE FROM stats WHERE project = $1`, project)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("restart the statistics of project %s: %w", project, err)
	}
	return nil
}

// rebuildPause is how long [Follower.Rebuild] waits for transactions that keep events from being counted.
const rebuildPause = 100 * time.Millisecond

// Rebuild forgets what was counted in the projects and counts their logs again, until all events are counted that were
// written before the call. The counts of runs that retention has deleted are lost. Other processes may count at the
// same time. Meanwhile Rebuild reports the time up to which all these projects are counted.
func (f *Follower) Rebuild(ctx context.Context, projects []entities.Project, report func(completeTo time.Time)) error {
	var next string
	sql := `SELECT (` + pg.FeedPosition(`pg_snapshot_xmax(pg_current_snapshot())`) + `)::text`
	if err := f.pool.QueryRow(ctx, sql).Scan(&next); err != nil {
		return fmt.Errorf("read the next transaction: %w", err)
	}
	for _, project := range projects {
		if err := f.restart(ctx, project); err != nil {
			return err
		}
	}
	for {
		for _, project := range projects {
			if err := f.followProject(ctx, project); err != nil {
				return fmt.Errorf("count the events of project %s: %w", project, err)
			}
		}
		behind, first := false, time.Time{}
		for _, project := range projects {
			p, err := readProgress(ctx, f.pool, project, next)
			if err != nil {
				return err
			}
			if p.Behind && (!behind || p.CompleteTo.Before(first)) {
				behind, first = true, p.CompleteTo
			}
		}
		if !behind {
			return nil
		}
		report(first)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rebuildPause):
		}
	}
}
