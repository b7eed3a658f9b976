package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

const runColumns = `id, project, deployment_id, workflow_name, status, spec_version, attributes,
	driver, unique_key, idempotency_key, parent_id, parent_step, detached, deadline, error_code, last_seq, end_seq,
	created_at, updated_at, started_at, completed_at`

// OfRun is the condition for run $1 of project $2. The project is asked for in a way for which no index is of use: of a
// table that was small when the statement was planned, one that begins with the project is as good as that of IDs, and
// has all runs of the project to go through when there are many.
const OfRun = `id = $1 AND project IS NOT DISTINCT FROM $2`

// LockRun queues a read of the run that locks it until the transaction ends; into stays nil when the
// project has no such run. The run row is the one lock of the write path.
func LockRun(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun+` FOR NO KEY UPDATE`, id, project)
}

// LoadRun queues a read of the run; into stays nil when the project has no such run.
func LoadRun(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun, id, project)
}

// RunByID reads a run. It fails with [ErrRunNotFound].
func RunByID(ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID) (entities.Run, error) {
	rows, err := q.Query(ctx, `SELECT `+runColumns+` FROM runs WHERE `+OfRun, id, project)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	if err != nil {
		return entities.Run{}, fmt.Errorf("read run %s: %w", id, err)
	}
	return run, nil
}

// IsAsLong reports whether the run's log is still as long as it was, and so the run as it was.
func IsUnchanged(ctx context.Context, q pg.Querier, was *entities.Run) (bool, error) {
	rows, err := q.Query(ctx, `SELECT EXISTS (SELECT FROM runs WHERE id = $1 AND last_seq = $2)`, was.ID, was.LastSeq)
	if err != nil {
		return false, fmt.Errorf("look at run %s: %w", was.ID, err)
	}
	same, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return false, fmt.Errorf("look at run %s: %w", was.ID, err)
	}
	return same, nil
}

// RunByIdempotencyKey reads the run that was started by the key. It fails with [ErrRunNotFound].
func RunByIdempotencyKey(ctx context.Context, q pg.Querier, project entities.Project, key string) (entities.Run, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs WHERE project = $1 AND idempotency_key = $2 AND idempotency_key <> ''`,
		project, key)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	if err != nil {
		return entities.Run{}, fmt.Errorf("read run by idempotency key: %w", err)
	}
	return run, nil
}

// RunByUniqueKey reads which live run of the workflow has the key. It fails with [ErrRunNotFound].
func RunByUniqueKey(ctx context.Context, q pg.Querier, project entities.Project, workflow, key string) (entities.RunID, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs
		WHERE project = $1 AND workflow_name = $2 AND unique_key = $3 AND unique_key <> '' AND completed_at IS NULL`,
		project, workflow, key)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	if err != nil {
		return "", fmt.Errorf("read run by key: %w", err)
	}
	return run.ID, nil
}

// HoldRun queues a read of the run that keeps it as it is until the transaction ends; into stays nil when the project
// has no such run.
func LockRunShared(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun+` FOR SHARE`, id, project)
}

// openChildren are the runs that are to end with the one that started them, $1, and have not ended.
const openChildren = ` FROM runs WHERE parent_id = $1 AND parent_id <> '' AND completed_at IS NULL AND NOT detached`

// LoadOpenChildren queues the question whether there are runs that are to end with the one that started them, and have
// not ended.
func LoadOpenChildren(b *pgx.Batch, parent entities.RunID, into *bool) {
	b.Queue(`SELECT EXISTS (SELECT`+openChildren+`)`, parent).QueryRow(func(row pgx.Row) error { return row.Scan(into) })
}

// RequireNoOpenChild makes a chain depend on that [LoadOpenChildren] would find none. Who starts a child holds its
// parent.
func RequireNoOpenChild(c *pg.Conditional, parent entities.RunID) {
	c.RequireLocked(`NOT EXISTS (SELECT`+openChildren+`)`, parent)
}

// OpenChildren reads which runs, at most limit, are to end with the one that started them, and have not ended.
func OpenChildren(ctx context.Context, q pg.Querier, parent entities.RunID, limit int) ([]entities.RunID, error) {
	rows, err := q.Query(ctx, `SELECT id`+openChildren+` ORDER BY id LIMIT $2`, parent, limit)
	if err != nil {
		return nil, fmt.Errorf("read children of %s: %w", parent, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[entities.RunID])
	if err != nil {
		return nil, fmt.Errorf("read children of %s: %w", parent, err)
	}
	return ids, nil
}

// InsertRun adds the insertion of a run. On the ID of another one it fails on the constraint runs_pkey.
func InsertRun(w pg.Writer, r *entities.Run) { w.Add(insertRun(r)) }

func insertRun(r *entities.Run) pg.Write {
	return pg.Write{What: "insert run", SQL: `
		INSERT INTO runs (` + runColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::jsonb,
			$8::text, $9::text, $10::text, $11::text, $12::text, $13::boolean, $14::timestamptz,
			$15::text, $16::bigint, $17::bigint, $18::timestamptz, $19::timestamptz, $20::timestamptz, $21::timestamptz
		WHERE true`, Args: []any{
		r.ID, r.Project, r.DeploymentID, r.WorkflowName, r.Status, r.SpecVersion, r.Attributes,
		r.Driver, r.UniqueKey, r.IdempotencyKey, r.ParentID, r.ParentStep, r.Detached, r.Deadline,
		r.ErrorCode, r.LastSeq, r.EndSeq, r.CreatedAt, r.UpdatedAt, r.StartedAt, r.CompletedAt,
	}}
}

// UpdateRun adds the write of everything about a run that events can change.
func UpdateRun(w pg.Writer, r *entities.Run) { w.Add(updateRun(r)) }

func updateRun(r *entities.Run) pg.Write {
	return pg.Write{What: "update run", SQL: `
		UPDATE runs SET status = $2::text, attributes = $3, error_code = $4, last_seq = $5, end_seq = $6,
			updated_at = $7, started_at = $8, completed_at = $9
		WHERE id = $1`, Args: []any{
		r.ID, r.Status, r.Attributes, r.ErrorCode, r.LastSeq, r.EndSeq, r.UpdatedAt, r.StartedAt, r.CompletedAt,
	}}
}

// WriteRun makes the conditional statement write the run that is like before as one that is like after: it applies only
// if the run's log is as long as before, and if nobody holds a lock on the run. Before is nil when there is to be no run
// of this ID.
func WriteRun(c *pg.Conditional, before, after *entities.Run) {
	if before == nil {
		w := insertRun(after)
		w.Rest = ` ON CONFLICT DO NOTHING`
		c.About(w)
		return
	}
	w := updateRun(after)
	w.SQL += ` AND id = (SELECT id FROM runs WHERE id = $1 AND last_seq = ` +
		(*pg.Args)(&w.Args).Add(before.LastSeq) + ` FOR NO KEY UPDATE SKIP LOCKED)`
	c.About(w)
}
