package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Retention is how long a project keeps runs after their end.
type Retention struct {
	Project entities.Project
	// Keep is the time from a run's end to its deletion; nil to keep runs forever.
	Keep *time.Duration
}

// Retentions reads the settings of the projects that do not use the default, ordered by project.
func Retentions(ctx context.Context, q pg.Querier) ([]Retention, error) {
	return collectRetentions(q.Query(ctx, `SELECT project, keep FROM retention ORDER BY project`))
}

// RetentionsInUse reads the effective setting of each project that has ended runs: its own, or else byDefault.
func RetentionsInUse(ctx context.Context, q pg.Querier, byDefault time.Duration) ([]Retention, error) {
	// A skip scan from project to project: there are many more runs than projects.
	return collectRetentions(q.Query(ctx, `
		WITH RECURSIVE projects AS (
			(SELECT project FROM runs WHERE completed_at IS NOT NULL ORDER BY project LIMIT 1)
			UNION ALL
			SELECT (
				SELECT project FROM runs r WHERE completed_at IS NOT NULL AND r.project > p.project ORDER BY project LIMIT 1)
			FROM projects p WHERE p.project IS NOT NULL
		)
		SELECT p.project, CASE WHEN r.project IS NULL THEN $1::interval ELSE r.keep END AS keep
		FROM projects p LEFT JOIN retention r ON r.project = p.project
		WHERE p.project IS NOT NULL ORDER BY p.project`, byDefault))
}

func collectRetentions(rows pgx.Rows, err error) ([]Retention, error) {
	list, err := pg.CollectAll[Retention](rows, err)
	return list, pg.Wrap(err, "list retention")
}

// minKeep excludes ages that Postgres cannot represent, which is less than a microsecond, and those set by mistake.
const minKeep = time.Second

// PutRetention sets how long the runs of a project are kept. It fails with [entities.ErrInvalid].
func PutRetention(ctx context.Context, pool *pgxpool.Pool, r Retention) error {
	if err := entities.ValidateID("project", string(r.Project)); err != nil {
		return err
	}
	keep := "forever"
	if r.Keep != nil {
		if *r.Keep < minKeep {
			return entities.Invalid("runs cannot be kept for %s; the minimum is %s", *r.Keep, minKeep)
		}
		keep = r.Keep.String()
	}
	err := pg.InTxBatch(ctx, pool, func(b *pgx.Batch) {
		pg.QueueOne(b, "put retention", `
			INSERT INTO retention (project, keep) VALUES ($1, $2)
			ON CONFLICT (project) DO UPDATE SET keep = excluded.keep`, r.Project, r.Keep)
		InsertAction(ctx, b, r.Project, ActionRetentionPut, string(r.Project), map[string]any{"keep": keep})
	})
	return pg.Wrap(err, "change retention")
}

// RemoveRetention returns a project to the default retention.
func RemoveRetention(ctx context.Context, pool *pgxpool.Pool, project entities.Project) error {
	err := pg.InTxBatch(ctx, pool, func(b *pgx.Batch) {
		b.Queue(`DELETE FROM retention WHERE project = $1`, project)
		InsertAction(ctx, b, project, ActionRetentionRemove, string(project), nil)
	})
	return pg.Wrap(err, "change retention")
}
