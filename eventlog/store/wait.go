package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const waitColumns = `run_id, id, project, status, spec_version, resume_at, created_at, updated_at, completed_at`

// LoadWaits queues a read of the run's waits that have one of the IDs.
func LoadWaits(b *pgx.Batch, runID entities.RunID, ids []entities.WaitID, into map[entities.WaitID]entities.Wait) {
	pg.LoadOf(b, func(w entities.Wait) { into[w.ID] = w },
		`SELECT `+waitColumns+` FROM waits WHERE run_id = $1 AND id`, runID, ids)
}

// dueWaits selects the waits of run $1 that are due by the database's clock and not yet completed.
const dueWaits = ` FROM waits WHERE run_id = $1 AND status = 'waiting' AND resume_at <= now()`

// LoadDueWaits queues a read of the run's waits that are due by the database's clock and not yet completed; at most
// [pg.MaxPage].
func LoadDueWaits(b *pgx.Batch, runID entities.RunID, into map[entities.WaitID]entities.Wait) {
	pg.LoadEach(b, func(w entities.Wait) { into[w.ID] = w }, `
		SELECT `+waitColumns+dueWaits+` ORDER BY resume_at, id LIMIT $2`, runID, pg.MaxPage)
}

// RequireNoDueWait requires that [LoadDueWaits] finds nothing but waits that the statement ends.
func RequireNoDueWait(c *pg.Conditional, runID entities.RunID, ended []string) {
	c.Require(`NOT EXISTS (SELECT`+dueWaits+` AND id <> ALL ($2::text[]))`, runID, ended)
}

// RequireNoWait requires that the run has no wait that is not completed.
func RequireNoWait(c *pg.Conditional, runID entities.RunID) {
	c.Require(`NOT EXISTS (SELECT FROM waits WHERE run_id = $1 AND status = 'waiting')`, runID)
}

// RequireMoving requires that the run has a step, a hook or a wait that is open, besides steps that the statement ends.
func RequireMoving(c *pg.Conditional, runID entities.RunID, ended []string) {
	c.Require(`(EXISTS (SELECT FROM steps WHERE run_id = $1 AND completed_at IS NULL AND id <> ALL ($2::text[]))
		OR EXISTS (SELECT FROM hooks WHERE run_id = $1)
		OR EXISTS (SELECT FROM waits WHERE run_id = $1 AND status = 'waiting'))`, runID, ended)
}

// InsertWait adds the insertion of a wait.
func InsertWait(w pg.Writer, wait *entities.Wait) {
	w.Add(pg.Write{What: "insert wait", SQL: `
		INSERT INTO waits (` + waitColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::integer, $6::timestamptz, $7::timestamptz, $8::timestamptz,
			$9::timestamptz
		WHERE true`, If: `NOT EXISTS (SELECT FROM waits WHERE run_id = $1 AND id = $2)`, Args: []any{
		wait.RunID, wait.ID, wait.Project, wait.Status, wait.SpecVersion, wait.ResumeAt, wait.CreatedAt, wait.UpdatedAt,
		wait.CompletedAt,
	}})
}

// UpdateWait adds the update of all columns of a wait that events can change.
func UpdateWait(w pg.Writer, wait *entities.Wait) {
	w.Add(pg.Write{What: "update wait", SQL: `
		UPDATE waits SET status = $3, updated_at = $4, completed_at = $5 WHERE run_id = $1 AND id = $2`,
		If:   `EXISTS (SELECT FROM waits WHERE run_id = $1 AND id = $2)`,
		Args: []any{wait.RunID, wait.ID, wait.Status, wait.UpdatedAt, wait.CompletedAt},
	})
}

// DeleteWaits adds the deletion of all waits of a run.
func DeleteWaits(w pg.Writer, runID entities.RunID) {
	w.Add(pg.Write{SQL: `DELETE FROM waits WHERE run_id = $1`, Args: []any{runID}})
}
