package read

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// LoadEvent queues a read of one event, without its payload. Where is the condition that selects it, and may have an
// order and a limit. Into stays nil if no event matches.
func LoadEvent(b *pgx.Batch, into **entities.Event, where string, args ...any) {
	pg.LoadInto(b, into, `SELECT `+WithoutPayloads.columns()+` FROM events WHERE `+where, args...)
}

// Measure queues a read of the total size of the payloads in the page of a run's log after a position, up to a number
// of events. It is an estimate, because the log may grow. The caller must have checked that it may see the run.
func Measure(b *pgx.Batch, runID entities.RunID, after int64, events int, into *int64) {
	b.Queue(`
		SELECT least(coalesce(sum(`+PayloadSize+`), 0), $3) FROM (
			SELECT payload, blob_size FROM events WHERE run_id = $1 AND seq > $4 ORDER BY seq LIMIT $2) page`,
		runID, events, MaxPageBytes, after,
	).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(into); err != nil {
			return fmt.Errorf("measure log: %w", err)
		}
		return nil
	})
}

// StepState is a step with everything that its execution needs.
type StepState struct {
	entities.Step

	// Created is the event that created it.
	Created entities.Event
	Run     entities.Run
}

// lookUpEach looks up the events at the wanted positions one by one. With a join, the planner does not know how
// few positions there are, and might scan a whole table of moderate size.
const lookUpEach = `LATERAL (
	SELECT * FROM events WHERE run_id = wanted.run AND seq = wanted.position OFFSET 0) AS events`

// Position identifies an event by its run and its position in the run's log.
type Position struct {
	RunID entities.RunID
	Seq   int64
}

// Step reads a step. It fails with [entities.ErrStepNotFound].
func (l *Log) Step(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.StepID,
) (StepState, error) {
	var b pgx.Batch
	steps := map[entities.StepID]entities.Step{}
	var run *entities.Run
	var created *entities.Event
	store.LoadRun(&b, project, runID, &run)
	store.LoadSteps(&b, runID, []entities.StepID{id}, steps)
	open := pg.LoadUnopened(&b, &created, `
		SELECT `+WithPayloads.columns()+` FROM events
		WHERE run_id = $1 AND seq = (SELECT created_seq FROM steps WHERE run_id = $1 AND id = $2)`, runID, id)
	if err := l.pool.Run(ctx, &b); err != nil {
		return StepState{}, fmt.Errorf("read step %s: %w", id, err)
	}
	if run == nil || created == nil || len(steps) == 0 { // the step may be created or deleted between the reads
		return StepState{}, fmt.Errorf("read step %s: %w", id, entities.ErrStepNotFound)
	}
	if err := open(); err != nil {
		return StepState{}, fmt.Errorf("read step %s: %w", id, err)
	}
	return StepState{steps[id], *created, *run}, nil
}

// Event reads one event of a run. It fails with [entities.ErrEventNotFound].
func (l *Log) Event(
	ctx context.Context, project entities.Project, runID entities.RunID, seq int64,
) (entities.Event, error) {
	var event sizedEvent
	err := loadCounted(ctx, func(limit int64) (int64, error) {
		rows, err := l.pool.Query(ctx, `
			SELECT `+sizedColumns(`$4`)+` FROM events WHERE `+inRun+` AND seq = $3`, runID, project, seq, limit)
		event, err = pg.CollectOne[sizedEvent](rows, err, entities.ErrEventNotFound)
		return event.Size, err
	})
	if err != nil {
		return entities.Event{}, fmt.Errorf("read event %d of %s: %w", seq, runID, err)
	}
	return event.Event, nil
}

