package read

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const EventColumns = `run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data, extra`

// loadEvent queues a read of an event without its payload; into stays nil when there is none.
func LoadEvent(b *pgx.Batch, into **entities.Event, where string, args ...any) {
	b.Queue(`SELECT `+WithoutPayloads.columns()+` FROM events WHERE `+where, args...).Query(func(rows pgx.Rows) error {
		event, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[entities.Event])
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		*into = event
		return err
	})
}

// Payloads says whether a query should bring the events' payloads.
type Payloads bool

// The choices of [Payloads].
const (
	WithPayloads    Payloads = true
	WithoutPayloads Payloads = false
)

func (p Payloads) columns() string {
	if p == WithPayloads {
		return EventColumns + `, payload`
	}
	return EventColumns + `, NULL::bytea AS payload`
}

// pageColumns are the columns of a list in the given order. Payloads beyond the one that fills the page are
// left in the database, for they may be many times the page.
func (p Payloads) pageColumns(order string) string {
	if p == WithoutPayloads {
		return p.columns()
	}
	return EventColumns + fmt.Sprintf(`, CASE WHEN coalesce(sum(octet_length(payload)) OVER (
		ORDER BY seq %s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < %d THEN payload END AS payload`,
		order, MaxPageBytes)
}

// EventPage is one page of a log.
type EventPage struct {
	Events []entities.Event
	// More says that the list goes on.
	More bool
}

const eventCursorPrefix = "eid:"

// EventCursor is the cursor of a list that was read up to the event (protocol §2.4).
func EventCursor(e entities.Event) string { return EventCursorAt(e.Seq) }

// EventCursorAt is the cursor of a list that was read up to the position.
func EventCursorAt(seq int64) string { return eventCursorPrefix + string(entities.EventIDAt(seq)) }

// ParseEventCursor reads the position in a cursor of a list of events, or in an event ID. It fails with
// [entities.ErrInvalid].
func ParseEventCursor(cursor string) (int64, error) {
	seq, err := entities.EventID(strings.TrimPrefix(cursor, eventCursorPrefix)).Seq()
	if err != nil {
		return 0, &pg.CursorError{Cursor: cursor}
	}
	return seq, nil
}

// maxPageBytes ends a page early once its payloads are this large together.
const MaxPageBytes = 16 << 20

// collectEvents reads events until there are limit of them or their payloads fill a page; either way it
// looks at one more row to know whether the list goes on.
func collectEvents(rows pgx.Rows, limit int) (EventPage, error) {
	defer rows.Close()
	var page EventPage
	size := 0
	for rows.Next() {
		if len(page.Events) == limit || size >= MaxPageBytes {
			page.More = true
			break
		}
		event, err := pgx.RowToStructByName[entities.Event](rows)
		if err != nil {
			return EventPage{}, err
		}
		size += len(event.Payload) + len(event.Extra)
		page.Events = append(page.Events, event)
	}
	rows.Close()
	return page, rows.Err()
}

// Measure queues to find out how many bytes of payloads the first page of a run's log has, if it is of so many events;
// an estimate, for the run goes on. The caller knows that it may see the run.
func Measure(b *pgx.Batch, runID entities.RunID, events int, into *int64) {
	b.Queue(`
		SELECT least(coalesce(sum(octet_length(payload)), 0), $3) FROM (
			SELECT payload FROM events WHERE run_id = $1 ORDER BY seq LIMIT $2) page`, runID, events, MaxPageBytes,
	).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(into); err != nil {
			return fmt.Errorf("measure log: %w", err)
		}
		return nil
	})
}

// StepState is a step with what there is to know for executing it.
type StepState struct {
	entities.Step

	// Created is the event that created it.
	Created entities.Event
	Run     entities.Run
}

// eachWanted looks up the events at the positions that are wanted, one by one. A join would leave it to the planner,
// who does not know how few they are, to read a table of moderate size from end to end instead.
const lookUpEach = `LATERAL (
	SELECT * FROM events WHERE run_id = wanted.run AND seq = wanted.position OFFSET 0) AS events`

// Position is an event's place: in which log, and where.
type Position struct {
	RunID entities.RunID
	Seq   int64
}

// Events reads a page of a run's log, in its order. A cursor is [EventCursor] of the last event read. A
// run the project does not have fails with [entities.ErrRunNotFound], a strange cursor with
// [entities.ErrInvalid].
func (l *Log) Events(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page, with Payloads,
) (EventPage, error) {
	const ofRun = `run_id = (SELECT id FROM runs WHERE ` + store.OfRun + `)`
	page, err := l.eventsWhere(ctx, p, with, ofRun, runID, project)
	if err != nil || len(page.Events) > 0 {
		return page, err
	}
	if _, err := store.RunByID(ctx, l.pool, project, runID); err != nil || p.Cursor != "" {
		return page, err
	}
	// The run was created between the two looks. No run is ever without events.
	return l.eventsWhere(ctx, p, with, ofRun, runID, project)
}

// EventsByCorrelation reads a page of the events that share a correlation ID: those of one run, or with
// an empty runID those of whichever of the project's runs has them. Cursors and errors are as for
// [Log.Events]; what does not exist has no events.
func (l *Log) EventsByCorrelation(
	ctx context.Context, project entities.Project, runID entities.RunID, correlationID string,
	p pg.Page, with Payloads,
) (EventPage, error) {
	// Correlation IDs are ULIDs: more than one run has one only by a client's design. One is then chosen,
	// because a cursor is a position in a single log.
	return l.eventsWhere(ctx, p, with, `correlation_id = $1 AND correlation_id <> '' AND run_id = (
		SELECT e.run_id FROM events e JOIN runs r ON r.id = e.run_id
		WHERE e.correlation_id = $1 AND e.correlation_id <> ''
			AND r.project IS NOT DISTINCT FROM $2 AND ($3::text = '' OR e.run_id = $3)
		ORDER BY e.run_id LIMIT 1)`, correlationID, project, runID)
}

