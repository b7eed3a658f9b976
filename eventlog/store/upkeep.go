package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

// Place is the place of an entity in the order of runs and, in a run, of the IDs of its entities.
type Place struct {
	RunID entities.RunID
	ID    string
}

// Compare returns the order of two places, which is that of the rows in the database.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.RunID, q.RunID), cmp.Compare(p.ID, q.ID))
}

// Span is a range of the entities of some runs, which are ordered by ID: those after After, up to and including UpTo.
type Span struct {
	Runs        []entities.RunID
	After, UpTo Place
}

// Has reports whether the place, of one of the span's runs, is in the span.
func (s Span) Has(p Place) bool {
	return s.After.Compare(p) < 0 && p.Compare(s.UpTo) <= 0
}

// LastID sorts after every ID in the database.
const LastID = "\U0010ffff"

// RunIDs reads the IDs of at most limit runs after the given one, in order. An empty project means all projects.
func RunIDs(
	ctx context.Context, q pg.Querier, project entities.Project, after entities.RunID, limit int,
) ([]entities.RunID, error) {
	ids, err := pg.CollectColumn[entities.RunID](q.Query(ctx, `
		SELECT id FROM runs WHERE id > $1 AND ($2::text = '' OR project = $2) ORDER BY id LIMIT $3`,
		after, project, limit))
	return ids, pg.Wrap(err, "list run IDs")
}

// RunsOfAny reads runs of any project, ordered by ID. Missing ones are left out.
func RunsOfAny(ctx context.Context, q pg.Querier, ids []entities.RunID) ([]entities.Run, error) {
	runs, err := pg.CollectAll[entities.Run](q.Query(ctx,
		`SELECT `+runColumns+` FROM runs WHERE id = ANY ($1) ORDER BY id`, ids))
	return runs, pg.Wrap(err, "read runs")
}

// RunOfAny reads a run of any project. It fails with [entities.ErrRunNotFound].
func RunOfAny(ctx context.Context, q pg.Querier, id entities.RunID) (entities.Run, error) {
	return runOfAny(ctx, q, id, "")
}

// LockRunOfAny reads a run of any project and locks it as [LockRun] does. It fails with [entities.ErrRunNotFound].
func LockRunOfAny(ctx context.Context, q pg.Querier, id entities.RunID) (entities.Run, error) {
	return runOfAny(ctx, q, id, " FOR NO KEY UPDATE")
}

func runOfAny(ctx context.Context, q pg.Querier, id entities.RunID, lock string) (entities.Run, error) {
	rows, err := q.Query(ctx, `SELECT `+runColumns+` FROM runs WHERE id = $1`+lock, id)
	run, err := pg.CollectOne[entities.Run](rows, err, entities.ErrRunNotFound)
	return run, pg.Wrap(err, "read run %s", id)
}

// RewriteRun queues the update of all columns of a run that follow from its log: all but its ID and its project. From
// then on every event has the run invoked, since the log does not say what it awaits.
func RewriteRun(b *pgx.Batch, r *entities.Run) {
	pg.QueueOne(b, "rewrite run", `
		UPDATE runs SET deployment_id = $2, workflow_name = $3, status = $4::text, spec_version = $5, attributes = $6,
			error_code = $7, last_seq = $8, end_seq = $9, created_at = $10, updated_at = $11, started_at = $12,
			completed_at = $13, driver = $14::text, unique_key = $15, idempotency_key = $16, parent_id = $17,
			parent_step = $18, detached = $19, deadline = $20, forced_at = $21, store_seq = $22, await = NULL,
			limits = $23, step_limits = $24, seq_in_band = $25, root_id = $26, depth = $27,
			continued_from = $28, continued_as = $29, fork_of = $30, fork_seq = $31
		WHERE id = $1`,
		r.ID, r.DeploymentID, r.WorkflowName, r.Status, r.SpecVersion, r.Attributes,
		r.ErrorCode, r.LastSeq, r.EndSeq, r.CreatedAt, r.UpdatedAt, r.StartedAt, r.CompletedAt,
		r.Driver, r.UniqueKey, r.IdempotencyKey, r.ParentID, r.ParentStep, r.Detached, r.Deadline,
		r.ForcedAt, r.StoreSeq, r.Limits, r.StepLimits, r.SeqInBand, r.RootID, r.Depth,
		r.ContinuedFrom, r.ContinuedAs, r.ForkOf, r.ForkSeq)
}

