package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const runColumns = `id, project, deployment_id, workflow_name, status, spec_version, attributes,
	driver, unique_key, idempotency_key, parent_id, parent_step, detached, deadline, forced_at, error_code,
	last_seq, end_seq, created_at, updated_at, started_at, completed_at, store_seq, await, limits, step_limits,
	seq_in_band, root_id, depth, continued_from, continued_as, fork_of, fork_seq`

// OfRun is the condition for run $1 of project $2. IS NOT DISTINCT FROM, which no index supports, keeps Postgres from
// using an index that begins with the project. In a plan made while the table was small, such an index costs as little
// as the primary key, and later the plan would read all runs of the project.
const OfRun = `id = $1 AND project IS NOT DISTINCT FROM $2`

// LockRun queues a read of the run that locks it until the transaction ends. The run's row is the one lock of the write
// path. If the project has no such run, into stays nil.
//
// The lock is FOR NO KEY UPDATE, which no foreign key check has to wait for: an insertion into a table that refers to
// runs locks the run FOR KEY SHARE.
func LockRun(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun+` FOR NO KEY UPDATE`, id, project)
}

// LockRunShared queues a read of the run that locks it against changes, but not against other shared locks, until the
// transaction ends. If the project has no such run, into stays nil.
func LockRunShared(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun+` FOR SHARE`, id, project)
}

// LoadRun queues a read of the run. If the project has no such run, into stays nil.
func LoadRun(b *pgx.Batch, project entities.Project, id entities.RunID, into **entities.Run) {
	pg.LoadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE `+OfRun, id, project)
}

// RunByID reads a run. It fails with [entities.ErrRunNotFound].
func RunByID(ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID) (entities.Run, error) {
	rows, err := q.Query(ctx, `SELECT `+runColumns+` FROM runs WHERE `+OfRun, id, project)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read run %s", id)
}

// RunsByID reads the runs that the project has of the given ones, in no order.
func RunsByID(
	ctx context.Context, q pg.Querier, project entities.Project, ids []entities.RunID,
) ([]entities.Run, error) {
	runs, err := pg.CollectAll[entities.Run](q.Query(ctx,
		`SELECT `+runColumns+` FROM runs WHERE id = ANY ($1) AND project IS NOT DISTINCT FROM $2`, ids, project))
	return runs, pg.Wrap(err, "read runs")
}

// IsUnchanged reports whether the run is still as it was read: its log is as long as it was.
func IsUnchanged(ctx context.Context, q pg.Querier, was *entities.Run) (bool, error) {
	same, err := pg.CollectValue[bool](q.Query(ctx,
		`SELECT EXISTS (SELECT FROM runs WHERE id = $1 AND last_seq = $2)`, was.ID, was.LastSeq))
	return same, pg.Wrap(err, "compare run %s", was.ID)
}

// RunByIdempotencyKey reads the run that was started with the key. It fails with [entities.ErrRunNotFound].
func RunByIdempotencyKey(
	ctx context.Context, q pg.Querier, project entities.Project, key string,
) (entities.Run, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs WHERE project = $1 AND idempotency_key = $2 AND idempotency_key <> ''`,
		project, key)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read run by idempotency key")
}

// UsedIdempotencyKeys returns those of the keys with which runs were started.
func UsedIdempotencyKeys(
	ctx context.Context, q pg.Querier, project entities.Project, keys []string,
) (map[string]bool, error) {
	found, err := pg.CollectColumn[string](q.Query(ctx, `
		SELECT idempotency_key FROM runs
		WHERE project = $1 AND idempotency_key <> '' AND idempotency_key = ANY ($2)`, project, keys))
	used := make(map[string]bool, len(found))
	for _, key := range found {
		used[key] = true
	}
	return used, pg.Wrap(err, "read idempotency keys")
}

// UniqueKey is a key of which one live run of a workflow has each.
type UniqueKey struct{ Workflow, Key string }

// LoadHolder queues a read of the live run that has the key, if there is one.
func LoadHolder(b *pgx.Batch, project entities.Project, k UniqueKey, into map[UniqueKey]entities.RunID) {
	type holder struct{ ID entities.RunID }
	pg.LoadEach(b, func(h holder) { into[k] = h.ID }, `
		SELECT id FROM runs
		WHERE project = $1 AND workflow_name = $2 AND unique_key = $3 AND unique_key <> '' AND completed_at IS NULL`,
		project, k.Workflow, k.Key)
}

