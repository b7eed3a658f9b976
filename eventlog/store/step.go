package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const stepColumns = `run_id, id, name, status, attempt, spec_version, created_seq, result_seq,
	created_at, updated_at, started_at, completed_at, retry_after`

// LoadSteps queues a read of the run's steps that have one of the IDs.
func LoadSteps(b *pgx.Batch, runID entities.RunID, ids []entities.StepID, into map[entities.StepID]entities.Step) {
	pg.LoadOf(b, func(s entities.Step) { into[s.ID] = s },
		`SELECT `+stepColumns+` FROM steps WHERE run_id = $1 AND id`, runID, ids)
}

// StepByID reads a step of one of the project's runs. With an empty runID it reads the first run that has a step of
// this ID. It fails with [entities.ErrStepNotFound].
func StepByID(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, id entities.StepID,
) (entities.Step, error) {
	args, of := []any{id, project, runID}, `SELECT id FROM runs WHERE id = $3 AND project IS NOT DISTINCT FROM $2`
	if runID == "" {
		// Steps are keyed by their run, so this goes through the log's index on correlation IDs. It would be slow for a
		// known run: all runs of a plain function's workflow may have a step of the same ID.
		args, of = args[:2], `
			SELECT e.run_id FROM events e JOIN runs r ON r.id = e.run_id
			WHERE e.correlation_id = $1 AND e.correlation_id <> '' AND e.`+OfType+` = 'step_created'
				AND r.project IS NOT DISTINCT FROM $2
			ORDER BY e.run_id LIMIT 1`
	}
	rows, err := q.Query(ctx, `SELECT `+stepColumns+` FROM steps WHERE id = $1 AND run_id = (`+of+`)`, args...)
	step, err := pg.CollectOne[entities.Step](rows, err, entities.ErrStepNotFound)
	return step, pg.Wrap(err, "read step %s", id)
}

// StepIsOpen reports whether a step has no result, and its run has not ended.
func StepIsOpen(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, id entities.StepID,
) (bool, error) {
	open, err := pg.CollectValue[bool](q.Query(ctx, `
		SELECT EXISTS (SELECT FROM runs WHERE `+OfRun+` AND completed_at IS NULL)
			AND EXISTS (SELECT FROM steps WHERE run_id = $1 AND id = $3 AND completed_at IS NULL)`, runID, project, id))
	return open, pg.Wrap(err, "read step %s", id)
}

