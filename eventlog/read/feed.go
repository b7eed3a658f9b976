package read

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// EventQuery says which events are asked for; empty fields match everything.
type EventQuery struct {
	Types         []entities.EventType
	CorrelationID string
	// RunID is for events of a project only.
	RunID entities.RunID
	// Created bounds when the events were; it includes both ends.
	Created store.Window
	// After is for events of one run only: those up to this position are left out.
	After int64
}

func (q EventQuery) validate() error {
	for _, t := range q.Types {
		if !slices.Contains(entities.EventTypes, t) {
			return entities.Invalid("%q is not a type an event can have", t)
		}
	}
	from, to := q.Created.From, q.Created.To
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return entities.Invalid("the time window ends before it starts")
	}
	return nil
}

// Entry is an event of a list.
type Entry struct {
	entities.Event

	// Size is how many bytes the payload has. One above [MaxListedPayload] is left out, and so are all when the list is
	// without payloads.
	Size int64
	// Xid is the event's place among the transactions.
	Xid uint64
}

// MaxListed is the size in bytes up to which payloads come in lists.
const MaxListedPayload = 1 << 20

// Listing is one page of a list of events.
type Listing struct {
	Entries []Entry
	// More says that the list goes on, and Cursor where the next page begins.
	More   bool
	Cursor string
}

// Place is where a reader of a project's events stands: behind the event that is there. The zero Place is before
// all of them.
type FeedCursor struct {
	xid   uint64
	runID entities.RunID
	seq   int64
}

// PlaceOf is the place of a reader of a project's events who has read up to the entry.
func FeedCursorOf(e Entry) FeedCursor { return FeedCursor{e.Xid, e.RunID, e.Seq} }

// String is the place as a cursor.
func (p FeedCursor) String() string {
	return strconv.FormatUint(p.xid, 10) + ":" + string(p.runID) + ":" + strconv.FormatInt(p.seq, 10)
}

// ParsePlace reads a cursor. It fails with [entities.ErrInvalid].
func ParseFeedCursor(cursor string) (FeedCursor, error) {
	fail := func() (FeedCursor, error) {
		return FeedCursor{}, &pg.CursorError{Cursor: cursor}
	}
	first, last := strings.IndexByte(cursor, ':'), strings.LastIndexByte(cursor, ':')
	if first < 0 || first == last {
		return fail()
	}
	xid, err := strconv.ParseUint(cursor[:first], 10, 63)
	if err != nil {
		return fail()
	}
	seq, err := strconv.ParseInt(cursor[last+1:], 10, 64)
	runID := cursor[first+1 : last]
	if err != nil || seq < 0 || (runID != "" && entities.ValidateID("run ID", runID) != nil) {
		return fail()
	}
	return FeedCursor{xid, entities.RunID(runID), seq}, nil
}

// RunEvents reads a page of a run's log, in its order; a cursor is a position. It fails with
// [entities.ErrRunNotFound] and [entities.ErrInvalid].
func (l *Log) RunEvents(
	ctx context.Context, project entities.Project, runID entities.RunID, q EventQuery, p pg.Page, with Payloads,
) (Listing, error) {
	if err := q.validate(); err != nil {
		return Listing{}, err
	}
	s := search{EventQuery: q, Page: p, with: with, maxBytes: MaxPageBytes, project: project}
	var err error
	if p.Cursor != "" {
		if s.from.seq, err = parseSeq(p.Cursor); err != nil {
			return Listing{}, err
		}
	}
	listing, err := s.readRun(ctx, l.pool, runID)
	if err != nil {
		return Listing{}, fmt.Errorf("list events of %s: %w", runID, err)
	}
	if len(listing.Entries) == 0 {
		_, err = store.RunByID(ctx, l.pool, project, runID)
	}
	if listing.More {
		listing.Cursor = strconv.FormatInt(listing.Entries[len(listing.Entries)-1].Seq, 10)
	}
	return listing, err
}

func parseSeq(cursor string) (int64, error) {
	seq, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || seq < 0 {
		return 0, &pg.CursorError{Cursor: cursor}
	}
	return seq, nil
}

// ProjectEvents reads a page of all events of a project, in their order; a cursor is a [FeedCursor]. It fails with
// [entities.ErrInvalid].
func (l *Log) ProjectEvents(
	ctx context.Context, project entities.Project, q EventQuery, p pg.Page, with Payloads,
) (Listing, error) {
	if err := q.validate(); err != nil {
		return Listing{}, err
	}
	s := search{EventQuery: q, Page: p, with: with, maxBytes: MaxPageBytes, project: project}
	if p.Cursor != "" {
		at, err := ParseFeedCursor(p.Cursor)
		if err != nil {
			return Listing{}, err
		}
		s.from = at
	}
	listing, _, err := s.readFeed(ctx, l.pool)
	if listing.More {
		listing.Cursor = FeedCursorOf(listing.Entries[len(listing.Entries)-1]).String()
	}
	return listing, err
}
