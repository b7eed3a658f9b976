package wire

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

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
func (r resource[T, W]) load(ctx context.Context, s *Server, rows []T, with read.Payloads) ([]W, error) {
	var positions []read.Position
	for _, row := range rows {
		positions = append(positions, r.events(row, with)...)
	}
	events, err := s.Log.EventsAt(ctx, positions, with)
	if err != nil {
		return nil, err
	}
	list := make([]W, len(rows))
	for i, row := range rows {
		if list[i], err = r.wire(row, events); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// answer sends one entity.
func (r resource[T, W]) answer(c echo.Context, s *Server, row T, with read.Payloads) error {
	list, err := r.load(c.Request().Context(), s, []T{row}, with)
	if err != nil {
		return err
	}
	return answer(c, list[0])
}

// answerPage sends a page of entities. It ends the page early if the events of its rows exceed the size of a page, so
// that an answer is never larger than the server can hold (§2.4).
func (r resource[T, W]) answerPage(c echo.Context, s *Server, rows []T, next string, with read.Payloads) error {
	ctx := c.Request().Context()
	groups := make([][]read.Position, len(rows))
	for i, row := range rows {
		groups[i] = r.events(row, with)
	}
	n, err := s.Log.Fit(ctx, groups, with)
	if err != nil {
		return err
	}
	if n < len(rows) {
		rows, next = rows[:n], r.cursor(rows[n-1])
	}
	list, err := r.load(ctx, s, rows, with)
	if err != nil {
		return err
	}
	return answer(c, newListing(list, next))
}
