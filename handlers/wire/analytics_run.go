package wire

import (
	"context"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// analyticsSteps is endpoint 21 for the steps of a run.
func (s *Server) analyticsSteps(c echo.Context) error {
	o, p, err := s.pathOriginPage(c, "desc")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	steps, next, err := store.ListSteps(ctx, s.Reader, auth.Project(c), o.run.ID, p)
	if err != nil {
		return err
	}
	rows, err := s.stepRows(ctx, o, steps)
	if err != nil {
		return err
	}
	return answer(c, newListing(rows, next))
}

// analyticsStep is endpoint 21 for one step.
func (s *Server) analyticsStep(c echo.Context) error {
	o, id, err := s.pathOriginAnd(c, "stepId")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	st, err := store.StepByID(ctx, s.Reader, auth.Project(c), o.run.ID, entities.StepID(id))
	if err != nil {
		return err
	}
	rows, err := s.stepRows(ctx, o, []entities.Step{st})
	if err != nil {
		return err
	}
	return answer(c, rows[0])
}

// stepRows completes steps from their events: the error code of the last attempt, and the machine it ran on.
func (s *Server) stepRows(ctx context.Context, o origin, steps []entities.Step) ([]stepRow, error) {
	var failures []read.Position
	ids := make([]entities.StepID, len(steps))
	for i, st := range steps {
		ids[i] = st.ID
		if st.ResultSeq > 0 && st.Status != entities.StepCompleted {
			failures = append(failures, read.Position{RunID: st.RunID, Seq: st.ResultSeq})
		}
	}
	failed, err := s.Log.EventsAt(ctx, failures, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	starts, err := s.Log.LastStarts(ctx, o.run.ID, ids)
	if err != nil {
		return nil, err
	}
	rows := make([]stepRow, len(steps))
	for i, st := range steps {
		code := failed[read.Position{RunID: st.RunID, Seq: st.ResultSeq}].Data.ErrorCode
		if rows[i], err = newStepRow(o, st, code, starts[st.ID]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// analyticsEvents is endpoint 21 for the events of a run.
func (s *Server) analyticsEvents(c echo.Context) error {
	var filter read.EventFilter
	p, err := pageUpTo(c, maxRunPage, analyticsPage, "asc")
	if err != nil {
		return err
	}
	eventType, err := query(c, "eventType")
	if err != nil {
		return err
	}
	filter.Type = entities.EventType(eventType)
	if filter.CorrelationID, err = query(c, "correlationId"); err != nil {
		return err
	}
	o, err := s.pathOrigin(c)
	if err != nil {
		return err
	}
	got, err := s.Log.FilteredEvents(c.Request().Context(), auth.Project(c), o.run.ID, filter, p)
	if err != nil {
		return err
	}
	return answerEvents(c, o, got)
}

// analyticsEventsByCorrelation is endpoint 21 for the events with a correlation ID.
func (s *Server) analyticsEventsByCorrelation(c echo.Context) error {
	p, err := pageUpTo(c, maxRunPage, analyticsPage, "asc")
	if err != nil {
		return err
	}
	id, err := query(c, "correlationId")
	if err != nil {
		return err
	}
	if id == "" {
		return entities.Invalid("correlationId is missing")
	}
	ctx := c.Request().Context()
	got, err := s.Log.EventsByCorrelation(ctx, auth.Project(c), "", id, p, read.WithoutPayloads)
	if err != nil {
		return err
	}
	if len(got.Events) == 0 {
		return answer(c, newListing([]eventRow{}, ""))
	}
	o, err := s.origin(c, got.Events[0].RunID)
	if err != nil {
		return err
	}
	return answerEvents(c, o, got)
}

func answerEvents(c echo.Context, o origin, page read.EventPage) error {
	rows, err := eventRows(o, page.Events)
	if err != nil {
		return err
	}
	next := ""
	if page.More {
		next = read.EventCursor(page.Events[len(page.Events)-1])
	}
	return answer(c, newListing(rows, next))
}

// analyticsEvent is endpoint 21 for one event.
func (s *Server) analyticsEvent(c echo.Context) error {
	o, id, err := s.pathOriginAnd(c, "eventId")
	if err != nil {
		return err
	}
	rows, err := s.rowsOfEvents(c.Request().Context(), o, []entities.EventID{entities.EventID(id)})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return entities.ErrEventNotFound
	}
	return answer(c, rows[0])
}

// maxGetMany limits the events in one request to endpoint 21b.
const maxGetMany = 100

// analyticsEventsAt is endpoint 21b: several events of a run by ID. Unknown events are omitted.
func (s *Server) analyticsEventsAt(c echo.Context) error {
	var ask struct {
		EventIDs []entities.EventID `cbor:"eventIds"`
	}
	if err := readBody(c.Request(), &ask); err != nil {
		return err
	}
	slices.Sort(ask.EventIDs)
	ids := slices.Compact(ask.EventIDs)
	if len(ids) < 1 || len(ids) > maxGetMany {
		return entities.Invalid("eventIds has %d IDs; want 1 to %d", len(ids), maxGetMany)
	}
	o, err := s.pathOrigin(c)
	if err != nil {
		return err
	}
	rows, err := s.rowsOfEvents(c.Request().Context(), o, ids)
	if err != nil {
		return err
	}
	return answer(c, rows)
}

// rowsOfEvents reads events of a run by ID, in the order of the IDs.
func (s *Server) rowsOfEvents(ctx context.Context, o origin, ids []entities.EventID) ([]eventRow, error) {
	var at []read.Position
	for _, id := range ids {
		if seq, err := id.Seq(); err == nil { // otherwise the server never issued the ID
			at = append(at, read.Position{RunID: o.run.ID, Seq: seq})
		}
	}
	found, err := s.Log.EventsAt(ctx, at, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	events := make([]entities.Event, 0, len(found))
	for _, p := range at {
		if e, ok := found[p]; ok {
			events = append(events, e)
		}
	}
	return eventRows(o, events)
}

// analyticsHooks is endpoint 21 for the hooks of a run.
func (s *Server) analyticsHooks(c echo.Context) error {
	p, err := pageUpTo(c, maxWidePage, analyticsPage, "asc")
	if err != nil {
		return err
	}
	runID, err := query(c, "runId")
	if err != nil {
		return err
	}
	if runID == "" {
		return entities.Invalid("runId is missing")
	}
	o, err := s.origin(c, entities.RunID(runID))
	if err != nil {
		return err
	}
	hooks, next, err := s.Log.HookHistories(c.Request().Context(), auth.Project(c), o.run.ID, p)
	if err != nil {
		return err
	}
	return answerRows(c, hooks, next, func(h read.HookHistory) hookRow { return newHookRow(o, h) })
}

// analyticsHook is endpoint 21 for one hook. The run ID is optional.
func (s *Server) analyticsHook(c echo.Context) error {
	id, err := param(c, "hookId")
	if err != nil {
		return err
	}
	runID, err := query(c, "runId")
	if err != nil {
		return err
	}
	h, err := s.Log.HookHistory(c.Request().Context(), auth.Project(c), entities.RunID(runID), entities.HookID(id))
	if err != nil {
		return err
	}
	o, err := s.origin(c, h.RunID)
	if err != nil {
		return err
	}
	return answer(c, newHookRow(o, h))
}

// analyticsWaits is endpoint 21 for the waits of a run.
func (s *Server) analyticsWaits(c echo.Context) error {
	o, p, err := s.pathOriginPage(c, "asc")
	if err != nil {
		return err
	}
	status := entities.WaitStatus(c.QueryParam("status"))
	waits, next, err := s.Log.WaitHistories(c.Request().Context(), auth.Project(c), o.run.ID, status, p)
	if err != nil {
		return err
	}
	return answerRows(c, waits, next, func(w read.WaitHistory) waitRow { return newWaitRow(o, w) })
}

// analyticsWait is endpoint 21 for one wait.
func (s *Server) analyticsWait(c echo.Context) error {
	o, id, err := s.pathOriginAnd(c, "waitId")
	if err != nil {
		return err
	}
	w, err := s.Log.WaitHistory(c.Request().Context(), auth.Project(c), o.run.ID, entities.WaitID(id))
	if err != nil {
		return err
	}
	return answer(c, newWaitRow(o, w))
}
