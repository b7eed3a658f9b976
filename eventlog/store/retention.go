package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// EndedRun is a run that has ended and can be deleted.
type EndedRun struct {
	ID          entities.RunID
	LastSeq     int64
	CompletedAt time.Time
}

// ExpiredRun is a run whose retention is over.
type ExpiredRun struct {
	EndedRun
	// Chunks is the total number of chunks of its streams.
	Chunks int64
}

// ExpiredRuns reads at most limit runs of the project that ended longer than keep ago by the database's clock, in the
// order of their ends, after the given one. It leaves out runs with a hook that still holds its token, and those of a
// project that leaves.
func ExpiredRuns(
	ctx context.Context, q pg.Querier, project entities.Project, keep time.Duration, after EndedRun, limit int,
) ([]ExpiredRun, error) {
	runs, err := pg.CollectAll[ExpiredRun](q.Query(ctx, expiredRuns, project, keep, after.CompletedAt, after.ID, limit))
	return runs, pg.Wrap(err, "look for expired runs")
}

// expiredRuns counts chunks after the limit, so that it counts those of the returned runs only.
const expiredRuns = `
	SELECT id, last_seq, completed_at, chunks FROM (
		SELECT id, last_seq, completed_at FROM runs r
		WHERE project = $1 AND completed_at IS NOT NULL AND completed_at < now() - $2::interval
			AND (completed_at, id) > ($3, $4) AND NOT EXISTS (SELECT FROM departures d WHERE d.project = $1)
			AND NOT EXISTS (
				SELECT FROM hooks h WHERE h.run_id = r.id AND (h.expires_at IS NULL OR h.expires_at > now()))
		ORDER BY completed_at, id LIMIT $5
	) expired CROSS JOIN LATERAL (
		SELECT coalesce(sum(s.chunks), 0)::bigint AS chunks FROM streams s WHERE s.project = $1 AND s.run_id = expired.id
	) counted
	ORDER BY completed_at, id`

// LockEndedRuns locks and returns the runs among ids that exist, have ended and are not locked by another transaction.
// It never waits, so that retention does not get in the way of appends; a locked run is left to the next round. The
// lock is FOR UPDATE, because a deletion also has to exclude insertions that refer to the run.
func LockEndedRuns(ctx context.Context, q pg.Querier, ids []entities.RunID) ([]EndedRun, error) {
	runs, err := pg.CollectAll[EndedRun](q.Query(ctx, `
		SELECT id, last_seq, completed_at FROM runs WHERE id = ANY ($1) AND completed_at IS NOT NULL
		FOR UPDATE SKIP LOCKED`, ids))
	return runs, pg.Wrap(err, "lock expired runs")
}

// DeleteRuns queues the deletion of runs that the caller has locked, with their events and entities, and with their
// keys unless these are kept.
func DeleteRuns(b *pgx.Batch, ids []entities.RunID) {
	b.Queue(`DELETE FROM collected WHERE run_id = ANY ($1)`, ids)
	b.Queue(`DELETE FROM step_results WHERE run_id = ANY ($1)`, ids)
	b.Queue(`DELETE FROM run_keys WHERE run_id = ANY ($1) AND archived_at IS NULL`, ids)
	b.Queue(`DELETE FROM runs WHERE id = ANY ($1)`, ids)
}

// DeleteCopies queues the deletion of what repeats payloads of an ended run outside of its log: streams, which the
// caller has locked, the values of its store, results that apps have kept, inputs of starts that it has collected, and
// the file of a run that was archived in the database and imported.
func DeleteCopies(b *pgx.Batch, id entities.RunID, streams []Stream) {
	ids := make([]int64, len(streams))
	for i, s := range streams {
		ids[i] = s.ID
	}
	DeleteStreams(b, ids)
	b.Queue(`DELETE FROM run_store WHERE run_id = $1`, id)
	b.Queue(`DELETE FROM step_results WHERE run_id = $1`, id)
	b.Queue(`UPDATE collected SET input = '' WHERE run_id = $1`, id)
	b.Queue(`DELETE FROM archive_files WHERE run_id = $1`, id)
}

// KeepKeys queues that the keys of runs which are in an archive outlast them: the runs can be imported.
func KeepKeys(b *pgx.Batch, ids []entities.RunID) {
	b.Queue(`UPDATE run_keys SET archived_at = coalesce(archived_at, now()) WHERE run_id = ANY ($1)`, ids)
}

