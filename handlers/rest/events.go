package rest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// listRunEvents answers with a page of a run's log.
func (s *Server) listRunEvents(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	q, with, err := eventQuery(c)
	if err != nil {
		return err
	}
	if q.After, err = positionParam(c.QueryParam("after"), "after"); err != nil {
		return err
	}
	listing, err := s.Log.RunEvents(c.Request().Context(), auth.Project(c), id, q, p, with)
	if err != nil {
		return err
	}
	return answerEvents(c, listing, with)
}

// listEvents answers with a page of all events of the project.
func (s *Server) listEvents(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	q, with, err := projectQuery(c)
	if err != nil {
		return err
	}
	listing, err := s.Log.ProjectEvents(c.Request().Context(), auth.Project(c), q, p, with)
	if err != nil {
		return err
	}
	return answerEvents(c, listing, with)
}

func answerEvents(c echo.Context, listing read.Listing, with read.Payloads) error {
	return answerList(c, listing.Entries, listing.Cursor, shown(c, with))
}

// shown is how the entries of one list are shown to whoever asks, one after the other.
func shown(c echo.Context, with read.Payloads) func(read.Entry) view.Event {
	if !auth.Of(c).SeesPayloads() {
		return func(e read.Entry) view.Event { return bare(e.Event) }
	}
	if with == read.WithoutPayloads {
		return func(e read.Entry) view.Event { return view.Plain(e.Event) }
	}
	return new(view.List).Add
}

// bare shows an event without its payload, and without what else of it they may not see who may not see payloads: what
// [hook] says, and digests, by which short payloads can be found.
func bare(e entities.Event) view.Event {
	v := view.Plain(e)
	v.Data.Token, v.Data.Condition = "", ""
	v.Data.RequestDigest, v.Data.ResumeDigest = "", ""
	return v
}

// eventQuery reads which events are asked for, and whether with payloads.
func eventQuery(c echo.Context) (q read.EventQuery, with read.Payloads, err error) {
	for _, t := range c.QueryParams()["type"] {
		if !slices.Contains(entities.EventTypes, entities.EventType(t)) {
			return q, with, badParam("type", "%q is not a type an event can have", t)
		}
		q.Types = append(q.Types, entities.EventType(t))
	}
	if q.CorrelationID = c.QueryParam("correlationId"); len(q.CorrelationID) > maxCorrelationID {
		return q, with, badParam("correlationId", "it has more than %d bytes", maxCorrelationID)
	}
	if q.Created.From, err = timeParam(c, "from"); err != nil {
		return q, with, err
	}
	if q.Created.To, err = timeParam(c, "to"); err != nil {
		return q, with, err
	}
	switch text := c.QueryParam("payloads"); text {
	case "", "true":
		with = read.WithPayloads
	case "false":
		with = read.WithoutPayloads
	default:
		return q, with, badParam("payloads", "%q is neither true nor false", text)
	}
	if !auth.Of(c).SeesPayloads() {
		with = read.WithoutPayloads
	}
	return q, with, nil
}

// maxCorrelationID is the longest that anything is looked up by.
const maxCorrelationID = 1024

// projectQuery is [eventQuery] for events of any run.
func projectQuery(c echo.Context) (read.EventQuery, read.Payloads, error) {
	q, with, err := eventQuery(c)
	if id := c.QueryParam("runId"); err == nil && id != "" {
		q.RunID, err = entities.RunID(id), entities.ValidateID("run ID", id)
	}
	return q, with, err
}

// positionParam reads a position in a log; 0 when it is missing.
func positionParam(text, name string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		return 0, badParam(name, "%q is not the position of an event", text)
	}
	return seq, nil
}

// theEvent is the one that the path names by its position.
func (s *Server) theEvent(c echo.Context) (entities.Event, error) {
	id, err := runParam(c)
	if err != nil {
		return entities.Event{}, err
	}
	text, err := pathText(c, "seq", "position")
	if err != nil {
		return entities.Event{}, err
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 || strings.HasPrefix(text, "+") {
		return entities.Event{}, badParam("seq", "%q is not the position of an event", text)
	}
	return s.Log.Event(c.Request().Context(), auth.Project(c), id, seq)
}

func (s *Server) getEvent(c echo.Context) error {
	e, err := s.theEvent(c)
	if err != nil {
		return err
	}
	if !auth.Of(c).SeesPayloads() {
		return c.JSON(http.StatusOK, bare(e))
	}
	return c.JSON(http.StatusOK, view.Of(e))
}

// getPayload answers with an event's payload as it is stored; one without has no bytes.
func (s *Server) getPayload(c echo.Context) error {
	e, err := s.theEvent(c)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderXContentTypeOptions, "nosniff")
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, e.Payload)
}