func (l *Log) eventsWhere(
	ctx context.Context, p pg.Page, with Payloads, where string, args ...any,
) (EventPage, error) {
	order, after := "ASC", ">"
	if p.Descending {
		order, after = "DESC", "<"
	}
	if p.Cursor != "" {
		from, err := ParseEventCursor(p.Cursor)
		if err != nil {
			return EventPage{}, err
		}
		args = append(args, from)
		where += fmt.Sprintf(` AND seq %s $%d`, after, len(args))
	}
	sql := fmt.Sprintf(`SELECT %s FROM events WHERE %s ORDER BY seq %s LIMIT %d`,
		with.pageColumns(order), where, order, p.Limit+1)
	rows, err := l.pool.Query(ctx, sql, args...)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	page, err := collectEvents(rows, p.Limit)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	return page, nil
}

// Prefix reads a page of the log of a run of whichever project, with payloads, up to the position and with it.
func (l *Log) Prefix(ctx context.Context, runID entities.RunID, upTo int64, p pg.Page) (EventPage, error) {
	return l.eventsWhere(ctx, p, WithPayloads, `run_id = $1 AND seq <= $2`, runID, upTo)
}

// Step reads a step. It fails with [entities.ErrStepNotFound].
func (l *Log) Step(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.StepID,
) (StepState, error) {
	var b pgx.Batch
	steps := map[entities.StepID]entities.Step{}
	var run *entities.Run
	var created []entities.Event
	store.LoadRun(&b, project, runID, &run)
	store.LoadSteps(&b, runID, []entities.StepID{id}, steps)
	b.Queue(`
		SELECT `+WithPayloads.columns()+` FROM events
		WHERE run_id = $1 AND seq = (SELECT created_seq FROM steps WHERE run_id = $1 AND id = $2)`, runID, id,
	).Query(func(rows pgx.Rows) (err error) {
		created, err = pgx.CollectRows(rows, pgx.RowToStructByName[entities.Event])
		return err
	})
	if err := l.pool.SendBatch(ctx, &b).Close(); err != nil {
		return StepState{}, fmt.Errorf("read step %s: %w", id, err)
	}
	if run == nil || len(created) == 0 || len(steps) == 0 { // it may come and go between two of the reads
		return StepState{}, fmt.Errorf("read step %s: %w", id, entities.ErrStepNotFound)
	}
	return StepState{steps[id], created[0], *run}, nil
}

// Event reads one event of a run. It fails with [entities.ErrEventNotFound].
func (l *Log) Event(
	ctx context.Context, project entities.Project, runID entities.RunID, seq int64,
) (entities.Event, error) {
	rows, err := l.pool.Query(ctx, `
		SELECT `+WithPayloads.columns()+` FROM events
		WHERE run_id = (SELECT id FROM runs WHERE `+store.OfRun+`) AND seq = $3`, runID, project, seq)
	if err != nil {
		return entities.Event{}, fmt.Errorf("read event: %w", err)
	}
	event, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[entities.Event])
	if errors.Is(err, pgx.ErrNoRows) {
		err = entities.ErrEventNotFound
	}
	if err != nil {
		return entities.Event{}, fmt.Errorf("read event %d of %s: %w", seq, runID, err)
	}
	return event, nil
}

// Fit reports how many of the groups of events, from the first on, are no more than a page together; one always
// is. Rows that bring events along are listed so many at a time.
func (l *Log) Fit(ctx context.Context, groups [][]Position, with Payloads) (int, error) {
	if len(groups) < 2 {
		return len(groups), nil
	}
	var runIDs []string
	var seqs []int64
	var of []int // the group of each
	for i, group := range groups {
		for _, p := range group {
			runIDs, seqs, of = append(runIDs, string(p.RunID)), append(seqs, p.Seq), append(of, i)
		}
	}
	var fit int
	err := l.pool.QueryRow(ctx, `
		WITH sized AS (
			SELECT wanted.of, sum(
				coalesce(octet_length(extra), 0) + CASE WHEN $4 THEN coalesce(octet_length(payload), 0) ELSE 0 END
			) OVER (ORDER BY wanted.of) AS size
			FROM unnest($1::text[], $2::bigint[], $3::int[]) AS wanted (run, position, of), `+lookUpEach+`
		)
		SELECT coalesce(min(of) FILTER (WHERE size > $5), $6) FROM sized`,
		runIDs, seqs, of, with == WithPayloads, MaxPageBytes, len(groups)).Scan(&fit)
	if err != nil {
		return 0, fmt.Errorf("measure events: %w", err)
	}
	return max(1, fit), nil
}

// EventsAt reads the events at the given positions, which the caller has from entities it may see.
// Positions without an event are left out.
func (l *Log) EventsAt(ctx context.Context, at []Position, with Payloads) (map[Position]entities.Event, error) {
	if len(at) == 0 {
		return nil, nil
	}
	runIDs, seqs := make([]string, len(at)), make([]int64, len(at))
	for i, p := range at {
		runIDs[i], seqs[i] = string(p.RunID), p.Seq
	}
	rows, err := l.pool.Query(ctx, `
		SELECT `+with.columns()+`
		FROM unnest($1::text[], $2::bigint[]) AS wanted (run, position), `+lookUpEach, runIDs, seqs)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[entities.Event])
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	found := make(map[Position]entities.Event, len(events))
	for _, e := range events {
		found[Position{e.RunID, e.Seq}] = e
	}
	return found, nil
}
