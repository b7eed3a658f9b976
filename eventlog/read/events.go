package read

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// EventPage is one page of a log.
type EventPage struct {
	Events []entities.Event
	// More is set if more events follow.
	More bool
}

const eventCursorPrefix = "eid:"

// EventCursor returns the cursor of a list that was read up to the event, inclusive (protocol §2.4).
func EventCursor(e entities.Event) string { return EventCursorAt(e.Seq) }

// EventCursorAt returns the cursor of a list that was read up to the position, inclusive.
func EventCursorAt(seq int64) string {
	return eventCursorPrefix + string(entities.Event{Seq: seq}.ID())
}

// ParseEventCursor returns the position in the cursor of a list of events, or in an event ID. It fails with
// [entities.ErrInvalid].
func ParseEventCursor(cursor string) (int64, error) {
	seq, err := entities.EventID(strings.TrimPrefix(cursor, eventCursorPrefix)).Seq()
	if err != nil {
		return 0, pg.BadCursor(cursor)
	}
	return seq, nil
}

// inRun selects the events of run $1 if project $2 has it.
const inRun = `run_id = (SELECT id FROM runs WHERE ` + store.OfRun + `)`

// Events reads a page of a run's log. The cursor is [EventCursor] of the last event read. Events fails with
// [entities.ErrRunNotFound] if the project has no such run, and with [entities.ErrInvalid] on an invalid cursor.
func (l *Log) Events(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page, with Payloads,
) (EventPage, error) {
	page, err := l.Rows(ctx, project, runID, p, with)
	return page.events(), err
}

// Rows is [Log.Events] for callers that only encode the events.
func (l *Log) Rows(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page, with Payloads,
) (RowPage, error) {
	page, err := l.logRows(ctx, p, with, inRun, runID, project)
	if err != nil || len(page.Rows) > 0 {
		return page, err
	}
	if _, err := store.RunByID(ctx, l.pool, project, runID); err != nil || p.Cursor != "" {
		return page, err
	}
	// No run is without events, so this one was created between the two reads.
	return l.logRows(ctx, p, with, inRun, runID, project)
}

// EventsWithin reads the page of a run's log after a position, with payloads, that has at most a number of bytes of
// payloads and extra data: none if the first event is larger. It does not ask which project has the run.
func (l *Log) EventsWithin(
	ctx context.Context, runID entities.RunID, after int64, limit, maxBytes int,
) (page EventPage, err error) {
	rows, err := l.pool.Query(ctx, `SELECT `+sizedColumns(`$3`)+` FROM (
			SELECT * FROM events WHERE run_id = $1 AND seq > $2 AND seq <= $2 + $4 ORDER BY seq LIMIT $4
		) AS page ORDER BY seq`, runID, after, maxBytes, limit+1)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	sized, more, err := collectPage(rows, limit, maxBytes+1, func(s *eventScanner, r *sizedRow) (int, error) {
		err := s.scan(&r.Row)
		r.size = int(s.size) + len(r.Extra)
		return r.size, err
	})
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	left := maxBytes
	for i := range sized {
		if left -= sized[i].size; left < 0 {
			return EventPage{page.Events, true}, nil
		}
		page.Events = append(page.Events, sized[i].Event())
	}
	page.More = more
	return page, nil
}

// EventsByCorrelation reads a page of the events of one run that share a correlation ID. With an empty runID it finds
// the run in the project. Cursors are as for [Log.Events]. A missing run has no events; that is not an error.
func (l *Log) EventsByCorrelation(
	ctx context.Context, project entities.Project, runID entities.RunID, correlationID string,
	p pg.Page, with Payloads,
) (EventPage, error) {
	page, err := l.RowsByCorrelation(ctx, project, runID, correlationID, p, with)
	return page.events(), err
}

// RowsByCorrelation is [Log.EventsByCorrelation] for callers that only encode the events.
func (l *Log) RowsByCorrelation(
	ctx context.Context, project entities.Project, runID entities.RunID, correlationID string,
	p pg.Page, with Payloads,
) (RowPage, error) {
	// Correlation IDs are ULIDs: several runs share one only if a client wants that. Then one of the runs is chosen,
	// because a cursor is a position in a single log.
	return l.rowsWhere(ctx, p, with, `correlation_id = $1 AND correlation_id <> '' AND run_id = (
		SELECT e.run_id FROM events e JOIN runs r ON r.id = e.run_id
		WHERE e.correlation_id = $1 AND e.correlation_id <> ''
			AND r.project IS NOT DISTINCT FROM $2 AND ($3::text = '' OR e.run_id = $3)
		ORDER BY e.run_id LIMIT 1)`, correlationID, project, runID)
}

// logRows is [Log.rowsWhere] for a list that leaves out no event in the middle of the log.
func (l *Log) logRows(
	ctx context.Context, p pg.Page, with Payloads, where string, args ...any,
) (RowPage, error) {
	from := int64(0)
	if p.Cursor != "" {
		var err error
		if from, err = ParseEventCursor(p.Cursor); err != nil {
			return RowPage{}, err
		}
	}
	all := pg.Args(args)
	where += pageEnd(p, from, &all)
	return l.rowsWhere(ctx, p, with, where, all...)
}