// RunByUniqueKey returns the ID of the workflow's live run that has the key. It fails with [entities.ErrRunNotFound].
func RunByUniqueKey(
	ctx context.Context, q pg.Querier, project entities.Project, workflow, key string,
) (entities.RunID, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs
		WHERE project = $1 AND workflow_name = $2 AND unique_key = $3 AND unique_key <> '' AND completed_at IS NULL`,
		project, workflow, key)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run.ID, pg.Wrap(err, "read run by key")
}

// RunJoined returns the run that a request with an idempotency key has joined: one of the last ten with the unique key,
// whose log has a payload with the resume ID from that request. It fails with [entities.ErrRunNotFound].
func RunJoined(
	ctx context.Context, q pg.Querier, project entities.Project, workflow, key, resumeID, idempotencyKey string,
) (entities.Run, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM (
			SELECT * FROM runs WHERE project = $1 AND unique_key = $2 AND unique_key <> ''
			ORDER BY created_at DESC, id DESC LIMIT 10) AS r
		WHERE workflow_name = $3 AND (
			SELECT true FROM events e WHERE e.run_id = r.id AND e.type = 'hook_received'
				AND (e.data ->> 'resumeId') COLLATE "C" = $4 AND e.data ->> 'resumeId' IS NOT NULL
				AND e.data ->> 'idempotencyKey' = $5)
		LIMIT 1`, project, key, workflow, resumeID, idempotencyKey)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read joined run")
}

// chain selects the run $1 of the project $2, and those that go on with its work, up to 10,000 of them. The n-th one
// goes on with that of the one before.
const chain = `
		WITH RECURSIVE chain AS (
			SELECT id, continued_as, completed_at, 0 AS n FROM runs WHERE ` + OfRun + `
			UNION ALL
			SELECT r.id, r.continued_as, r.completed_at, n + 1 FROM chain c JOIN runs r ON r.id = c.continued_as
			WHERE c.continued_as <> '' AND n < 10000
		)`

// InChain returns the run that goes on with the work of another one, which may be that itself: the last one of those
// that continue each other, up to 10,000 of them. With the resume ID of a payload, it is the one that has
// received it, if one has. It fails with [entities.ErrRunNotFound].
func InChain(
	ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID, resumeID string,
) (entities.RunID, error) {
	last, err := pg.CollectValue[*entities.RunID](q.Query(ctx, chain+`
		SELECT (SELECT id FROM chain ORDER BY EXISTS (
			SELECT FROM events e WHERE $3 <> '' AND e.run_id = chain.id AND e.type = 'hook_received'
				AND (e.data ->> 'resumeId') COLLATE "C" = $3 AND e.data ->> 'resumeId' IS NOT NULL) DESC, n DESC LIMIT 1)`,
		id, project, resumeID))
	if err == nil && last == nil {
		return "", entities.ErrRunNotFound
	}
	if err != nil {
		return "", pg.Wrap(err, "follow run %s", id)
	}
	return *last, nil
}

// Reply is what has become of a message to a run.
type Reply struct {
	// RunID has the run's answer, or that of a run that goes on with its work, at the position Seq. Without an answer,
	// Seq is 0, and RunID the last of the runs; Ended says whether it has ended.
	RunID entities.RunID
	Seq   int64
	Ended bool
}

// ReplyTo reads what has become of a message, given the ID of the step that holds the answer. It fails with
// [entities.ErrRunNotFound].
func ReplyTo(
	ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID, step entities.StepID,
) (Reply, error) {
	rows, err := q.Query(ctx, chain+`
		SELECT id AS run_id, coalesce(e.seq, 0) AS seq, completed_at IS NOT NULL AS ended
		FROM chain LEFT JOIN events e ON e.run_id = id AND e.correlation_id = $3 AND e.correlation_id <> ''
			AND e.`+OfType+` = 'step_created'
		ORDER BY e.seq IS NULL, CASE WHEN e.seq IS NULL THEN -n ELSE n END LIMIT 1`, id, project, step)
	reply, err := pg.CollectOne[Reply](rows, err, entities.ErrRunNotFound)
	return reply, pg.Wrap(err, "read the answer %s of run %s", step, id)
}

