package wire

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/wire/codec"
)

// eventPage is how many events a list has when the client names no limit: a whole log, nearly always.
const eventPage = entities.MaxPage

// result is the answer to a posted event (§3.2).
type result struct {
	Event   *event  `cbor:"event,omitzero"`
	Run     *run    `cbor:"run,omitzero"`
	Step    *step   `cbor:"step,omitzero"`
	Hook    *hook   `cbor:"hook,omitzero"`
	Wait    *wait   `cbor:"wait,omitzero"`
	Events  []event `cbor:"events,omitzero"`
	Cursor  string  `cbor:"cursor,omitzero"`
	HasMore *bool   `cbor:"hasMore,omitzero"`
}

// postEvent is endpoint 1.
func (s *Server) postEvent(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	frame, err := codec.ReadFrame(c.Request().Body, codec.Limits{})
	if err != nil {
		return err
	}
	request, m, err := newRequest(runID, frame)
	if err != nil {
		return err
	}
	if request.Type == "" {
		request.Type = entities.EventType(c.Param("eventType"))
	}
	with, err := payloadsFor(m.RemoteRefBehavior)
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	appended, err := s.Log.Append(ctx, project, request)
	if err != nil {
		return err
	}
	res, err := s.newResult(ctx, project, request, appended, with)
	if err != nil {
		return err
	}
	setEventHeaders(c, appended)
	return answer(c, res)
}

// setEventHeaders names the event that was stored or, when none was, the newest one: clients insist (§1.4).
func setEventHeaders(c echo.Context, r eventlog.Result) {
	seq, at := r.Run.LastSeq, r.Run.UpdatedAt
	if r.Event != nil {
		seq, at = r.Event.Seq, r.Event.CreatedAt
	}
	h := c.Response().Header()
	h.Set("X-Wf-Event-Id", string(entities.EventIDAt(seq)))
	h.Set("X-Wf-Run-Id", string(r.Run.ID))
	h.Set("X-Wf-Created-At", at.UTC().Format(time.RFC3339Nano))
}

// newResult is the answer to an append: the event, the entity it is about, and where the client is about
// to replay the run, its input and its log.
func (s *Server) newResult(
	ctx context.Context, project entities.Project, request eventlog.Request, appended eventlog.Result,
	with eventlog.Payloads,
) (res result, err error) {
	if appended.Event != nil {
		e, err := newEvent(*appended.Event)
		if err != nil {
			return res, err
		}
		res.Event = &e
	}
	switch entities.KindOf(request.Type) {
	case entities.KindStep:
		res.Step, err = s.stepAfter(ctx, request.Type, *appended.Step, with)
	case entities.KindHook:
		if appended.Hook != nil {
			h := newHook(*appended.Hook, nil)
			res.Hook = &h
		}
	case entities.KindWait:
		w := newWait(*appended.Wait)
		res.Wait = &w
	default:
		err = s.addRun(ctx, project, request.Type, appended, with, &res)
	}
	return res, err
}

// stepAfter is a step as an append left it. Only whoever starts one needs its input.
func (s *Server) stepAfter(
	ctx context.Context, typ entities.EventType, after entities.Step, with eventlog.Payloads,
) (*step, error) {
	var created *entities.Event
	if typ == entities.EventStepStarted && with == eventlog.WithPayloads {
		at := eventlog.Position{RunID: after.RunID, Seq: after.CreatedSeq}
		events, err := s.Log.EventsAt(ctx, []eventlog.Position{at}, with)
		if err != nil {
			return nil, err
		}
		e := events[at]
		created = &e
	}
	w, err := newStep(after, created, nil)
	return &w, err
}

