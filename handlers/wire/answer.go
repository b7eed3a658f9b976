package wire

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

const (
	mimeCBOR   = "application/cbor"
	mimeFrames = "application/vnd.workflow.v4-frames"
)

// send sends v as CBOR with status 200.
func (r *request) send(v any) error {
	body, err := codec.Marshal(v)
	if err != nil {
		return err
	}
	return r.Blob(http.StatusOK, mimeCBOR, body)
}

// answer sends the result of do, unless reading the request failed.
func answer[T any](r *request, do func() (T, error)) error {
	if r.err != nil {
		return r.err
	}
	result, err := do()
	if err != nil {
		return err
	}
	return r.send(result)
}

// cutOff handles an error in the middle of a streamed answer. Once the header is sent, the status cannot change, and
// clients recognize an incomplete answer only by a broken connection.
func (s *Server) cutOff(r *request, err error) error {
	if err == nil {
		return nil
	}
	if !r.Response().Committed {
		r.Response().Header().Del(echo.HeaderContentType) // the error's answer sets its own
		return err
	}
	s.Logger.DebugContext(r.ctx(), "answer cut off", "path", r.Path(), "error", err)
	panic(http.ErrAbortHandler)
}

// listing is one page of a CBOR list (§2.4). On the last page the cursor is null, not missing.
type listing[T any] struct {
	Data    []T     `cbor:"data"`
	Cursor  *string `cbor:"cursor"`
	HasMore bool    `cbor:"hasMore"`
}

func newListing[T any](data []T, next string) listing[T] {
	l := listing[T]{Data: data}
	if next != "" {
		l.Cursor, l.HasMore = &next, true
	}
	return l
}

// resource describes how entities of type T are sent to clients as W. A row of an entity holds no payloads: they are in
// the events at the positions that the row names.
type resource[T, W any] struct {
	// events returns the positions of the events that complete the row.
	events func(T, read.Payloads) []read.Position
	// wire makes the wire form of the row from the events that were read.
	wire func(T, eventsAt) (W, error)
	// cursor returns the cursor after the row.
	cursor func(T) string
}

// eventsAt holds the events that complete some rows.
type eventsAt map[read.Position]entities.Event

// at returns the event at a position, or nil if it was not read.
func (e eventsAt) at(id entities.RunID, seq int64) *entities.Event {
	if found, ok := e[read.Position{RunID: id, Seq: seq}]; ok {
		return &found
	}
	return nil
}

// load returns the wire form of rows, with one query for the events of all of them.
func (t resource[T, W]) load(ctx context.Context, s *Server, rows []T, with read.Payloads) ([]W, error) {
	var positions []read.Position
	for _, row := range rows {
		positions = append(positions, t.events(row, with)...)
	}
	events, err := s.Log.EventsAt(ctx, positions, with)
	if err != nil {
		return nil, err
	}
	list := make([]W, len(rows))
	for i, row := range rows {
		if list[i], err = t.wire(row, events); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// answer sends the entity that find returns, unless reading the request failed.
func (t resource[T, W]) answer(s *Server, r *request, with read.Payloads, find func() (T, error)) error {
	return answer(r, func() (w W, err error) {
		row, err := find()
		if err != nil {
			return w, err
		}
		list, err := t.load(r.ctx(), s, []T{row}, with)
		if err != nil {
			return w, err
		}
		return list[0], nil
	})
}

// answerPage sends the page of entities that find returns, unless reading the request failed. It ends the page early if
// the events of its rows exceed the size of a page, so that an answer is never larger than the server can hold (§2.4).
func (t resource[T, W]) answerPage(
	s *Server, r *request, with read.Payloads, find func() (rows []T, next string, err error),
) error {
	return answer(r, func() (page listing[W], err error) {
		rows, next, err := find()
		if err != nil {
			return page, err
		}
		groups := make([][]read.Position, len(rows))
		for i, row := range rows {
			groups[i] = t.events(row, with)
		}
		n, err := s.Log.Fit(r.ctx(), groups, with, read.MaxPageBytes)
		if err != nil {
			return page, err
		}
		if n < len(rows) {
			rows, next = rows[:n], t.cursor(rows[n-1])
		}
		list, err := t.load(r.ctx(), s, rows, with)
		return newListing(list, next), err
	})
}
