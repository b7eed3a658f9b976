package entities

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Run is one execution of a workflow, as the fold of its log. What users sent is not here: input and
// execution context are in event 1, the output or error in the event at EndSeq.
type Run struct {
	ID      RunID
	Project Project
	// DeploymentID says whose functions execute the run; it never changes.
	DeploymentID string
	WorkflowName string
	Status       RunStatus
	// SpecVersion is the protocol version of the app that started the run (protocol §8).
	SpecVersion int
	// Attributes are the user's labels; never nil once stored.
	Attributes map[string]string
	// ErrorCode is set on failed runs whose client gave one.
	ErrorCode string
	// LastSeq is the position of the newest event.
	LastSeq int64
	// EndSeq is the position of the event that ended the run; 0 while it lives.
	EndSeq    int64
	CreatedAt time.Time
	// UpdatedAt is the time of the newest event.
	UpdatedAt time.Time
	// StartedAt is set by the first run_started and never changes: clients derive IDs from it.
	StartedAt *time.Time
	// CompletedAt is set exactly when the run has ended.
	CompletedAt *time.Time
}

const runColumns = `id, project, deployment_id, workflow_name, status, spec_version, attributes,
	error_code, last_seq, end_seq, created_at, updated_at, started_at, completed_at`

// LockRun queues a read of the run that locks it until the transaction ends; into stays nil when the
// project has no such run. The run row is the one lock of the write path.
func LockRun(b *pgx.Batch, project Project, id RunID, into **Run) {
	loadInto(b, into, `SELECT `+runColumns+` FROM runs WHERE id = $1 AND project = $2 FOR NO KEY UPDATE`, id, project)
}

// RunByID reads a run. It fails with [ErrRunNotFound].
func RunByID(ctx context.Context, q Querier, project Project, id RunID) (Run, error) {
	rows, err := q.Query(ctx, `SELECT `+runColumns+` FROM runs WHERE id = $1 AND project = $2`, id, project)
	run, err := collectOne[Run](rows, err, ErrRunNotFound)
	if err != nil {
		return Run{}, fmt.Errorf("read run %s: %w", id, err)
	}
	return run, nil
}

// InsertRun queues the insertion of a run. Its batch fails on the constraint runs_pkey when the ID is taken.
func InsertRun(b *pgx.Batch, r *Run) {
	oneRow(b, "insert run", `
		INSERT INTO runs (`+runColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		r.ID, r.Project, r.DeploymentID, r.WorkflowName, r.Status, r.SpecVersion, r.Attributes,
		r.ErrorCode, r.LastSeq, r.EndSeq, r.CreatedAt, r.UpdatedAt, r.StartedAt, r.CompletedAt)
}

// UpdateRun queues the write of everything about a run that events can change.
func UpdateRun(b *pgx.Batch, r *Run) {
	oneRow(b, "update run", `
		UPDATE runs SET status = $2, attributes = $3, error_code = $4, last_seq = $5, end_seq = $6,
			updated_at = $7, started_at = $8, completed_at = $9
		WHERE id = $1`,
		r.ID, r.Status, r.Attributes, r.ErrorCode, r.LastSeq, r.EndSeq, r.UpdatedAt, r.StartedAt, r.CompletedAt)
}
