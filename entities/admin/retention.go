package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
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
	if err != nil {
		return nil, fmt.Errorf("list retention: %w", err)
	}
	return list, nil
}

// PutRetention queues the write of a project's setting.
func PutRetention(b *pgx.Batch, r Retention) {
	pg.QueueOne(b, "put retention", `
		INSERT INTO retention (project, keep) VALUES ($1, $2)
		ON CONFLICT (project) DO UPDATE SET keep = excluded.keep`, r.Project, r.Keep)
}

// DeleteRetention queues the deletion of a project's setting, which returns it to the default.
func DeleteRetention(b *pgx.Batch, project entities.Project) {
	b.Queue(`DELETE FROM retention WHERE project = $1`, project)
}
