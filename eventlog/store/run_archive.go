package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// KeepArchived queues what keeps the rows of archived runs, and their attributes, for lists of the archive. It comes
// before [DeleteRuns] in the same transaction. A run that was imported and is archived again is listed from now on.
func KeepArchived(b *pgx.Batch, ids []entities.RunID) {
	b.Queue(`
		INSERT INTO archived_runs (`+runColumns+`) SELECT `+runColumns+` FROM runs WHERE id = ANY ($1)
		ON CONFLICT (id) DO UPDATE SET archived_at = now()`, ids)
	b.Queue(`
		INSERT INTO archived_attributes (run_id, key, value, project, created_at)
		SELECT run_id, key, value, project, created_at FROM run_attributes WHERE run_id = ANY ($1)
		ON CONFLICT DO NOTHING`, ids)
}

// ForgetArchived removes at most limit runs from lists of the archive that were archived longer than keep ago by the
// database's clock, and returns how many.
func ForgetArchived(ctx context.Context, q pg.Querier, keep time.Duration, limit int) (int, error) {
	n, err := pg.CollectValue[int](q.Query(ctx, `
		WITH gone AS (
			DELETE FROM archived_runs WHERE id = ANY (ARRAY(
				SELECT id FROM archived_runs WHERE archived_at < now() - $1::interval AND `+pg.Staying("project")+`
				ORDER BY archived_at LIMIT $2 FOR UPDATE SKIP LOCKED))
			RETURNING 1)
		SELECT count(*)::int FROM gone`, keep, limit))
	return n, pg.Wrap(err, "forget archived runs")
}

// ArchivedRun reads the row that an archived run had. It fails with [entities.ErrRunNotFound].
func ArchivedRun(ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID) (entities.Run, error) {
	rows, err := q.Query(ctx, `SELECT `+runColumns+` FROM archived_runs WHERE `+OfRun, id, project)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read archived run")
}

// ListArchived is [ListRuns] of archived runs. Indexes have their creation, key and attributes; by anything else it
// scans, so that a page may be short without being the last.
func ListArchived(
	ctx context.Context, q pg.Querier, project entities.Project, f RunFilter, p pg.Page,
) ([]entities.Run, string, error) {
	return listRuns(ctx, q, runSearch{RunFilter: f, Page: p, project: project, archived: true})
}
