package read

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// EventQuery selects events. Empty fields match everything.
type EventQuery struct {
	Types         []entities.EventType
	CorrelationID string
	// RunID is only for lists of a project's events.
	RunID entities.RunID
	// Created is the time window of the events; both ends are inclusive.
	Created store.Window
	// After is only for lists of a run's events: those up to this position are left out.
	After int64
}

func (q EventQuery) validate() error {
	for _, t := range q.Types {
		if !slices.Contains(entities.EventTypes, t) {
			return entities.Invalid("%q is not an event type", t)
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
	Row

	// Size is the size of the payload in bytes, whether or not the payload was read. Payloads larger than
	// [MaxListedPayload] are not read.
	Size int64
	// Xid is the place of the event in the order of a project's events: see [pg.FeedPosition].
	Xid uint64

	epoch string // in which the entry of a project's events was read
	texts *texts // of an entry that followers share
}

// texts are encodings of one entry, by form.
type texts struct {
	mu    sync.Mutex
	forms map[string][]byte
}

// maxSharedText limits the encodings that followers share, in bytes.
const maxSharedText = 16 << 10

// Encoded returns the encoding of the entry in a form. Followers that share the entry encode it once for each form; the
// caller must not change the result.
func (e Entry) Encoded(form string, encode func(Entry) ([]byte, error)) ([]byte, error) {
	if e.texts == nil {
		return encode(e)
	}
	e.texts.mu.Lock()
	defer e.texts.mu.Unlock()
	if text, ok := e.texts.forms[form]; ok {
		return text, nil
	}
	text, err := encode(e)
	if err == nil && len(text) <= maxSharedText {
		if e.texts.forms == nil {
			e.texts.forms = map[string][]byte{}
		}
		e.texts.forms[form] = text
	}
	return text, err
}

// withTexts lets the followers of the entries share their encodings.
func withTexts(entries []Entry) []Entry {
	for i := range entries {
		entries[i].texts = &texts{}
	}
	return entries
}

// MaxListedPayload is the size in bytes of the largest payload that is part of a list.
const MaxListedPayload = 1 << 20

// Listing is one page of a list of events.
type Listing struct {
	Entries []Entry
	// More is set if more events follow; Cursor is then the start of the next page.
	More   bool
	Cursor string
}

// FeedCursor is the cursor of a list of a project's events: the position up to which the list was read. The zero
// FeedCursor is before all events.
type FeedCursor struct {
	epoch string // empty for cursors of servers that knew no epochs
	xid   uint64 // the place of a transaction
	runID entities.RunID
	seq   int64
}

// FeedCursorOf returns the cursor of a list that was read up to the entry, inclusive.
func FeedCursorOf(e Entry) FeedCursor { return FeedCursor{e.epoch, e.Xid, e.RunID, e.Seq} }

// String returns the cursor as clients see it.
func (p FeedCursor) String() string {
	epoch := p.epoch
	if epoch != "" {
		epoch += "."
	}
	return epoch + strconv.FormatUint(p.xid, 10) + ":" + string(p.runID) + ":" + strconv.FormatInt(p.seq, 10)
}

// Compare returns the order of two cursors, which is that of the events in the database. That a
// cursor's epoch is part of its history is for the reads to check.
func (p FeedCursor) Compare(q FeedCursor) int {
	return cmp.Or(cmp.Compare(p.xid, q.xid), cmp.Compare(p.runID, q.runID), cmp.Compare(p.seq, q.seq))
}

// epochID are the IDs of epochs.
var epochID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// ParseFeedCursor is the inverse of [FeedCursor.String]. It fails with [entities.ErrInvalid].
func ParseFeedCursor(cursor string) (FeedCursor, error) {
	first, last := strings.IndexByte(cursor, ':'), strings.LastIndexByte(cursor, ':')
	if first < 0 || first == last {
		return FeedCursor{}, pg.BadCursor(cursor)
	}
	epoch, place, found := strings.Cut(cursor[:first], ".")
	if !found {
		epoch, place = "", epoch
	}
	xid, err := strconv.ParseUint(place, 10, 63)
	seq, seqErr := strconv.ParseInt(cursor[last+1:], 10, 64)
	runID := cursor[first+1 : last]
	if err != nil || seqErr != nil || seq < 0 || found && !epochID.MatchString(epoch) ||
		runID != "" && entities.ValidateID("run ID", runID) != nil {
		return FeedCursor{}, pg.BadCursor(cursor)
	}
	return FeedCursor{epoch, xid, entities.RunID(runID), seq}, nil
}

// RunEvents reads a page of the events of a run, in the order of its log. The cursor is the position of the last event
// read. It fails with [entities.ErrRunNotFound] and [entities.ErrInvalid].
func (l *Log) RunEvents(
	ctx context.Context, project entities.Project, runID entities.RunID, q EventQuery, p pg.Page, with Payloads,
) (Listing, error) {
	s, err := newSearch(project, q, p, with)
	if err != nil {
		return Listing{}, err
	}
	if s.from.seq, err = parsePosition(p.Cursor); err != nil {
		return Listing{}, err
	}
	listing, err := s.loadPage(ctx, func(s search) (Listing, error) { return s.readRun(ctx, l.pool, runID) })
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

// ProjectEvents reads a page of the events of a project, ordered by transaction, run and position. The cursor is a
// [FeedCursor]. It fails with [entities.ErrInvalid], and with [ErrCursorLost].
func (l *Log) ProjectEvents(
	ctx context.Context, project entities.Project, q EventQuery, p pg.Page, with Payloads,
) (Listing, error) {
	s, err := newSearch(project, q, p, with)
	if err != nil {
		return Listing{}, err
	}
	if p.Cursor != "" {
		if s.from, err = ParseFeedCursor(p.Cursor); err != nil {
			return Listing{}, err
		}
	}
	listing, err := s.loadPage(ctx, func(s search) (Listing, error) {
		page, _, err := s.readFeed(ctx, l.pool)
		return page, err
	})
	if listing.More {
		listing.Cursor = FeedCursorOf(listing.Entries[len(listing.Entries)-1]).String()
	}
	return listing, err
}
