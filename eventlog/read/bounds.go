package read

import (
	"errors"
	"fmt"
)

// ErrCursorLost reports a cursor of a history that the database has lost, as after a restore from a backup.
var ErrCursorLost = errors.New("the cursor is further than the history of this database goes")

// CursorLostError is an [ErrCursorLost].
type CursorLostError struct {
	// Kept is the cursor up to which both histories are the same; empty if this database does not know it.
	Kept string
}

func (e *CursorLostError) Error() string {
	const what = "the cursor is of events that this database does not have, as after a restore from a backup: "
	if e.Kept == "" {
		return what + "read all events again, without a cursor (a stream: after=0), and forget what is not among them"
	}
	return what + fmt.Sprintf("continue with the cursor %q, and forget what you have read after it", e.Kept)
}

// Is reports whether the target is [ErrCursorLost].
func (e *CursorLostError) Is(target error) bool { return target == ErrCursorLost }

// Details returns the cursor to continue with.
func (e *CursorLostError) Details() map[string]any {
	if e.Kept == "" {
		return nil
	}
	return map[string]any{"cursor": e.Kept}
}

// bounds are how far the events of a project can be read, and how far the history of a cursor's epoch was kept.
type bounds struct {
	epoch  string  // the current one
	oldest uint64  // the place of the oldest open transaction
	kept   *uint64 // nil if the cursor's epoch is unknown
}

func (b *bounds) columns() []any { return []any{&b.epoch, &b.oldest, &b.kept} }

// end returns the place before which no event can be added.
func (b *bounds) end() FeedCursor { return FeedCursor{epoch: b.epoch, xid: b.oldest} }

// check fails with a [CursorLostError] if the cursor, which has the epoch that the bounds were read for, is of another
// history.
func (b *bounds) check(c FeedCursor) error {
	switch {
	case c.xid == 0: // before all events
		return nil
	case b.kept == nil:
		return &CursorLostError{}
	case c.xid > *b.kept:
		return &CursorLostError{Kept: FeedCursor{epoch: b.epoch, xid: *b.kept}.String()}
	}
	return nil
}

const boundColumns = `bounds.epoch, bounds.oldest, bounds.kept`

// boundsSQL selects the bounds now for a cursor of the epoch $1 of the project $2. Where the next epoch begins, the
// history of the one before ended; that of the current one goes on. The epochs of a cell from which the project came
// are those of its own history.
const boundsSQL = `
	SELECT last.id AS epoch, base + pg_snapshot_xmin(now)::text::bigint AS oldest,
		coalesce((SELECT arrived.kept FROM arrived_epochs arrived WHERE arrived.project = $2 AND arrived.id = $1),
			(SELECT coalesce((SELECT later.begins FROM feed_epochs later WHERE later.number = of.number + 1),
			base + pg_snapshot_xmax(now)::text::bigint) FROM feed_epochs of WHERE of.id = $1)) AS kept
	FROM pg_current_snapshot() now, (SELECT id, base FROM feed_epochs ORDER BY number DESC LIMIT 1) last`
