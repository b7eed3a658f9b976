package pg

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// MaxPage is the most rows a page may have (protocol §2.4).
const MaxPage = 1000

// Page requests one page of a list.
type Page struct {
	// Limit is the most rows to return; 1 to [MaxPage].
	Limit int
	// Cursor is the position after the previous page, as returned with it; empty for the first page.
	Cursor string
	// Descending lists the newest first.
	Descending bool
}

// Order returns the ORDER BY keyword and the comparison with the cursor that walk a list in the page's direction.
func (p Page) Order() (keyword, after string) {
	if p.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// CollectPage collects the rows of a query for one row more than limit. If that row is there, the list goes on after
// this page, and next is the cursor after the page's last item; otherwise it is empty. CollectPage takes the results of
// Query as they are.
func CollectPage[T any](rows pgx.Rows, err error, limit int, cursor func(T) string) (items []T, next string, _ error) {
	items, err = CollectAll[T](rows, err)
	if err != nil || len(items) <= limit {
		return items, "", err
	}
	return items[:limit], cursor(items[limit-1]), nil
}

// Keyed are the rows of a table with a project and a key that is unique in it, such as a name. Where is a condition
// that they meet; empty for none.
type Keyed struct{ Table, Key, Columns, Where string }

// ListKeyed reads a page of the project's rows, ordered by their keys, and the cursor of the next page; empty after the
// last.
func ListKeyed[T any](
	ctx context.Context, q Querier, from Keyed, project entities.Project, p Page, key func(T) string,
) (items []T, next string, err error) {
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT `+from.Columns+` FROM `+from.Table+`
		WHERE project = $1 AND ($2 = '' OR `+from.Key+` `+after+` $2) AND `+cmp.Or(from.Where, "true")+`
		ORDER BY `+from.Key+` `+keyword+` LIMIT $3`, project, p.Cursor, p.Limit+1)
	items, next, err = CollectPage(rows, err, p.Limit, key)
	return items, next, Wrap(err, "list %s", from.Table)
}

// Numbered are the rows of a table that belong to an owner and have a number, seq, that is unique among those.
type Numbered struct{ Table, Owner, Columns string }

// ListNumbered reads a page of the owner's rows, ordered by their numbers, and the cursor of the next page; empty after
// the last. It fails with a [CursorError] on a cursor of another list.
func ListNumbered[T any](
	ctx context.Context, q Querier, from Numbered, owner string, p Page, seq func(T) int64,
) (items []T, next string, err error) {
	var before int64
	if p.Cursor != "" {
		if before, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil || before < 1 {
			return nil, "", BadCursor(p.Cursor)
		}
	}
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT `+from.Columns+` FROM `+from.Table+`
		WHERE `+from.Owner+` = $1 AND ($2 = 0 OR seq `+after+` $2)
		ORDER BY seq `+keyword+` LIMIT $3`, owner, before, p.Limit+1)
	items, next, err = CollectPage(rows, err, p.Limit, func(v T) string { return strconv.FormatInt(seq(v), 10) })
	return items, next, Wrap(err, "list %s", from.Table)
}

// ScanPage collects a page of a query that looks at a limited number of rows, of which few may match. The query returns
// up to limit+1 rows: those that match, and the last one that it has looked at if there may be more; split tells which.
// ScanPage returns the items that match, and the cursor after the last row of the page; empty if the list ends there.
func ScanPage[R, T any](
	limit int, split func(R) (item T, matches, last bool), cursor func(T) string, query func() ([]R, error),
) (items []T, next string, err error) {
	rows, err := query()
	for i, r := range rows[:min(limit, len(rows))] {
		item, matches, last := split(r)
		if matches {
			items = append(items, item)
		}
		if last || i == limit-1 && len(rows) > limit {
			next = cursor(item)
		}
	}
	return items, next, err
}

// TimeCursor is a position in a list that is ordered by creation time and ID.
type TimeCursor struct {
	At time.Time
	ID string
}

// ParseTimeCursor parses the text of a [TimeCursor]. It fails with a [CursorError].
func ParseTimeCursor(cursor string) (TimeCursor, error) {
	ms, id, ok := strings.Cut(cursor, ":")
	n, err := strconv.ParseInt(ms, 10, 64)
	c := TimeCursor{At: time.UnixMilli(n).UTC(), ID: id}
	if !ok || err != nil || entities.ValidateID("ID", id) != nil || c.At.Year() < 1 || c.At.Year() > 9999 {
		return TimeCursor{}, BadCursor(cursor)
	}
	return c, nil
}

// String returns the milliseconds since 1970, a colon and the ID.
func (c TimeCursor) String() string { return strconv.FormatInt(c.At.UnixMilli(), 10) + ":" + c.ID }

// CursorError is an [entities.ErrInvalid] about a cursor that the list did not return.
type CursorError struct{ Cursor string }

// BadCursor returns a [CursorError].
func BadCursor(cursor string) error { return &CursorError{cursor} }

func (e *CursorError) Error() string {
	return fmt.Sprintf("cursor %q is not from this list: start again without a cursor", e.Cursor)
}

// Is makes errors.Is(err, entities.ErrInvalid) true.
func (e *CursorError) Is(target error) bool { return target == entities.ErrInvalid }

// Details returns the machine-readable part of the error.
func (e *CursorError) Details() map[string]any { return map[string]any{"parameter": "cursor"} }
