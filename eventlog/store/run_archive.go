package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// KeepArchived queues what keeps the rows of archived runs, and their attributes, for lists of the archive. It comes
// before [DeleteRuns] in the same transaction. A run that was imported and is archived again is listed from now on. One
// that was listed a moment ago, with its file, is not written again.
func KeepArchived(b *pgx.Batch, ids []entities.RunID) {
	b.Queue(`
		INSERT INTO archived_runs (`+runColumns+`) SELECT `+runColumns+` FROM runs WHERE id = ANY ($1)
		ON CONFLICT (id) DO UPDATE SET (`+runColumns+`, archived_at) = (
			SELECT `+runColumns+`, now() FROM runs WHERE id = excluded.id)
		WHERE archived_runs.archived_at < now() - interval '1 minute' OR archived_runs.last_seq <> excluded.last_seq`, ids)
	b.Queue(`
		INSERT INTO archived_attributes (run_id, key, value, project, created_at)
		SELECT run_id, key, value, project, created_at FROM run_attributes WHERE run_id = ANY ($1)
		ON CONFLICT DO NOTHING`, ids)
}

// ForgetArchived removes runs from lists of the archive that were archived longer than keep ago by the database's
// clock: at most limit, with their files if these are in the database. Of files of several parts it removes at most
// limit parts, and the runs when it is called again. It returns how many runs and parts it has removed.
func ForgetArchived(ctx context.Context, q pg.Querier, keep time.Duration, limit int) (int, error) {
	n, err := pg.CollectValue[int](q.Query(ctx, `
		WITH old AS MATERIALIZED (
			SELECT id FROM archived_runs WHERE archived_at < now() - $1::interval AND `+pg.Staying("project")+`
			ORDER BY archived_at LIMIT $2 FOR UPDATE SKIP LOCKED
		), file AS MATERIALIZED (
			SELECT run_id, count(*) AS parts FROM archive_files WHERE run_id = ANY (ARRAY(SELECT id FROM old)) GROUP BY run_id
		), cut AS (
			DELETE FROM archive_files f USING (
				SELECT run_id, file, part FROM file JOIN archive_files USING (run_id)
				WHERE parts > 1 ORDER BY run_id, file, part LIMIT $2
			) c WHERE f.run_id = c.run_id AND f.file = c.file AND f.part = c.part RETURNING 1
		), gone AS (
			DELETE FROM archived_runs WHERE id IN (
				SELECT id FROM old EXCEPT SELECT run_id FROM file WHERE parts > 1) RETURNING 1
		)
		SELECT (SELECT count(*)::int FROM gone) + (SELECT count(*)::int FROM cut)`, keep, limit))
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
