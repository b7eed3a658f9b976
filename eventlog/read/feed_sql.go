package read

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// search builds and executes the query of one page of a run's or a project's events.
type search struct {
	EventQuery
	pageQuery

	project entities.Project
	with    Payloads
	// maxBytes ends a page early: once its payloads have as many bytes together, no further event is added.
	maxBytes int
	// loaded is how many bytes of payloads are loaded; the others are left out.
	loaded int64
	// from is the parsed cursor. For the events of a run it has a position only.
	from FeedCursor
	// common is set if more than fewEvents, of all projects, have the correlation ID.
	common bool
}

// fewEvents is how many events with a correlation ID are sorted for a page, in some 15 ms. IDs of steps are often names
// that each run has: their events are found soon in the order of the feed.
const fewEvents = 10_000

// newSearch returns a search for a page of up to [MaxPageBytes]. It fails with [entities.ErrInvalid].
func newSearch(project entities.Project, q EventQuery, p pg.Page, with Payloads) (*search, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	return &search{
		EventQuery: q, pageQuery: pageQuery{Page: p}, project: project, with: with, maxBytes: MaxPageBytes,
		loaded: unlimited,
	}, nil
}

// newFollowSearch returns a search for the events that a follower reads at a time.
func newFollowSearch(project entities.Project, q EventQuery, with Payloads) (*search, error) {
	s, err := newSearch(project, q, pg.Page{Limit: followEvents}, with)
	if err == nil {
		s.maxBytes = followBytes
	}
	return s, err
}

// conditions returns the condition on a project's events, except for their types, run and cursor.
func (s *search) conditions() string {
	return ` WHERE project = ` + s.args.Add(s.project) + s.filters()
}

// everyEvent reports whether the query leaves out no event in the middle of a log.
func (s *search) everyEvent() bool {
	return s.CorrelationID == "" && len(s.Types) == 0 && s.Created == store.Window{}
}

// filters returns the condition on the correlation ID and the time, preceded by " AND ".
func (s *search) filters() string {
	sql := ""
	if s.CorrelationID != "" && !s.common {
		sql += ` AND correlation_id <> '' AND correlation_id = ` + s.args.Add(s.CorrelationID)
	}
	if from := s.Created.From; !from.IsZero() {
		sql += ` AND created_at >= ` + s.args.Add(from)
	}
	if to := s.Created.To; !to.IsZero() {
		sql += ` AND created_at <= ` + s.args.Add(to)
	}
	return sql
}

func (s *search) ofTypes() string {
	if len(s.Types) == 0 {
		return ""
	}
	return ` AND type = ANY(` + s.args.Add(s.Types) + `)`
}

const feedColumns = EventColumns + `, xid, ` + PayloadSize + ` AS size, payload`

// ofRun returns a query for the first events of a run after the cursor. It has no condition on the project of events:
// by the index that has it, Postgres would read all of a young table, or sort the log for each page.
func (s *search) ofRun(runID entities.RunID) string {
	order, after := s.Order()
	s.args = pg.Args{runID, s.project} // of inRun
	where := ` WHERE ` + inRun + s.filters() + s.ofTypes()
	if s.After > 0 {
		where += ` AND seq > ` + s.args.Add(s.After)
	}
	if s.Cursor != "" {
		where += ` AND seq ` + after + ` ` + s.args.Add(s.from.seq)
	}
	if s.everyEvent() {
		begin := s.from.seq
		if !s.Descending {
			begin = max(begin, s.After)
		}
		where += pageEnd(s.Page, begin, &s.args)
	}
	return `SELECT ` + feedColumns + ` FROM events` + where + ` ORDER BY seq ` + order + s.limit()
}

// afterCursor returns the condition that events follow the cursor, and that no open transaction can add one before
// them.
func (s *search) afterCursor() string {
	sql := ` AND xid < ` + pg.FeedPosition(`pg_snapshot_xmin(pg_current_snapshot())`)
	if s.Cursor == "" && s.from == (FeedCursor{}) {
		return sql
	}
	_, after := s.Order()
	return sql + fmt.Sprintf(` AND (xid, run_id, seq) %s (%s::text::xid8, %s, %s)`,
		after, s.args.Add(strconv.FormatUint(s.from.xid, 10)), s.args.Add(s.from.runID), s.args.Add(s.from.seq))
}