// DeleteUnusedKeys examines at most limit keys of runs after the given one, and deletes those whose run was never
// created: older than age, and not archived. One that becomes new meanwhile stays. It returns the last one examined;
// empty after the last of all.
func DeleteUnusedKeys(
	ctx context.Context, q pg.Querier, after entities.RunID, age time.Duration, limit int,
) (entities.RunID, error) {
	last, err := pg.CollectValue[entities.RunID](q.Query(ctx, `
		WITH page AS MATERIALIZED (
			SELECT run_id FROM run_keys WHERE run_id > $1 ORDER BY run_id LIMIT $3
		), deleted AS (
			DELETE FROM run_keys
			WHERE `+pg.Staying("project")+` AND created_at < now() - $2::interval AND archived_at IS NULL
				AND run_id IN (SELECT run_id FROM page WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = page.run_id))
		)
		SELECT CASE WHEN count(*) = $3 THEN coalesce(max(run_id), '') ELSE '' END FROM page`, after, age, limit))
	return last, pg.Wrap(err, "delete unused keys of runs")
}

// LockStreams reads the streams of the project's runs and locks them against writes.
func LockStreams(
	ctx context.Context, q pg.Querier, project entities.Project, runIDs []entities.RunID,
) ([]Stream, error) {
	streams, err := pg.CollectAll[Stream](q.Query(ctx,
		`SELECT `+streamColumns+` FROM streams WHERE project = $1 AND run_id = ANY ($2) ORDER BY id FOR UPDATE`,
		project, runIDs))
	return streams, pg.Wrap(err, "lock streams")
}

// DeleteStreams queues the deletion of streams with their chunks, by the foreign key of the chunks.
func DeleteStreams(b *pgx.Batch, ids []int64) {
	b.Queue(`DELETE FROM streams WHERE id = ANY ($1)`, ids)
}

// Orphans is the result of [DeleteOrphans].
type Orphans struct {
	// Next is the last stream examined. More says that further streams can be examined now.
	Next int64
	More bool
	// Deleted is the number of streams deleted.
	Deleted int
	// Locked is the first orphan that another transaction had locked, and which therefore was not deleted; 0 for none.
	Locked int64
}

// DeleteOrphans examines at most limit streams after the given one and deletes the orphans: those created longer than
// age ago whose project has no run of their run ID. Streams may be written before their run is created, hence the age.
// It skips locked streams, and deletes none after the one that brings the number of deleted chunks to maxChunks.
func DeleteOrphans(
	ctx context.Context, q pg.Querier, after int64, age time.Duration, limit, maxChunks int,
) (Orphans, error) {
	rows, err := q.Query(ctx, deleteOrphans, after, age, limit, maxChunks)
	done, err := pg.CollectOne[Orphans](rows, err, pgx.ErrNoRows)
	return done, pg.Wrap(err, "delete orphan streams")
}

// deleteOrphans stops at the first stream that is too young. IDs follow creation times almost exactly, so little that
// is old comes after it, and that is examined later.
var deleteOrphans = `
	WITH page AS MATERIALIZED (
		SELECT id, project, run_id, chunks, created_at < now() - $2::interval AS old FROM streams
		WHERE id > $1 ORDER BY id LIMIT $3
	), old AS MATERIALIZED (
		SELECT id, project, run_id, chunks FROM page
		WHERE id < coalesce((SELECT min(id) FROM page WHERE NOT old), id + 1)
	), orphan AS MATERIALIZED (
		SELECT id, sum(chunks) OVER (ORDER BY id) - chunks AS before FROM old
		WHERE ` + pg.Staying("project") + ` AND NOT EXISTS (
			SELECT FROM runs r WHERE r.id = old.run_id AND r.project IS NOT DISTINCT FROM old.project)
	), stop AS MATERIALIZED (
		SELECT min(id) AS id FROM orphan WHERE before >= $4
	), leaving AS MATERIALIZED (
		SELECT id FROM orphan WHERE before < $4
	), locked AS MATERIALIZED (
		SELECT s.id FROM streams s JOIN leaving USING (id) FOR UPDATE OF s SKIP LOCKED
	), gone AS (
		DELETE FROM streams WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING 1
	)
	SELECT coalesce(stop.id - 1, (SELECT max(id) FROM old), $1) AS next,
		stop.id IS NOT NULL OR (SELECT count(*) FROM old) = $3 AS more,
		(SELECT count(*)::int FROM gone) AS deleted,
		coalesce((SELECT min(id) FROM leaving WHERE id NOT IN (SELECT id FROM locked)), 0) AS locked
	FROM stop`
