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
	// maxPageSize is the server's limit for a page.
	maxPageSize = 1000
	// defaultLimit is how many entries a list prints without --limit.
	defaultLimit = 100
)

// paging are the flags of lists.
type paging struct {
	Limit  int    `placeholder:"N" help:"List at most this many entries; default 100."`
	All    bool   `help:"List all entries."`
	Cursor string `placeholder:"CURSOR" help:"Continue an earlier list at its cursor."`
	Order  string `enum:",asc,desc" default:"" placeholder:"asc|desc" help:"asc lists the oldest first, desc the newest."`
}

// setParam sets a query parameter unless it is empty.
func setParam(query url.Values, name, value string) {
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

// pages reads a list page by page up to the limit, and prints a note if there are more entries.
func (s *Session) pages(
	ctx context.Context, path string, query url.Values, p paging, print func([]json.RawMessage) error,
) error {
	if p.Limit < 0 || p.All && p.Limit != 0 {
		return usageErrorf("--limit is %d; want at least 1, or --all", p.Limit)
	}
	if query == nil {
		query = url.Values{}
	}
	setParam(query, "order", p.Order)
	setParam(query, "cursor", p.Cursor)
	for left := cmp.Or(p.Limit, defaultLimit); ; {
		size := maxPageSize
		if !p.All {
			size = min(left, maxPageSize)
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
			s.note("more entries: use --all or --cursor %s", cursor)
			return nil
		}
		query.Set("cursor", cursor)
	}
}

// entries is pages for one entry at a time.
func (s *Session) entries(
	ctx context.Context, path string, query url.Values, p paging, print func(json.RawMessage) error,
) error {
	return s.pages(ctx, path, query, p, func(entries []json.RawMessage) error {
		for _, e := range entries {
			if err := print(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// list prints a paged list.
func list[T any](
	ctx context.Context, s *Session, path string, query url.Values, p paging, columns []column[T],
) error {
	out := tablePrinter[T]{Session: s, columns: columns}
	return s.pages(ctx, path, query, p, out.print)
}

// listUnpaged prints a list that the API returns in one response.
func listUnpaged[T any](ctx context.Context, s *Session, path string, columns []column[T]) error {
	return listMatching(ctx, s, path, nil, columns)
}

// listMatching is [listUnpaged] with a query.
func listMatching[T any](ctx context.Context, s *Session, path string, query url.Values, columns []column[T]) error {
	data, _, err := s.page(ctx, path, query)
	if err != nil {
		return err
	}
	out := tablePrinter[T]{Session: s, columns: columns}
	return out.print(data)
}

// show prints an object: as JSON, or the fields that describe it.
func show[T any](ctx context.Context, s *Session, path string, query url.Values, fields func(T) []field) error {
	var object T
	raw, err := s.client.get(ctx, path, query, &object)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	return s.printFields(fields(object))
}

// forEach calls do with each ID and joins the errors. It stops early only if the command is interrupted or the server
// is unreachable.
func forEach(ids []string, do func(id string) error) error {
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