// ListSteps reads a page of a run's steps, oldest first, and the cursor of the next page; empty after the last page.
// For a run of another project the list is empty. It fails with a [pg.CursorError] on a cursor of another list.
func ListSteps(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID, p pg.Page,
) ([]entities.Step, string, error) {
	from := int64(0)
	if p.Cursor != "" {
		var err error
		if from, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	order, after := p.Order()
	sql := fmt.Sprintf(`
		SELECT `+stepColumns+` FROM steps
		WHERE run_id = (SELECT id FROM runs WHERE `+OfRun+`)
			AND ($3 OR created_seq %[2]s $4)
		ORDER BY created_seq %[1]s
		LIMIT $5`, order, after)
	rows, err := q.Query(ctx, sql, runID, project, p.Cursor == "", from, p.Limit+1)
	steps, next, err := pg.CollectPage(rows, err, p.Limit, StepCursor)
	return steps, next, pg.Wrap(err, "list steps of %s", runID)
}

// StepCursor returns the cursor for the part of the list of steps that follows the step.
func StepCursor(s entities.Step) string { return strconv.FormatInt(s.CreatedSeq, 10) }

// InsertSteps adds the insertion of steps of one run.
func InsertSteps(w pg.Writer, steps []entities.Step) {
	switch len(steps) {
	case 0:
	case 1:
		InsertStep(w, &steps[0])
	default:
		insertSeveral(w, steps)
	}
}

// InsertStep adds the insertion of a step.
func InsertStep(w pg.Writer, s *entities.Step) {
	w.Add(pg.Write{What: "insert step", SQL: `
		INSERT INTO steps (` + stepColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::integer, $6::integer, $7::bigint, $8::bigint,
			$9::timestamptz, $10::timestamptz, $11::timestamptz, $12::timestamptz, $13::timestamptz
		WHERE true`, If: `NOT EXISTS (SELECT FROM steps WHERE run_id = $1 AND id = $2)`, Args: []any{
		s.RunID, s.ID, s.Name, s.Status, s.Attempt, s.SpecVersion, s.CreatedSeq, s.ResultSeq,
		s.CreatedAt, s.UpdatedAt, s.StartedAt, s.CompletedAt, s.RetryAfter,
	}})
}

// insertSeveral is [InsertStep] for several steps, by a statement whose text does not depend on their number.
func insertSeveral(w pg.Writer, steps []entities.Step) {
	w.Add(pg.Write{What: "insert steps", Rows: len(steps), SQL: `
		INSERT INTO steps (` + stepColumns + `)
		SELECT $1::text, s.* FROM unnest($2::text[], $3::text[], $4::text[], $5::integer[], $6::integer[], $7::bigint[],
			$8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[]) s
		WHERE true`, If: `NOT EXISTS (SELECT FROM unnest($2::text[]) AS n (id), LATERAL ` + stepNamed + `)`, Args: []any{
		steps[0].RunID, column(steps, func(s entities.Step) entities.StepID { return s.ID }),
		column(steps, func(s entities.Step) string { return s.Name }),
		column(steps, func(s entities.Step) entities.StepStatus { return s.Status }),
		column(steps, func(s entities.Step) int { return s.Attempt }),
		column(steps, func(s entities.Step) int { return s.SpecVersion }),
		column(steps, func(s entities.Step) int64 { return s.CreatedSeq }),
		column(steps, func(s entities.Step) int64 { return s.ResultSeq }),
		column(steps, func(s entities.Step) time.Time { return s.CreatedAt }),
		column(steps, func(s entities.Step) time.Time { return s.UpdatedAt }),
		column(steps, func(s entities.Step) *time.Time { return s.StartedAt }),
		column(steps, func(s entities.Step) *time.Time { return s.CompletedAt }),
		column(steps, func(s entities.Step) *time.Time { return s.RetryAfter }),
	}})
}

// stepNamed finds the step n.id of run $1; see [pg.OneByOne].
const stepNamed = `(SELECT ctid AS place FROM steps WHERE run_id = $1 AND id` + pg.OneByOne + `) AS found`

// UpdateSteps adds the update of all columns of steps of one run that events can change.
func UpdateSteps(w pg.Writer, steps []entities.Step) {
	switch len(steps) {
	case 0:
	case 1:
		UpdateStep(w, &steps[0])
	default:
		updateSeveral(w, steps)
	}
}

// UpdateStep adds the update of all columns of a step that events can change.
func UpdateStep(w pg.Writer, s *entities.Step) {
	w.Add(pg.Write{What: "update step", SQL: `
		UPDATE steps SET status = $3::text, attempt = $4, result_seq = $5, updated_at = $6, started_at = $7,
			completed_at = $8, retry_after = $9
		WHERE run_id = $1 AND id = $2`, If: `EXISTS (SELECT FROM steps WHERE run_id = $1 AND id = $2)`, Args: []any{
		s.RunID, s.ID, s.Status, s.Attempt, s.ResultSeq, s.UpdatedAt, s.StartedAt, s.CompletedAt, s.RetryAfter,
	}})
}

// updateSeveral is [UpdateStep] for several steps, by a statement whose text does not depend on their number.
func updateSeveral(w pg.Writer, steps []entities.Step) {
	w.Add(pg.Write{What: "update steps", Rows: len(steps), SQL: `
		UPDATE steps SET status = n.status, attempt = n.attempt, result_seq = n.result_seq, updated_at = n.updated_at,
			started_at = n.started_at, completed_at = n.completed_at, retry_after = n.retry_after
		FROM (SELECT * FROM unnest($2::text[], $3::text[], $4::integer[], $5::bigint[], $6::timestamptz[],
				$7::timestamptz[], $8::timestamptz[], $9::timestamptz[])
			AS n (id, status, attempt, result_seq, updated_at, started_at, completed_at, retry_after), LATERAL ` + stepNamed + `
			OFFSET 0) AS n
		WHERE steps.ctid = n.place`,
		If: `(SELECT count(*) FROM unnest($2::text[]) AS n (id), LATERAL ` + stepNamed + `) = cardinality($2::text[])`,
		Args: []any{
			steps[0].RunID, column(steps, func(s entities.Step) entities.StepID { return s.ID }),
			column(steps, func(s entities.Step) entities.StepStatus { return s.Status }),
			column(steps, func(s entities.Step) int { return s.Attempt }),
			column(steps, func(s entities.Step) int64 { return s.ResultSeq }),
			column(steps, func(s entities.Step) time.Time { return s.UpdatedAt }),
			column(steps, func(s entities.Step) *time.Time { return s.StartedAt }),
			column(steps, func(s entities.Step) *time.Time { return s.CompletedAt }),
			column(steps, func(s entities.Step) *time.Time { return s.RetryAfter }),
		}})
}

// column returns one of the columns of steps.
func column[T any](steps []entities.Step, of func(entities.Step) T) []T {
	list := make([]T, len(steps))
	for i, s := range steps {
		list[i] = of(s)
	}
	return list
}