// LastChild returns the run that a step of the parent stands for: the last one of those that continue each other. It
// fails with [entities.ErrRunNotFound].
func LastChild(
	ctx context.Context, q pg.Querier, parent entities.RunID, step entities.StepID,
) (entities.Run, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs
		WHERE parent_id = $1 AND parent_id <> '' AND parent_step = $2 AND continued_as = ''`, parent, step)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read child %s of %s", step, parent)
}

// openChildren selects the runs that end with their parent $1 and have not ended yet.
const openChildren = ` FROM runs WHERE parent_id = $1 AND parent_id <> '' AND completed_at IS NULL AND NOT detached`

// LoadOpenChildren queues a query whether the parent has open children: runs that end with it and have not ended yet.
func LoadOpenChildren(b *pgx.Batch, parent entities.RunID, into *bool) {
	b.Queue(`SELECT EXISTS (SELECT`+openChildren+`)`, parent).QueryRow(func(row pgx.Row) error { return row.Scan(into) })
}

// RequireNoOpenChild requires that [LoadOpenChildren] finds nothing. A child is created under a shared lock on its
// parent (see [LockRunShared]) and adds nothing to the parent's log. So the condition needs the parent locked.
func RequireNoOpenChild(c *pg.Conditional, parent entities.RunID) {
	c.RequireLocked(`NOT EXISTS (SELECT`+openChildren+`)`, parent)
}

// OpenChildren reads the IDs of at most limit open children of the parent, in order.
func OpenChildren(ctx context.Context, q pg.Querier, parent entities.RunID, limit int) ([]entities.RunID, error) {
	ids, err := pg.CollectColumn[entities.RunID](q.Query(ctx,
		`SELECT id`+openChildren+` ORDER BY id LIMIT $2`, parent, limit))
	return ids, pg.Wrap(err, "read children of %s", parent)
}

// CountOpenRuns counts the runs that have not ended, of all projects, by status. It counts at most limit runs in total,
// in the order of their IDs, which bounds the cost of each scrape of the metrics.
func CountOpenRuns(ctx context.Context, q pg.Querier, limit int) (map[entities.RunStatus]int64, error) {
	type row struct {
		Status entities.RunStatus
		Count  int64
	}
	rows, err := pg.CollectAll[row](q.Query(ctx, `
		SELECT status, count(*) FROM (
			SELECT status FROM runs WHERE completed_at IS NULL ORDER BY id LIMIT $1
		) AS open GROUP BY status`, limit))
	counts := map[entities.RunStatus]int64{entities.RunPending: 0, entities.RunRunning: 0}
	for _, r := range rows {
		counts[r.Status] = r.Count
	}
	return counts, pg.Wrap(err, "count open runs")
}

// InsertRun adds the insertion of a run. If a run has the ID, it fails with a violation of the constraint runs_pkey.
func InsertRun(w pg.Writer, r *entities.Run) { w.Add(insertRun(r)) }

// insertRun returns the insertion of a run. It ends in WHERE true, like every insertion here, so that a conditional
// statement can add conditions: see [pg.Write].
func insertRun(r *entities.Run) pg.Write {
	return pg.Write{What: "insert run", SQL: `
		INSERT INTO runs (` + runColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::jsonb,
			$8::text, $9::text, $10::text, $11::text, $12::text, $13::boolean, $14::timestamptz,
			$15::timestamptz, $16::text, $17::bigint, $18::bigint, $19::timestamptz, $20::timestamptz, $21::timestamptz,
			$22::timestamptz, $23::bigint, $24::jsonb, $25::jsonb, $26::jsonb, $27::bigint, $28::text, $29::integer,
			$30::text, $31::text, $32::text, $33::bigint
		WHERE true`, Args: []any{
		r.ID, r.Project, r.DeploymentID, r.WorkflowName, r.Status, r.SpecVersion, r.Attributes,
		r.Driver, r.UniqueKey, r.IdempotencyKey, r.ParentID, r.ParentStep, r.Detached, r.Deadline,
		r.ForcedAt, r.ErrorCode, r.LastSeq, r.EndSeq, r.CreatedAt, r.UpdatedAt, r.StartedAt, r.CompletedAt,
		r.StoreSeq, r.Await, r.Limits, r.StepLimits, r.SeqInBand, r.RootID, r.Depth,
		r.ContinuedFrom, r.ContinuedAs, r.ForkOf, r.ForkSeq,
	}}
}

// updateRun returns the update of all columns of a run that events can change.
func updateRun(r *entities.Run) pg.Write {
	return pg.Write{What: "update run", SQL: `
		UPDATE runs SET status = $2::text, attributes = $3, error_code = $4, last_seq = $5, end_seq = $6,
			updated_at = $7, started_at = $8, completed_at = $9, forced_at = $10, store_seq = $11, await = $12,
			seq_in_band = $13, continued_as = $14
		WHERE id = $1`, Args: []any{
		r.ID, r.Status, r.Attributes, r.ErrorCode, r.LastSeq, r.EndSeq, r.UpdatedAt, r.StartedAt, r.CompletedAt,
		r.ForcedAt, r.StoreSeq, r.Await, r.SeqInBand, r.ContinuedAs,
	}}
}

// WriteRun sets the write of the run's row that the conditional statement depends on: it turns before into after. It
// applies only if the run's log is as long as before's, the run awaits the same, which the log does not say, and no
// other transaction has locked the run. A nil before means that the run is created; the write then applies only if no
// run has the ID.
func WriteRun(c *pg.Conditional, before, after *entities.Run) {
	if before == nil {
		w := insertRun(after)
		w.Rest = ` ON CONFLICT DO NOTHING`
		c.About(w)
		return
	}
	// FOR NO KEY UPDATE makes Postgres compare the newest version of the row, and SKIP LOCKED saves the wait for a
	// lock.
	w := updateRun(after)
	args := (*pg.Args)(&w.Args)
	w.SQL += ` AND id = (SELECT id FROM runs WHERE id = $1 AND last_seq = ` + args.Add(before.LastSeq) +
		` FOR NO KEY UPDATE SKIP LOCKED)`
	c.About(w)
	// Of the newest version as well. Under the lock, it does not matter in which words another version of the server has
	// stored the same.
	c.Require(`await IS NOT DISTINCT FROM $1::jsonb`, before.Await)
}