// feedOrder returns the order of a project's events.
func (s *search) feedOrder() string {
	order, _ := s.Order()
	return fmt.Sprintf(`xid %[1]s, run_id %[1]s, seq %[1]s`, order)
}

// ofProject returns a query for the first events of a project after the cursor. The index has the transactions in this
// order for one type at a time. The query merges several types, so that it reads little more than its results even if
// types are rare.
func (s *search) ofProject() string {
	tail := ` ORDER BY ` + s.feedOrder() + s.limit()
	where := s.conditions() + s.afterCursor()
	switch {
	case s.RunID != "": // the log of the run has the same order
		order, _ := s.Order()
		return `SELECT ` + feedColumns + ` FROM events` + where + s.ofTypes() + ` AND run_id = ` + s.args.Add(s.RunID) +
			s.afterSeq() + ` ORDER BY seq ` + order + s.limit()
	case s.CorrelationID != "" && !s.common:
		return `SELECT ` + feedColumns + ` FROM events` + where + s.ofTypes() + tail
	}
	order, _ := s.Order()
	order = ` ORDER BY xid ` + order
	first := order + ` FETCH FIRST ` + strconv.Itoa(s.Limit+1) + ` ROWS WITH TIES`
	if !s.common {
		return `SELECT * FROM (` + s.merged(where, first, first) + `) feed` + tail
	}
	// OFFSET keeps Postgres from looking for the ID in each type: one that never has it would be read to its end.
	return `SELECT * FROM (SELECT * FROM (` + s.merged(where, order, order+` OFFSET 0`) + `) feed
		WHERE correlation_id = ` + s.args.Add(s.CorrelationID) + first + `) feed` + tail
}

// merged returns a query that merges the events of several types, in the order of their transactions; tail ends the
// query, and tailOfType that of one type.
func (s *search) merged(where, tailOfType, tail string) string {
	parts := make([]string, 0, len(entities.EventTypes))
	for _, t := range s.types() {
		parts = append(parts, `(SELECT `+feedColumns+` FROM events`+where+` AND type = `+s.args.Add(t)+tailOfType+`)`)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, ` UNION ALL `) + tail
}

// types returns the types of the events, without duplicates.
func (s *search) types() []entities.EventType {
	if len(s.Types) == 0 {
		return entities.EventTypes
	}
	return slices.Compact(slices.Sorted(slices.Values(s.Types)))
}

// afterSeq returns a redundant condition that skips the part of the run's log before the cursor, if the cursor is in
// it.
func (s *search) afterSeq() string {
	if s.from.runID != s.RunID {
		return ""
	}
	_, after := s.Order()
	return ` AND seq ` + after + ` ` + s.args.Add(s.from.seq)
}

// payloads wraps a query so that it leaves out payloads: all of them in a list without payloads, else those that are
// too large and those of events beyond the end of the page.
func (s *search) payloads(query, order string) string {
	if s.with == WithoutPayloads {
		return `SELECT ` + EventColumns + `, xid, size, NULL::bytea AS payload FROM (` + query + `) listed ORDER BY ` + order
	}
	listed := strconv.Itoa(MaxListedPayload)
	inPage := fits(`least(size, `+listed+`)`, order, s.maxBytes)
	loaded := withinLimit(`CASE WHEN size <= `+listed+` THEN size END`, order, s.args.Add(s.loaded))
	return `SELECT ` + EventColumns + `, xid, size, CASE WHEN size <= ` + listed + ` AND ` + inPage + ` AND ` + loaded +
		` THEN payload END AS payload
		FROM (` + query + `) listed ORDER BY ` + order
}

// allPayloads wraps a query of a run's events so that it has all payloads that are not too large, if they are few bytes
// together, and else none. Of 1,000 events that takes Postgres 0.6 ms, and [search.payloads] 1.4 ms.
func (s *search) allPayloads(query, order string) string {
	listed := strconv.Itoa(MaxListedPayload)
	return `SELECT ` + EventColumns + `, xid, size, CASE WHEN size <= ` + listed + ` AND (
			SELECT coalesce(sum(size) FILTER (WHERE size <= ` + listed + `), 0) FROM (` + query + `) page
		) <= ` + s.args.Add(s.loaded) + ` THEN payload END AS payload
		FROM (` + query + `) listed ORDER BY ` + order
}

