package rest

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// eventPage is how many events a list has.
const eventPage = 100

// event is the JSON form of an event, without its payload.
type event struct {
	Seq           int64              `json:"seq"`
	ID            entities.EventID   `json:"id"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId,omitempty"`
	CreatedAt     timestamp          `json:"createdAt"`
	Data          entities.EventData `json:"data"`
}

// listEvents answers with a run's log, from the event behind the position "after" on.
func (s *Server) listEvents(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	p := entities.Page{Limit: eventPage}
	if after := c.QueryParam("after"); after != "" && after != "0" {
		seq, err := strconv.ParseInt(after, 10, 64)
		if err != nil || seq < 0 {
			return entities.Invalid("after %q is not the position of an event", after)
		}
		p.Cursor = string(entities.EventIDAt(seq))
	}
	page, err := s.Log.Events(c.Request().Context(), auth.Project(c), id, p, eventlog.WithoutPayloads)
	if err != nil {
		return err
	}
	body := struct {
		Data    []event `json:"data"`
		HasMore bool    `json:"hasMore"`
	}{Data: make([]event, len(page.Events)), HasMore: page.More}
	for i, e := range page.Events {
		body.Data[i] = event{e.Seq, e.ID(), e.Type, e.CorrelationID, timestamp(e.CreatedAt), e.Data}
	}
	return c.JSON(http.StatusOK, body)
}