// Fit returns how many of the groups of events, from the first on, have at most so many bytes together, but at least
// one. Lists of entities with their events use it to end a page early.
func (l *Log) Fit(ctx context.Context, groups [][]Position, with Payloads, maxBytes int) (int, error) {
	if len(groups) < 2 {
		return len(groups), nil
	}
	var runIDs []string
	var seqs []int64
	var of []int // the index of each event's group
	for i, group := range groups {
		for _, p := range group {
			runIDs, seqs, of = append(runIDs, string(p.RunID)), append(seqs, p.Seq), append(of, i)
		}
	}
	var fit int
	err := l.pool.QueryRow(ctx, `
		WITH sized AS (
			SELECT wanted.of, sum(
				coalesce(octet_length(extra), 0) + CASE WHEN $4 THEN `+PayloadSize+` ELSE 0 END
			) OVER (ORDER BY wanted.of) AS size
			FROM unnest($1::text[], $2::bigint[], $3::int[]) AS wanted (run, position, of), `+lookUpEach+`
		)
		SELECT coalesce(min(of) FILTER (WHERE size > $5), $6) FROM sized`,
		runIDs, seqs, of, with == WithPayloads, maxBytes, len(groups)).Scan(&fit)
	if err != nil {
		return 0, fmt.Errorf("measure events: %w", err)
	}
	return max(1, fit), nil
}

// EventsAt reads the events at the given positions. Positions without an event are left out. The caller must have
// checked that it may see the runs.
func (l *Log) EventsAt(ctx context.Context, at []Position, with Payloads) (map[Position]entities.Event, error) {
	if len(at) == 0 {
		return nil, nil
	}
	from, positions := fromWanted(at)
	found := make(map[Position]entities.Event, len(at))
	err := loadCounted(ctx, func(limit int64) (size int64, err error) {
		columns, args := unsizedColumns, positions
		if with == WithPayloads {
			columns, args = sizedColumns(`$3`), append(slices.Clip(args), limit)
		}
		rows, err := l.pool.Query(ctx, `SELECT `+columns+from, args...)
		if err != nil {
			return 0, err
		}
		events, _, err := collectPage(rows, len(at), math.MaxInt, func(s *eventScanner, r *Row) (int, error) {
			err := s.scan(r)
			size += s.size
			return 0, err
		})
		for i := range events {
			found[Position{events[i].RunID, events[i].Seq}] = events[i].Event()
		}
		return size, err
	})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return found, nil
}

// fromWanted returns the FROM clause of a query for the events at the positions, and its arguments. A single one, which
// is the usual case, needs no arrays, with which Postgres would plan the statement at each execution.
func fromWanted(at []Position) (from string, args []any) {
	if len(at) == 1 {
		return ` FROM events WHERE run_id = $1 AND seq = $2`, []any{at[0].RunID, at[0].Seq}
	}
	runIDs, seqs := make([]string, len(at)), make([]int64, len(at))
	for i, p := range at {
		runIDs[i], seqs[i] = string(p.RunID), p.Seq
	}
	return ` FROM unnest($1::text[], $2::bigint[]) AS wanted (run, position), ` + lookUpEach, []any{runIDs, seqs}
}

// LastStarts reads the latest step_started of each of a run's steps, without payloads. Steps that never started are
// left out.
func (l *Log) LastStarts(
	ctx context.Context, runID entities.RunID, steps []entities.StepID,
) (map[entities.StepID]entities.Event, error) {
	events, err := CollectEvents(l.pool.Query(ctx, `
		SELECT last.* FROM unnest($2::text[]) AS step (id)
		CROSS JOIN LATERAL (
			SELECT `+WithoutPayloads.columns()+` FROM events
			WHERE run_id = $1 AND correlation_id = step.id AND correlation_id <> ''
				AND `+store.OfType+` = 'step_started'
			ORDER BY `+store.BySeq+` DESC LIMIT 1) last`, runID, steps))
	if err != nil {
		return nil, fmt.Errorf("read starts: %w", err)
	}
	starts := make(map[entities.StepID]entities.Event, len(events))
	for _, e := range events {
		starts[entities.StepID(e.CorrelationID)] = e
	}
	return starts, nil
}
