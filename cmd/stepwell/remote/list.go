package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
)

const (
	// maxPage is the most that the server puts on one page.
	maxPage = 1000
	// usualLimit is how much is listed when nothing is said.
	usualLimit = 100
)

// paging is how much of a list is wanted.
type paging struct {
	Limit  int    `placeholder:"N" help:"The most to list; 100 when not given."`
	All    bool   `help:"List all there is, however much."`
	Cursor string `placeholder:"CURSOR" help:"Go on where another list stopped."`
}

// ordering is which way round a list goes; empty for the way that is the operation's own.
type ordering struct {
	Order string `enum:",asc,desc" default:"" placeholder:"asc|desc" help:"asc lists the oldest first, desc the newest."`
}

func (o ordering) into(query url.Values) { set(query, "order", o.Order) }

// set adds a parameter unless it is empty.
func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// page reads one page of a list.
func (s *Session) page(
	ctx context.Context, path string, query url.Values,
) (data []json.RawMessage, cursor string, err error) {
	var page struct {
		Data   []json.RawMessage
		Cursor string
	}
	_, err = s.client.get(ctx, path, query, &page)
	return page.Data, page.Cursor, err
}

// pages reads as much of a list as is wanted, and says so if that is not all of it.
func (s *Session) pages(
	ctx context.Context, path string, query url.Values, p paging, print func([]json.RawMessage) error,
) error {
	if p.Limit < 0 || p.All && p.Limit != 0 {
		return usage("--limit is %d; want at least 1, or --all", p.Limit)
	}
	set(query, "cursor", p.Cursor)
	for left := cmp.Or(p.Limit, usualLimit); ; {
		size := maxPage
		if !p.All {
			size = min(left, maxPage)
		}
		query.Set("limit", strconv.Itoa(size))
		data, cursor, err := s.page(ctx, path, query)
		if err != nil {
			return err
		}
		if err := print(data); err != nil {
			return err
		}
		left -= len(data)
		if cursor == "" {
			return nil
		}
		if !p.All && left <= 0 {
			s.note("more: --all or --cursor %s", cursor)
			return nil
		}
		query.Set("cursor", cursor)
	}
}

// list prints a list that comes in pages.
func list[T any](
	ctx context.Context, s *Session, path string, query url.Values, p paging, columns []column[T],
) error {
	out := printer[T]{Session: s, columns: columns}
	return s.pages(ctx, path, query, p, out.print)
}

// listWhole prints a list that always comes whole.
func listWhole[T any](ctx context.Context, s *Session, path string, columns []column[T]) error {
	data, _, err := s.page(ctx, path, nil)
	if err != nil {
		return err
	}
	out := printer[T]{Session: s, columns: columns}
	return out.print(data)
}

// each does something with one thing after the other, also after one failed; but not if there is no server. The error
// is that of all that failed.
func each(ids []string, do func(id string) error) error {
	var failed []error
	for _, id := range ids {
		if err := do(id); err != nil {
			failed = append(failed, err)
			if code := ExitCode(err); code == ExitInterrupted || code == ExitUnreachable {
				break
			}
		}
	}
	return errors.Join(failed...)
}