// addRun adds the run to an answer, and to the one that begins a replay the log so far (§3.5).
func (s *Server) addRun(
	ctx context.Context, project entities.Project, typ entities.EventType, appended eventlog.Result,
	with eventlog.Payloads, res *result,
) error {
	var first *entities.Event
	switch {
	case typ == entities.EventRunStarted && appended.Event != nil:
		page, err := s.Log.Events(ctx, project, appended.Run.ID, entities.Page{Limit: eventPage}, with)
		if err != nil {
			return err
		}
		if err := res.addEvents(page); err != nil {
			return err
		}
		first = &page.Events[0]
	case typ == entities.EventRunCreated:
		first = appended.Event
	case with == eventlog.WithPayloads:
		at := eventlog.Position{RunID: appended.Run.ID, Seq: 1}
		events, err := s.Log.EventsAt(ctx, []eventlog.Position{at}, with)
		if err != nil {
			return err
		}
		e := events[at]
		first = &e
	}
	w, err := newRun(appended.Run, first, nil)
	res.Run = &w
	return err
}

func (r *result) addEvents(page eventlog.EventPage) error {
	for _, e := range page.Events {
		w, err := newResolvedEvent(e)
		if err != nil {
			return err
		}
		r.Events = append(r.Events, w)
	}
	r.Cursor = eventlog.EventCursor(page.Events[len(page.Events)-1])
	r.HasMore = &page.More
	return nil
}

// listEvents is endpoint 2.
func (s *Server) listEvents(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	return s.sendEvents(c, func(ctx context.Context, p entities.Page, with eventlog.Payloads) (eventlog.EventPage, error) {
		return s.Log.Events(ctx, auth.Project(c), runID, p, with)
	})
}

// listEventsByCorrelation is endpoint 4.
func (s *Server) listEventsByCorrelation(c echo.Context) error {
	correlationID, err := query(c, "correlationId")
	if err != nil {
		return err
	}
	if correlationID == "" {
		return entities.Invalid("correlationId is missing")
	}
	runID, err := query(c, "runId")
	if err != nil {
		return err
	}
	return s.sendEvents(c, func(ctx context.Context, p entities.Page, with eventlog.Payloads) (eventlog.EventPage, error) {
		return s.Log.EventsByCorrelation(ctx, auth.Project(c), entities.RunID(runID), correlationID, p, with)
	})
}

type eventQuery func(context.Context, entities.Page, eventlog.Payloads) (eventlog.EventPage, error)

// sendEvents answers with one page of a log as frames.
func (s *Server) sendEvents(c echo.Context, list eventQuery) error {
	p, err := page(c, eventPage, "asc")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	got, err := list(c.Request().Context(), p, with)
	if err != nil {
		return err
	}
	metas := make([][]byte, len(got.Events))
	for i, e := range got.Events {
		if metas[i], err = frameMeta(e); err != nil {
			return err
		}
	}
	c.Response().Header().Set(echo.HeaderContentType, mimeFrames)
	w := codec.NewFrameWriter(c.Response())
	for i, e := range got.Events {
		if err := w.WriteFrame(metas[i], e.Payload); err != nil {
			return err
		}
	}
	return w.WriteEnd(nextCursor(c, got), got.More)
}

// nextCursor is where the list goes on. Newer clients keep the one of the last page to ask for what was
// appended since; those of the stable line would take it for a sign of more (§2.4).
func nextCursor(c echo.Context, p eventlog.EventPage) string {
	if len(p.Events) == 0 || (!p.More && stableLine(c)) {
		return ""
	}
	return eventlog.EventCursor(p.Events[len(p.Events)-1])
}

func frameMeta(e entities.Event) ([]byte, error) {
	w, err := newEvent(e)
	if err != nil {
		return nil, err
	}
	return codec.Marshal(w)
}

// getEvent is endpoint 3.
func (s *Server) getEvent(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	id, err := param(c, "eventId")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	seq, err := entities.EventID(id).Seq()
	if err != nil {
		return entities.ErrEventNotFound // an ID we never gave out
	}
	e, err := s.Log.Event(c.Request().Context(), auth.Project(c), runID, seq)
	if err != nil {
		return err
	}
	if with == eventlog.WithoutPayloads {
		e.Payload = nil
	}
	meta, err := frameMeta(e)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentType, mimeFrames)
	return codec.NewFrameWriter(c.Response()).WriteFrame(meta, e.Payload)
}
