package entities

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Step is one step of a run, as the fold of its events. Its payloads are not here: the input is that of
// the event at CreatedSeq, the output or the last error that of the event at ResultSeq.
type Step struct {
	RunID  RunID
	ID     StepID
	Name   string
	Status StepStatus
	// Attempt counts the starts; 0 until the first. The limit and what follows are the client's choice.
	Attempt     int
	SpecVersion int
	// CreatedSeq is the position of step_created.
	CreatedSeq int64
	// ResultSeq is the position of the last step_completed, step_failed or step_retrying; 0 before one.
	ResultSeq int64
	CreatedAt time.Time
	UpdatedAt time.Time
	// StartedAt is the time of the first start.
	StartedAt *time.Time
	// CompletedAt is set exactly when the step is completed or failed.
	CompletedAt *time.Time
	// RetryAfter is the earliest time of the next attempt; cleared by the start.
	RetryAfter *time.Time
}

const stepColumns = `run_id, id, name, status, attempt, spec_version, created_seq, result_seq,
	created_at, updated_at, started_at, completed_at, retry_after`

// LoadSteps queues a read of those of the steps that the run has.
func LoadSteps(b *pgx.Batch, runID RunID, ids []StepID, into map[StepID]Step) {
	loadOf(b, func(s Step) { into[s.ID] = s }, `SELECT `+stepColumns+` FROM steps WHERE run_id = $1 AND id`, runID, ids)
}

// StepByID reads a step of one of the project's runs; an empty runID means whichever run has it. It fails
// with [ErrStepNotFound].
func StepByID(ctx context.Context, q Querier, project Project, runID RunID, id StepID) (Step, error) {
	args, of := []any{id, project, runID}, `SELECT id FROM runs WHERE id = $3 AND project IS NOT DISTINCT FROM $2`
	if runID == "" {
		// Through the log's index on correlation IDs, as steps are keyed by their run. Not so if that is known: all
		// runs of a plain function's workflow may have a step of one ID.
		args, of = args[:2], `
			SELECT e.run_id FROM events e JOIN runs r ON r.id = e.run_id
			WHERE e.correlation_id = $1 AND e.correlation_id <> '' AND e.type = 'step_created'
				AND r.project IS NOT DISTINCT FROM $2
			ORDER BY e.run_id LIMIT 1`
	}
	rows, err := q.Query(ctx, `SELECT `+stepColumns+` FROM steps WHERE id = $1 AND run_id = (`+of+`)`, args...)
	step, err := collectOne[Step](rows, err, ErrStepNotFound)
	if err != nil {
		return Step{}, fmt.Errorf("read step %s: %w", id, err)
	}
	return step, nil
}

// ListSteps reads a page of a run's steps in the order of their creation, and the cursor of the next page;
// empty when this is the last. A run of another project has none. It fails with [ErrInvalid] on a cursor
// that is not of this list.
func ListSteps(ctx context.Context, q Querier, project Project, runID RunID, p Page) ([]Step, string, error) {
	from := int64(0)
	if p.Cursor != "" {
		var err error
		if from, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil {
			return nil, "", badCursor(p.Cursor)
		}
	}
	order, after := p.order()
	sql := fmt.Sprintf(`
		SELECT `+stepColumns+` FROM steps
		WHERE run_id = (SELECT id FROM runs WHERE `+OfRun+`)
			AND ($3 OR created_seq %[2]s $4)
		ORDER BY created_seq %[1]s
		LIMIT $5`, order, after)
	rows, err := q.Query(ctx, sql, runID, project, p.Cursor == "", from, p.Limit+1)
	steps, more, err := collectPage[Step](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list steps of %s: %w", runID, err)
	}
	next := ""
	if more {
		next = StepCursor(steps[len(steps)-1])
	}
	return steps, next, nil
}

// StepCursor is the cursor of a list of steps that was read up to the step.
func StepCursor(s Step) string { return strconv.FormatInt(s.CreatedSeq, 10) }

// InsertStep adds the insertion of a step.
func InsertStep(w Writer, s *Step) {
	w.Add(Write{What: "insert step", SQL: `
		INSERT INTO steps (` + stepColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::integer, $6::integer, $7::bigint, $8::bigint,
			$9::timestamptz, $10::timestamptz, $11::timestamptz, $12::timestamptz, $13::timestamptz
		WHERE true`, If: `NOT EXISTS (SELECT FROM steps WHERE run_id = $1 AND id = $2)`, Args: []any{
		s.RunID, s.ID, s.Name, s.Status, s.Attempt, s.SpecVersion, s.CreatedSeq, s.ResultSeq,
		s.CreatedAt, s.UpdatedAt, s.StartedAt, s.CompletedAt, s.RetryAfter,
	}})
}

// UpdateStep adds the write of everything about a step that events can change.
func UpdateStep(w Writer, s *Step) {
	w.Add(Write{What: "update step", SQL: `
		UPDATE steps SET status = $3::text, attempt = $4, result_seq = $5, updated_at = $6, started_at = $7,
			completed_at = $8, retry_after = $9
		WHERE run_id = $1 AND id = $2`, If: `EXISTS (SELECT FROM steps WHERE run_id = $1 AND id = $2)`, Args: []any{
		s.RunID, s.ID, s.Status, s.Attempt, s.ResultSeq, s.UpdatedAt, s.StartedAt, s.CompletedAt, s.RetryAfter,
	}})
}