// DeleteRows queues the deletion of all rows that follow from a run's log, except its own.
func DeleteRows(b *pgx.Batch, runID entities.RunID) {
	for _, table := range []string{"steps", "hooks", "waits", "run_attributes", "run_store"} {
		b.Queue(`DELETE FROM `+table+` WHERE run_id = $1`, runID)
	}
}

// RestoreHook queues the insertion of a hook, and locks its token as [LockToken] does. If another hook holds the token
// at the given time, nothing is inserted and taken is called with that hook.
func RestoreHook(b *pgx.Batch, h *entities.Hook, at time.Time, taken func(entities.Hook)) {
	// The holder that blocks the insertion is known only from the read under the lock.
	holders := map[string]*entities.Hook{}
	LockToken(b, h.Project, h.Token, holders)
	b.Queue(`DELETE FROM hooks WHERE project = $1 AND token = $2 AND expires_at <= $3`, h.Project, h.Token, at)
	b.Queue(`
		INSERT INTO hooks (`+hookColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT ON CONSTRAINT hooks_token_key DO NOTHING`,
		h.RunID, h.ID, h.Project, h.Token, h.IsWebhook, h.IsSystem, h.SpecVersion, h.CreatedSeq, h.CreatedAt,
		h.RetainUntil, h.ExpiresAt, h.Signal, h.Condition, h.ClaimedFrom,
	).Exec(func(tag pgconn.CommandTag) error {
		if holder := holders[h.Token]; tag.RowsAffected() == 0 && holder != nil {
			taken(*holder)
		}
		return nil
	})
}

// Rows are the rows of runs in a table that follow from their logs, identified by a column that is unique in the run.
type Rows[T any] struct{ table, id, columns string }

// The tables of which a run's rows follow from its log.
var (
	Steps      = Rows[entities.Step]{"steps", "id", stepColumns}
	Hooks      = Rows[entities.Hook]{"hooks", "id", hookColumns}
	Waits      = Rows[entities.Wait]{"waits", "id", waitColumns}
	Attributes = Rows[RunAttribute]{"run_attributes", "key", attributeColumns}
	RunStore   = Rows[RunValue]{"run_store", "key", valueColumns}
)

// Each calls do with the rows in the span, in the order of their places, one at a time: a run may have more than fit
// into memory.
func (r Rows[T]) Each(ctx context.Context, q pg.Querier, s Span, do func(T) error) error {
	rows, err := q.Query(ctx, fmt.Sprintf(`
		SELECT %[1]s FROM %[2]s
		WHERE run_id = ANY ($1) AND (run_id, %[3]s) > ($2, $3) AND (run_id, %[3]s) <= ($4, $5)
		ORDER BY run_id, %[3]s`, r.columns, r.table, r.id), s.Runs, s.After.RunID, s.After.ID, s.UpTo.RunID, s.UpTo.ID)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := pgx.RowToStructByName[T](rows)
		if of, ok := any(&row).(atrest.Row); ok && err == nil {
			err = pg.Open(pg.CodecOf(rows), of)
		}
		if err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		if err := do(row); err != nil {
			return err
		}
	}
	return pg.Wrap(rows.Err(), "read rows")
}

// StoredBytes returns the size of a project's payloads, streams and collected inputs, as they were received, and of its
// archived runs' files in the database. Postgres may compress them, and needs more for rows and indexes. It reads all
// rows that have them, but not the data themselves, because their lengths are in the rows.
func StoredBytes(ctx context.Context, q pg.Querier, project entities.Project) (int64, error) {
	return pg.CollectValue[int64](q.Query(ctx, `
		SELECT ((
			SELECT coalesce(sum(coalesce(blob_size, octet_length(payload), 0) + coalesce(octet_length(extra), 0)), 0)
			FROM events WHERE project = $1
		) + (
			SELECT coalesce(sum(octet_length(c.data)), 0)
			FROM streams s JOIN stream_chunks c ON c.stream_id = s.id WHERE s.project = $1
		) + (
			SELECT coalesce(sum(bytes), 0) FROM collections WHERE project = $1
		) + (
			SELECT coalesce(sum(octet_length(f.data)), 0)
			FROM archived_runs a JOIN archive_files f ON f.run_id = a.id WHERE a.project = $1
		))::bigint`, project))
}
