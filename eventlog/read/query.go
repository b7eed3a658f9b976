package read

import (
	"fmt"
	"strconv"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// EventColumns are the columns of an event without its payload, in the order of the fields of [entities.Event].
const EventColumns = `run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data, extra`

// PayloadSize is the SQL of the size of an event's payload in bytes, wherever the payload is.
const PayloadSize = `coalesce(blob_size, octet_length(payload), 0)`

// MaxPageBytes ends a page early: once its payloads have as many bytes together, no further event is added.
const MaxPageBytes = 16 << 20

// Payloads selects whether a query reads the events' payloads.
type Payloads int

// The choices of [Payloads].
const (
	WithoutPayloads Payloads = iota
	WithPayloads
	// WithoutStepInputs is all payloads but the inputs of steps, for [Log.Events] and [Log.EventsByCorrelation] alone. A
	// replay does not need them, and they may be most of a log.
	WithoutStepInputs
)

func (p Payloads) columns() string { return EventColumns + `, ` + p.column() + ` AS payload` }

// column returns the SQL of an event's payload.
func (p Payloads) column() string {
	switch p {
	case WithPayloads:
		return `payload`
	case WithoutStepInputs:
		return `CASE WHEN type <> 'step_created' THEN payload END`
	default:
		return `NULL::bytea`
	}
}

// size returns the SQL of how many bytes of an event's payload are selected.
func (p Payloads) size() string {
	switch p {
	case WithPayloads:
		return PayloadSize
	case WithoutStepInputs:
		return `CASE WHEN type <> 'step_created' THEN ` + PayloadSize + ` ELSE 0 END`
	default:
		return `0`
	}
}

// Of returns an event with what is chosen of its payload.
func (p Payloads) Of(e entities.Event) entities.Event {
	if p == WithoutPayloads || p == WithoutStepInputs && e.Type == entities.EventStepCreated {
		e.Payload = nil
	}
	return e
}

// sizedEvent is an event with the size of its payload in bytes, which is known even if the payload was not loaded.
type sizedEvent struct {
	entities.Event

	Size int64
}

// unsizedColumns are the columns of a [sizedEvent] in a query without payloads.
const unsizedColumns = EventColumns + `, 0 AS size, NULL::bytea AS payload`

// sizedColumns returns the columns of a [sizedEvent]. Payloads beyond a number of bytes in total are left out; the
// argument with that number has the given placeholder.
func sizedColumns(limit string) string {
	return EventColumns + `, ` + PayloadSize + ` AS size,
		CASE WHEN sum(` + PayloadSize + `) OVER (ROWS UNBOUNDED PRECEDING) <= ` + limit + `::bigint
			THEN payload END AS payload`
}

// pageQuery builds the query of one page of a list. The lists differ in their conditions and in their cursors.
type pageQuery struct {
	pg.Page

	args pg.Args
}

// limit returns the LIMIT: one row more than the page has, to know whether more follow.
func (q *pageQuery) limit() string { return ` LIMIT ` + strconv.Itoa(q.Limit+1) }

// pageEnd returns the condition that events are not beyond the end of a page of a whole log that begins after the
// position, preceded by " AND ". Positions are dense. Without the condition, Postgres, which expects of each run as few
// events as most runs have, sorts all that is left of a long log for each page.
func pageEnd(p pg.Page, from int64, args *pg.Args) string {
	rows := int64(p.Limit) + 1
	switch {
	case !p.Descending:
		return ` AND seq <= ` + args.Add(from+rows)
	case p.Cursor != "":
		return ` AND seq >= ` + args.Add(from-rows)
	default:
		return ""
	}
}

// parsePosition parses a cursor that is a position in a run's log; 0 for the first page. It fails with
// [entities.ErrInvalid].
func parsePosition(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || position < 0 {
		return 0, pg.BadCursor(cursor)
	}
	return position, nil
}

// fits returns the condition that the rows before this one, in the order, have less than maxBytes in total. Payloads
// beyond the end of the page are then left in the database: they may be many times the size of the page.
func fits(size, order string, maxBytes int) string {
	return fmt.Sprintf(`coalesce(sum(%s) OVER (ORDER BY %s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < %d`,
		size, order, maxBytes)
}

// withinLimit returns the condition that this row and those before it, in the order, have at most a number of bytes in
// total. The argument with that number has the given placeholder.
func withinLimit(size, order, limit string) string {
	const total = `coalesce(sum(%s) OVER (ORDER BY %s ROWS UNBOUNDED PRECEDING), 0)`
	return fmt.Sprintf(total+` <= %s::bigint`, size, order, limit)
}
