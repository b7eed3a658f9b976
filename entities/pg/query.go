package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
)

// Querier reads. Both a pool and a transaction are one.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Page asks for one page of a list.
type Page struct {
	// Limit is the most rows to return; 1 to [MaxPage].
	Limit int
	// Cursor is where the previous page ended, as that page said; empty for the first page.
	Cursor string
	// Descending lists the newest first.
	Descending bool
}

// MaxPage is the most rows one page may have (protocol §2.4).
const MaxPage = 1000

// order is the keyword and comparison that walk a list in the page's direction.
func (p Page) Order() (keyword, after string) {
	if p.Descending {
		return "DESC", "<"
	}
	return "ASC", ">"
}

// arguments are those of a statement whose conditions depend on what is asked.
type Args []any

// add appends an argument and returns its placeholder.
func (a *Args) Add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// moment is a cursor into a list ordered by creation time and ID.
type TimeCursor struct {
	At time.Time
	ID string
}

func (m TimeCursor) String() string { return strconv.FormatInt(m.At.UnixMilli(), 10) + ":" + m.ID }

func ParseTimeCursor(cursor string) (TimeCursor, error) {
	ms, id, ok := strings.Cut(cursor, ":")
	n, err := strconv.ParseInt(ms, 10, 64)
	m := TimeCursor{At: time.UnixMilli(n).UTC(), ID: id}
	if !ok || err != nil || entities.ValidateID("ID", id) != nil || m.At.Year() < 1 || m.At.Year() > 9999 {
		return TimeCursor{}, BadCursor(cursor)
	}
	return m, nil
}

// CursorError is an [ErrInvalid] about a cursor that no page gave.
type CursorError struct{ Cursor string }

func (e *CursorError) Error() string {
	return fmt.Sprintf("cursor %q is not one this list gave out: start again without it", e.Cursor)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *CursorError) Is(target error) bool { return target == entities.ErrInvalid }

// Details are for programs to read.
func (e *CursorError) Details() map[string]any { return map[string]any{"parameter": "cursor"} }

func BadCursor(cursor string) error { return &CursorError{cursor} }

// collectPage reads the rows of a query that asked for one more than limit, and tells whether it got it.
func CollectPage[T any](rows pgx.Rows, err error, limit int) ([]T, bool, error) {
	if err != nil {
		return nil, false, err
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, false, err
	}
	if len(items) > limit {
		return items[:limit], true, nil
	}
	return items, false, nil
}

// collectOne reads the single row of a query; none is the missing error.
func CollectOne[T any](rows pgx.Rows, err, missing error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	item, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return item, missing
	}
	return item, err
}

// loadInto queues a query on the batch whose only row, if there is one, is put where into points.
func LoadInto[T any](b *pgx.Batch, into **T, sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		items, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[T])
		if len(items) > 0 {
			*into = items[0]
		}
		return err
	})
}

// loadEach queues a query on the batch and hands each of its rows to take.
func LoadEach[T any](b *pgx.Batch, take func(T), sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
		for _, item := range items {
			take(item)
		}
		return err
	})
}

// loadOf is [loadEach] for a query of a run's rows that ends in the name of the column that must have one of the
// values. One value is compared by itself, as most often there is one: with a list, the statement is planned anew each
// time.
func LoadOf[T, ID any](b *pgx.Batch, take func(T), sql string, runID entities.RunID, ids []ID) {
	if len(ids) == 1 {
		LoadEach(b, take, sql+` = $2`, runID, ids[0])
		return
	}
	LoadEach(b, take, sql+` = ANY ($2)`, runID, ids)
}

// oneRow makes a queued write fail unless it changed exactly one row.
func QueueOne(b *pgx.Batch, what, sql string, args ...any) {
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if n := tag.RowsAffected(); n != 1 {
			return fmt.Errorf("%s: %d rows changed, want 1", what, n)
		}
		return nil
	})
}
