package read

import (
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/pg"
)

// EventColumns are the columns of an event without its payload, in the order of the fields of [entities.Event].
const EventColumns = `run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data, extra`

// MaxPageBytes ends a page early: once its payloads have as many bytes together, no further event is added.
const MaxPageBytes = 16 << 20

// Payloads selects whether a query reads the events' payloads.
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

// pageQuery builds the query of one page of a list. The lists differ in their conditions and in their cursors.
type pageQuery struct {
	pg.Page

	args []any
}

// arg adds an argument, and returns its placeholder.
func (q *pageQuery) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

// direction returns the keyword for ORDER BY, and the operator for rows that follow a cursor.
func (q *pageQuery) direction() (order, after string) {
	if q.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// limit returns the LIMIT: one row more than the page has, to know whether more follow.
func (q *pageQuery) limit() string { return ` LIMIT ` + strconv.Itoa(q.Limit+1) }

// fits returns the condition that the rows before this one, in the order, have less than maxBytes in total. Payloads
// beyond the end of the page are then left in the database: they may be many times the size of the page.
func fits(size, order string, maxBytes int) string {
	return fmt.Sprintf(`coalesce(sum(%s) OVER (ORDER BY %s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < %d`,
		size, order, maxBytes)
}

// collectPage reads rows until there are limit of them, or their sizes reach maxBytes. Either way it tries to read one
// more, to report whether more follow.
func collectPage[T any](rows pgx.Rows, limit, maxBytes int, size func(T) int) (items []T, more bool, err error) {
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		if len(items) == limit || bytes >= maxBytes {
			more = true
			break
		}
		item, err := pgx.RowToStructByName[T](rows)
		if err != nil {
			return nil, false, err
		}
		bytes += size(item)
		items = append(items, item)
	}
	rows.Close()
	return items, more, rows.Err()
}