// rowsWhere reads a page of the events of one run that match the condition. Payloads that are small together, as they
// mostly are, come with the events. Otherwise the events come alone, with the sizes of their payloads, and are read
// again with these once there is memory for them.
func (l *Log) rowsWhere(
	ctx context.Context, p pg.Page, with Payloads, where string, args ...any,
) (RowPage, error) {
	q := eventQuery{limit: p.Limit, args: args}
	order, after := p.Order()
	if p.Cursor != "" {
		from, err := ParseEventCursor(p.Cursor)
		if err != nil {
			return RowPage{}, err
		}
		where += ` AND seq ` + after + ` ` + q.args.Add(from)
	}
	q.from = ` FROM events WHERE ` + where + ` ORDER BY seq ` + order + ` LIMIT ` + q.args.Add(p.Limit+1)
	if with == WithoutPayloads {
		page, err := l.rowPage(ctx, unsizedColumns, q)
		return page.RowPage, err
	}
	page, err := l.rowPage(ctx, q.columnsIfSmall(with), q.with(freeLimit(ctx)))
	if err == nil && page.size > freeBytes {
		err = TakeMemory(ctx, page.size)
	}
	if err != nil || !page.incomplete {
		return page.RowPage, err
	}
	q.args[len(q.args)-1] = len(page.Rows)
	complete, err := l.rowPage(ctx, with.columns(), q)
	// Events that were appended meanwhile are the first of a page in descending order, and push others out of it.
	more := page.More || len(complete.Rows) < len(page.Rows) || complete.Last() != page.Last()
	return RowPage{complete.Rows, more}, err
}

// sizedRow is a row with the size of its payload and its extra data in bytes.
type sizedRow struct {
	Row

	size int
}

// eventQuery is a query for a page of the events of one run, without its columns. Its last argument is how many rows it
// has at most: one more than the page.
type eventQuery struct {
	from  string
	args  pg.Args
	limit int // of the page
}

// with returns the query with one more argument.
func (q eventQuery) with(arg any) eventQuery {
	q.args = append(slices.Clip(q.args), arg)
	return q
}

// columnsIfSmall returns columns with payloads if these have at most a number of bytes together: the argument after
// those of the query.
func (q eventQuery) columnsIfSmall(with Payloads) string {
	payload := with.column()
	return EventColumns + `, ` + with.size() + ` AS size, CASE WHEN (
		SELECT coalesce(sum(size), 0) FROM (SELECT ` + with.size() + ` AS size` + q.from + `) AS page
	) <= $` + strconv.Itoa(len(q.args)+1) + ` THEN ` + payload + ` END AS payload`
}

// sizedPage is a page with its size in bytes.
type sizedPage struct {
	RowPage

	size int64
	// incomplete is set if payloads were left out.
	incomplete bool
}

// rowPage executes a query of one page.
func (l *Log) rowPage(ctx context.Context, columns string, q eventQuery) (page sizedPage, err error) {
	rows, err := l.pool.Query(ctx, `SELECT `+columns+q.from, q.args...)
	if err != nil {
		return page, fmt.Errorf("list events: %w", err)
	}
	page.Rows, page.More, err = collectPage(rows, q.limit, MaxPageBytes, func(s *eventScanner, r *Row) (int, error) {
		err := s.scan(r)
		size := int(s.size) + len(r.Extra)
		page.size += int64(size)
		page.incomplete = page.incomplete || s.size > 0 && r.Payload == nil
		return size, err
	})
	return page, pg.Wrap(err, "list events")
}

// Prefix reads a page of a run's log up to the position, inclusive, with payloads. It does not ask which project has
// the run.
func (l *Log) Prefix(ctx context.Context, runID entities.RunID, upTo int64, p pg.Page) (EventPage, error) {
	page, err := l.logRows(ctx, p, WithPayloads, `run_id = $1 AND seq <= $2`, runID, upTo)
	return page.events(), err
}

// storedRow is a row whose payload is as the database has it: nothing opens it.
type storedRow struct{ row Row }

// Portable reads a page of a run's log after a position and up to another one, with payloads as they are stored, but
// none outside of the database: see package atrest. It does not ask which project has the run.
func (l *Log) Portable(ctx context.Context, runID entities.RunID, after, upTo int64) ([]entities.Event, error) {
	rows, err := l.pool.Query(ctx, `SELECT `+EventColumns+`, payload FROM (
			SELECT *, `+fits(PayloadSize, `seq`, MaxPageBytes)+` AS fits FROM (
				SELECT * FROM events WHERE run_id = $1 AND seq > $2 AND seq <= least($3, $2 + $4) ORDER BY seq LIMIT $4) AS page
		) AS measured WHERE fits ORDER BY seq`, runID, after, upTo, pg.MaxPage)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	codec := pg.CodecOf(rows)
	stored, _, err := collectPage(rows, pg.MaxPage, MaxPageBytes, func(s *eventScanner, r *storedRow) (int, error) {
		err := s.scan(&r.row)
		return len(r.row.Payload), err
	})
	events := make([]entities.Event, len(stored))
	for i := range stored {
		events[i] = stored[i].row.Event()
	}
	if err == nil {
		err = pg.Embed(codec, events)
	}
	return events, pg.Wrap(err, "list events")
}

// EventFilter filters the events of a run. Empty fields match everything.
type EventFilter struct {
	Type entities.EventType
	// CorrelationID is the ID of the step, hook, wait or attribute change that the events are about.
	CorrelationID string
}

// FilteredEvents reads a page of the events of a run that match the filter, without payloads. Cursors are as for
// [Log.Events]. A run that the project does not have has no events; that is not an error.
func (l *Log) FilteredEvents(
	ctx context.Context, project entities.Project, runID entities.RunID, f EventFilter, p pg.Page,
) (EventPage, error) {
	where, args := inRun, pg.Args{runID, project}
	if f.Type != "" {
		where += ` AND type = ` + args.Add(f.Type)
	}
	if f.CorrelationID != "" {
		where += ` AND correlation_id <> '' AND correlation_id = ` + args.Add(f.CorrelationID)
	}
	page, err := l.rowsWhere(ctx, p, WithoutPayloads, where, args...)
	return page.events(), err
}