// readRun reads the next page of a run's events.
func (s *search) readRun(ctx context.Context, q pg.Querier, runID entities.RunID) (Listing, error) {
	order, _ := s.Order()
	wrap := s.payloads
	if s.with == WithPayloads && s.loaded <= freeBytes {
		wrap = s.allPayloads
	}
	sql := wrap(s.ofRun(runID), `seq `+order)
	rows, err := q.Query(ctx, sql, s.args...)
	if err != nil {
		return Listing{}, err
	}
	return s.collect(rows)
}

// size returns the size in bytes of the payloads in a page, without those that are too large for a list. If some were
// left out, it is more than [freeBytes], and the page is read again.
func (s *search) size(page Listing) (total int64) {
	missing := false
	for i := range page.Entries {
		if e := &page.Entries[i]; s.with == WithPayloads && e.Size <= MaxListedPayload {
			total += e.Size
			missing = missing || e.Size > 0 && e.Payload == nil
		}
	}
	if missing {
		return max(total, freeBytes+1)
	}
	return total
}

// loadPage reads a page, and takes memory for its payloads.
func (s *search) loadPage(ctx context.Context, read func(s search) (Listing, error)) (page Listing, err error) {
	err = loadCounted(ctx, func(limit int64) (int64, error) {
		attempt := *s
		attempt.loaded = limit
		page, err = read(attempt)
		return s.size(page), err
	})
	return page, err
}

// collect reads the entries of a page.
func (s *search) collect(rows pgx.Rows) (Listing, error) {
	entries, more, err := collectPage(rows, s.Limit, s.maxBytes, s.scan)
	return Listing{Entries: entries, More: more}, err
}

// scan scans an entry, and returns how many bytes it has of a page.
func (s *search) scan(row *eventScanner, e *Entry) (int, error) {
	err := row.scan(&e.Row)
	e.Size, e.Xid = row.size, row.xid
	if s.with == WithoutPayloads {
		return 0, err
	}
	return int(min(e.Size, MaxListedPayload)) + len(e.Extra), err
}

// horizon separates the events of a project that can be listed from those that must wait for open transactions.
type horizon struct {
	// end is the place of the oldest transaction that was open. All events before it are committed.
	end FeedCursor
	// blocked is set if there are committed events after it, which cannot be listed yet.
	blocked bool
}

// findCommon finds out whether the correlation ID is common.
func (s *search) findCommon(ctx context.Context, pool pg.Pool) error {
	if s.CorrelationID == "" || s.RunID != "" {
		return nil
	}
	return pool.QueryRow(ctx, commonSQL, s.CorrelationID, fewEvents).Scan(&s.common)
}

// commonSQL counts in the order of the index, as a scan of the table would read all before the first one. It counts the
// events of all projects: the index does not have the project, and all of the table may be another's.
const commonSQL = `SELECT EXISTS (
	SELECT FROM events WHERE correlation_id = $1 AND correlation_id <> '' ORDER BY run_id LIMIT 1 OFFSET $2)`

// readFeed reads the next page of the project's events, and the horizon just before. It fails with [ErrCursorLost].
func (s *search) readFeed(ctx context.Context, pool pg.Pool) (Listing, horizon, error) {
	var (
		h    horizon
		page Listing
		b    pgx.Batch
	)
	if err := s.findCommon(ctx, pool); err != nil {
		return Listing{}, h, fmt.Errorf("list events: %w", err)
	}
	b.Queue(`SELECT `+boundColumns+`, EXISTS (
			SELECT FROM events WHERE project = $2 AND type = ANY($3) AND xid >= bounds.oldest::text::xid8)
		FROM (`+boundsSQL+`) bounds`, s.from.epoch, s.project, entities.EventTypes).QueryRow(func(row pgx.Row) error {
		var now bounds
		if err := row.Scan(append(now.columns(), &h.blocked)...); err != nil {
			return err
		}
		h.end = now.end()
		return now.check(s.from)
	})
	query := s.payloads(s.ofProject(), s.feedOrder())
	var open func() error
	b.Queue(query, s.args...).Query(func(rows pgx.Rows) (err error) {
		page.Entries, page.More, open, err = collectUnopened(rows, s.Limit, s.maxBytes, s.scan)
		for i := range page.Entries {
			page.Entries[i].epoch = h.end.epoch
		}
		return err
	})
	err := pool.Run(ctx, &b)
	if err == nil {
		err = open()
	}
	if err != nil {
		return Listing{}, h, fmt.Errorf("list events: %w", err)
	}
	return page, h, nil
}
