package wire

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// eventPage is the default page size of events. It holds nearly every log in one page.
const eventPage = pg.MaxPage

// maxEvents is the length of a log at which clients of the next line fail the run (§1.4).
const maxEvents = 25_000

// result is the answer to a posted event (§3.2).
type result struct {
	Event       *event `cbor:"event,omitzero"`
	Run         *run   `cbor:"run,omitzero"`
	Step        *step  `cbor:"step,omitzero"`
	Hook        *hook  `cbor:"hook,omitzero"`
	Wait        *wait  `cbor:"wait,omitzero"`
	StepCreated bool   `cbor:"stepCreated,omitzero"`

	*excerpt
}

// excerpt is a part of the log in an answer. It has all of its fields, or is missing as a whole.
type excerpt struct {
	Events  []event `cbor:"events"`
	Cursor  *string `cbor:"cursor"`
	HasMore bool    `cbor:"hasMore"`
}

// postEvent is endpoint 1: it appends one event.
func (s *Server) postEvent(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	frame, err := codec.ReadFrame(c.Request().Body)
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
	if serverOnly[request.Type] {
		return entities.Invalid("clients cannot write events of type %q", request.Type)
	}
	with, err := payloadsFor(m.RemoteRefBehavior)
	if err != nil {
		return err
	}
	if m.SinceCursor != "" {
		if _, err := read.ParseEventCursor(m.SinceCursor); err != nil {
			return err
		}
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	appended, err := s.Log.Append(ctx, project, request)
	if err != nil {
		return err
	}
	setEventHeaders(c, appended)
	if request.Type == entities.EventRunStarted && !m.SkipPreload && wantsFrames(c) {
		c.Response().Header().Set("X-Wf-Max-Events", strconv.Itoa(maxEvents))
		return s.sendLog(c, pg.Page{Limit: eventPage}, read.WithPayloads, s.eventsOf(project, runID))
	}
	res, err := s.newResult(ctx, request.Type, appended, with)
	if err != nil {
		return err
	}
	if res.excerpt, err = s.excerptFor(ctx, project, appended, m); err != nil {
		return err
	}
	return answer(c, res)
}

// wantsFrames reports whether the client is of the next line, which reads the log of a run that it starts as frames
// (§3.5).
func wantsFrames(c echo.Context) bool {
	return strings.Contains(c.Request().Header.Get(echo.HeaderAccept), mimeFrames)
}

// setEventHeaders sets the headers that identify the event. Clients of the stable line require them (§1.4).
func setEventHeaders(c echo.Context, r eventlog.Result) {
	h := c.Response().Header()
	h.Set("X-Wf-Event-Id", string(r.Event.ID()))
	h.Set("X-Wf-Run-Id", string(r.Run.ID))
	h.Set("X-Wf-Created-At", r.Event.CreatedAt.UTC().Format(time.RFC3339Nano))
}

// newResult makes the answer to an append: the event, and the entity that it changed.
func (s *Server) newResult(
	ctx context.Context, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (result, error) {
	e, err := newEvent(*appended.Event)
	if err != nil {
		return result{}, err
	}
	res := result{Event: &e, StepCreated: appended.StepCreated}
	switch typ.Kind() {
	case entities.KindStep:
		res.Step, err = s.stepAfter(ctx, typ, appended, with)
	case entities.KindHook:
		if appended.Hook != nil {
			h := newHook(*appended.Hook, nil)
			res.Hook = &h
		}
	case entities.KindWait:
		w := newWait(*appended.Wait)
		res.Wait = &w
	default:
		res.Run, err = s.runAfter(ctx, typ, appended, with)
	}
	return res, err
}

// stepAfter returns a step after an append. It includes the step's input only when the step starts, because clients
// need it only then.
func (s *Server) stepAfter(
	ctx context.Context, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (*step, error) {
	var created *entities.Event
	after := *appended.Step
	if typ == entities.EventStepStarted && with == read.WithPayloads {
		var err error
		created, err = s.eventAt(ctx, appended, after.CreatedSeq)
		if err != nil {
			return nil, err
		}
	}
	w, err := newStep(after, created, nil)
	return &w, err
}

// runAfter returns a run after an append.
func (s *Server) runAfter(
	ctx context.Context, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (*run, error) {
	var first *entities.Event
	switch {
	case typ == entities.EventRunCreated:
		first = appended.Event
	case with == read.WithPayloads:
		var err error
		if first, err = s.eventAt(ctx, appended, 1); err != nil {
			return nil, err
		}
	}
	w, err := newRun(appended.Run, first, nil)
	return &w, err
}

// eventAt returns an event of the run with its payload, from memory if the append has read it.
func (s *Server) eventAt(ctx context.Context, appended eventlog.Result, seq int64) (*entities.Event, error) {
	if seq <= int64(len(appended.Log)) {
		return &appended.Log[seq-1], nil
	}
	e, err := s.Log.Event(ctx, appended.Run.Project, appended.Run.ID, seq)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// excerptFor returns the part of the log that saves the client its next request, or nil: the whole log when a replay
// starts (§3.5), the events after a cursor, or those that were appended between the client's last known event and the
// new one (§3.2).
func (s *Server) excerptFor(
	ctx context.Context, project entities.Project, appended eventlog.Result, m meta,
) (*excerpt, error) {
	p := pg.Page{Limit: eventPage}
	overtaken := false // by events that the client does not know
	switch seen, seq := int64(m.MaxSlot), appended.Event.Seq; {
	case m.SinceCursor != "":
		p.Cursor = m.SinceCursor
	case appended.Repeated:
		return nil, nil
	case appended.Event.Type == entities.EventRunStarted:
		if m.SkipPreload {
			return nil, nil
		}
	case seen >= 1 && seq > seen+1 && seq-seen <= eventPage:
		overtaken = true
		p.Cursor, p.Limit = read.EventCursorAt(seen), int(seq-seen-1)
	default:
		return nil, nil
	}
	page, ok := appended.Page(p)
	if !ok {
		var err error
		if page, err = s.Log.Events(ctx, project, appended.Run.ID, p, read.WithPayloads); err != nil {
			return nil, err
		}
	}
	if overtaken && len(page.Events) < p.Limit {
		return nil, nil // too large for an answer; the client reads the log instead
	}
	x, err := newExcerpt(page)
	if err == nil && overtaken {
		x.Cursor, x.HasMore = nil, false // it ends at the client's own event
	}
	return x, err
}

func newExcerpt(page read.EventPage) (*excerpt, error) {
	x := &excerpt{Events: make([]event, len(page.Events)), HasMore: page.More}
	for i, e := range page.Events {
		var err error
		if x.Events[i], err = newResolvedEvent(e); err != nil {
			return nil, err
		}
	}
	if n := len(page.Events); n > 0 {
		cursor := read.EventCursor(page.Events[n-1])
		x.Cursor = &cursor
	}
	return x, nil
}

// listEvents is endpoint 2: the log of a run.
func (s *Server) listEvents(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	return s.sendEvents(c, s.eventsOf(auth.Project(c), runID))
}

// listEventsByCorrelation is endpoint 4: the events with a correlation ID.
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
	return s.sendEvents(c, func(ctx context.Context, p pg.Page, with read.Payloads) (read.EventPage, error) {
		return s.Log.EventsByCorrelation(ctx, auth.Project(c), entities.RunID(runID), correlationID, p, with)
	})
}

// eventQuery reads one page of events.
type eventQuery func(context.Context, pg.Page, read.Payloads) (read.EventPage, error)

// eventsOf returns a query for the log of a run.
func (s *Server) eventsOf(project entities.Project, runID entities.RunID) eventQuery {
	return func(ctx context.Context, p pg.Page, with read.Payloads) (read.EventPage, error) {
		return s.Log.Events(ctx, project, runID, p, with)
	}
}

// sendEvents sends events as frames: one page, or all of them with returnAll (§2.4).
func (s *Server) sendEvents(c echo.Context, list eventQuery) error {
	p, with, err := listParams(c, eventPage, "asc")
	if err != nil {
		return err
	}
	if c.QueryParam("returnAll") == "true" {
		return s.sendLog(c, p, with, list)
	}
	got, err := list(c.Request().Context(), p, with)
	if err != nil {
		return err
	}
	w := startFrames(c)
	err = writeEvents(w, got.Events)
	if err == nil {
		err = w.WriteEnd(nextCursor(c, got), got.More)
	}
	return s.cutOff(c, err)
}

// sendLog sends all events after the page's cursor, with one page at a time in memory.
func (s *Server) sendLog(c echo.Context, p pg.Page, with read.Payloads, list eventQuery) error {
	ctx := c.Request().Context()
	got, err := list(ctx, p, with)
	if err != nil {
		return err
	}
	w := startFrames(c)
	for {
		if err := writeEvents(w, got.Events); err != nil {
			return s.cutOff(c, err)
		}
		if !got.More {
			return s.cutOff(c, w.WriteEnd(nextCursor(c, got), false))
		}
		p.Cursor = read.EventCursor(got.Events[len(got.Events)-1])
		read.ReuseMemory(ctx)
		if got, err = list(ctx, p, with); err != nil {
			return s.cutOff(c, err)
		}
	}
}

func startFrames(c echo.Context) *codec.FrameWriter {
	c.Response().Header().Set(echo.HeaderContentType, mimeFrames)
	return codec.NewFrameWriter(c.Response())
}

func writeEvents(w *codec.FrameWriter, events []entities.Event) error {
	for _, e := range events {
		meta, err := frameMeta(e)
		if err != nil {
			return err
		}
		if err := w.WriteFrame(meta, e.Payload); err != nil {
			return err
		}
	}
	return nil
}

// nextCursor returns the cursor after a page. It differs for the last page (§2.4): clients of the next line keep its
// cursor to read later events from there; clients of the stable line would request another page, so they get none.
func nextCursor(c echo.Context, p read.EventPage) string {
	if len(p.Events) == 0 || (!p.More && stableLine(c)) {
		return ""
	}
	return read.EventCursor(p.Events[len(p.Events)-1])
}

func frameMeta(e entities.Event) ([]byte, error) {
	w, err := newEvent(e)
	if err != nil {
		return nil, err
	}
	return codec.Marshal(w)
}

// getEvent is endpoint 3: one event as a frame.
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
		return entities.ErrEventNotFound // the server never issued this ID
	}
	e, err := s.Log.Event(c.Request().Context(), auth.Project(c), runID, seq)
	if err != nil {
		return err
	}
	if with == read.WithoutPayloads {
		e.Payload = nil
	}
	meta, err := frameMeta(e)
	if err != nil {
		return err
	}
	return startFrames(c).WriteFrame(meta, e.Payload)
}
