package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// feedSearch is one look at a list of events.
type search struct {
	EventQuery
	pg.Page

	project entities.Project
	with    Payloads
	// most ends a page early once its payloads are this large together.
	maxBytes int
	// at is where the page begins; of a run's log only the position counts.
	from   FeedCursor
	args []any
}

func (s *search) arg(v any) string {
	s.args = append(s.args, v)
	return "$" + strconv.Itoa(len(s.args))
}

func (s *search) order() (keyword, after string) {
	if s.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// where is the condition on an event to match, but for its run and place.
func (s *search) conditions() string {
	sql := ` WHERE project = ` + s.arg(s.project)
	if s.CorrelationID != "" {
		sql += ` AND correlation_id <> '' AND correlation_id = ` + s.arg(s.CorrelationID)
	}
	if from := s.Created.From; !from.IsZero() {
		sql += ` AND created_at >= ` + s.arg(from)
	}
	if to := s.Created.To; !to.IsZero() {
		sql += ` AND created_at <= ` + s.arg(to)
	}
	return sql
}

func (s *search) ofTypes() string {
	if len(s.Types) == 0 {
		return ""
	}
	return ` AND type = ANY(` + s.arg(s.Types) + `)`
}

const feedColumns = EventColumns + `, xid, coalesce(octet_length(payload), 0) AS size, payload`

// ofRun is a query for the first events of a run that follow the place.
func (s *search) ofRun(runID entities.RunID) string {
	keyword, after := s.order()
	where := s.conditions() + s.ofTypes() + ` AND run_id = ` + s.arg(runID)
	if s.After > 0 {
		where += ` AND seq > ` + s.arg(s.After)
	}
	if s.Cursor != "" {
		where += ` AND seq ` + after + ` ` + s.arg(s.from.seq)
	}
	return `SELECT ` + feedColumns + ` FROM events` + where + ` ORDER BY seq ` + keyword + s.limit()
}

func (s *search) limit() string { return ` LIMIT ` + strconv.Itoa(s.Limit+1) }

// beyond is the condition on an event to follow the place, and to be where nothing can come any more.
func (s *search) afterCursor() string {
	sql := ` AND xid < pg_snapshot_xmin(pg_current_snapshot())`
	if s.Cursor == "" && s.from == (FeedCursor{}) {
		return sql
	}
	_, after := s.order()
	return sql + fmt.Sprintf(` AND (xid, run_id, seq) %s (%s::text::xid8, %s, %s)`,
		after, s.arg(strconv.FormatUint(s.from.xid, 10)), s.arg(s.from.runID), s.arg(s.from.seq))
}

// ofProject is a query for the first events of a project that follow the place. An index has them in their order
// for one type at a time: those of several are merged, so that whatever is rare, little but results is read.
func (s *search) ofProject() string {
	keyword, _ := s.order()
	tail := fmt.Sprintf(` ORDER BY xid %[1]s, run_id %[1]s, seq %[1]s`, keyword) + s.limit()
	where := s.conditions() + s.afterCursor()
	switch {
	case s.RunID != "": // whose log has the same order
		return `SELECT ` + feedColumns + ` FROM events` + where + s.ofTypes() + ` AND run_id = ` + s.arg(s.RunID) +
			s.afterSeq() + ` ORDER BY seq ` + keyword + s.limit()
	case s.CorrelationID != "": // of which there are few
		return `SELECT ` + feedColumns + ` FROM events` + where + s.ofTypes() + tail
	}
	types := entities.EventTypes
	if len(s.Types) > 0 {
		types = slices.Compact(slices.Sorted(slices.Values(s.Types)))
	}
	parts := make([]string, len(types))
	for i, t := range types {
		parts[i] = `(SELECT ` + feedColumns + ` FROM events` + where + ` AND type = ` + s.arg(t) + tail + `)`
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, ` UNION ALL `) + tail
}

// fromSeq spares the part of a run's log that lies before a place in it.
func (s *search) afterSeq() string {
	if s.from.runID != s.RunID {
		return ""
	}
	_, after := s.order()
	return ` AND seq ` + after + ` ` + s.arg(s.from.seq)
}

// payloads leaves out what does not come of the payloads of the events that a query has: those that are too large,
// and those behind the one that fills the page.
func (s *search) payloads(query, order string) string {
	if s.with == WithoutPayloads {
		return `SELECT ` + EventColumns + `, xid, size, NULL::bytea AS payload FROM (` + query + `) listed ORDER BY ` + order
	}
	return fmt.Sprintf(`
		SELECT %s, xid, size, CASE WHEN size <= %d AND coalesce(sum(least(size, %[2]d)) OVER (
				ORDER BY %s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < %d THEN payload END AS payload
		FROM (%s) listed ORDER BY %[3]s`, EventColumns, MaxListedPayload, order, s.maxBytes, query)
}

// readRun reads the next page of a run's events.
func (s *search) readRun(ctx context.Context, q pg.Querier, runID entities.RunID) (Listing, error) {
	keyword, _ := s.order()
	rows, err := q.Query(ctx, s.payloads(s.ofRun(runID), `seq `+keyword), s.args...)
	if err != nil {
		return Listing{}, err
	}
	return s.collect(rows)
}

// collect reads entries until there are as many as asked for or their payloads fill a page; either way it looks at
// one more row to know whether the list goes on.
func (s *search) collect(rows pgx.Rows) (Listing, error) {
	defer rows.Close()
	var page Listing
	size := 0
	for rows.Next() {
		if len(page.Entries) == s.Limit || size >= s.maxBytes {
			page.More = true
			break
		}
		e, err := pgx.RowToStructByName[Entry](rows)
		if err != nil {
			return Listing{}, err
		}
		if s.with == WithPayloads {
			size += int(min(e.Size, MaxListedPayload)) + len(e.Extra)
		}
		page.Entries = append(page.Entries, e)
	}
	rows.Close()
	return page, rows.Err()
}

// errFuture says that the database's transactions have lower numbers than those that wrote its events.
var ErrFuture = errors.New("the events were written by another database cluster, whose transactions had higher " +
	"numbers: docs/operations.md, \"Moving to another cluster\", has the statement that mends it")

// horizon is what a reader of a project's events has in sight.
type horizon struct {
	// low is the oldest transaction that was open: all events of those before it are there.
	xmin uint64
	// held says that there are events behind it, which are yet to be read.
	blocked bool
}

// readFeed reads the next page of the project's events, and what was in sight just before.
func (s *search) readFeed(ctx context.Context, pool *pgxpool.Pool) (Listing, horizon, error) {
	var (
		h      horizon
		future bool
		page   Listing
		b      pgx.Batch
	)
	b.Queue(`
		SELECT pg_snapshot_xmin(now), `+existsFromXid(`pg_snapshot_xmin(now)`)+`, `+existsFromXid(`pg_snapshot_xmax(now)`)+`
		FROM pg_current_snapshot() now`, s.project, entities.EventTypes).QueryRow(func(row pgx.Row) error {
		return row.Scan(&h.xmin, &h.blocked, &future)
	})
	keyword, _ := s.order()
	query := s.payloads(s.ofProject(), fmt.Sprintf(`xid %[1]s, run_id %[1]s, seq %[1]s`, keyword))
	b.Queue(query, s.args...).Query(func(rows pgx.Rows) (err error) {
		page, err = s.collect(rows)
		return err
	})
	err := pool.SendBatch(ctx, &b).Close()
	if err == nil && future {
		err = ErrFuture
	}
	if err != nil {
		return Listing{}, h, fmt.Errorf("list events: %w", err)
	}
	return page, h, nil
}

// behind asks whether the project has events of the transaction or a later one.
func existsFromXid(xid string) string {
	return `EXISTS (SELECT FROM events WHERE project = $1 AND type = ANY($2) AND xid >= ` + xid + `)`
}
