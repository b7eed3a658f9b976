package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// eventPage is the default page size of events. It holds nearly every log in one page.
const eventPage = pg.MaxPage

// maxEvents is the length of a log at which clients of the next line fail the run (§1.4).
const maxEvents = 25_000

// result is the answer to a posted event (§3.2).
type result struct {
	Event       codec.Encoded `cbor:"event,omitzero"`
	Run         *run          `cbor:"run,omitzero"`
	Step        *step         `cbor:"step,omitzero"`
	Hook        *hook         `cbor:"hook,omitzero"`
	Wait        *wait         `cbor:"wait,omitzero"`
	StepCreated bool          `cbor:"stepCreated,omitzero"`

	*excerpt
	report
}

// size returns how many bytes of payloads and of the log the result has.
func (r result) size() int {
	n := 0
	if r.Run != nil {
		n += len(r.Run.Input)
	}
	if r.Step != nil {
		n += len(r.Step.Input)
	}
	if r.excerpt != nil {
		for _, e := range r.Events {
			n += len(e)
		}
	}
	return n
}

// excerpt is a part of the log in an answer. It has all of its fields, or is missing as a whole.
type excerpt struct {
	Events  []codec.Encoded `cbor:"events"`
	Cursor  *string         `cbor:"cursor"`
	HasMore bool            `cbor:"hasMore"`
}

// postEvent is endpoint 1: it appends one event.
func (s *Server) postEvent(r *request) error {
	runID := r.runID()
	if r.err != nil {
		return r.err
	}
	frame, err := codec.ReadFrame(r.Request().Body)
	if err != nil {
		return err
	}
	request, m, err := newRequest(runID, frame, s.fence(r))
	if err != nil {
		return err
	}
	if request.Type == "" {
		request.Type = entities.EventType(r.Param("eventType"))
	}
	with, err := m.check(request.Type)
	if err != nil {
		return err
	}
	appended, err := s.Log.Append(r.ctx(), r.project(), request)
	if err != nil {
		return err
	}
	r.setEventHeaders(appended)
	if request.Type == entities.EventRunStarted && !m.SkipPreload && r.wantsFrames() {
		r.Response().Header().Set("X-Wf-Max-Events", strconv.Itoa(maxEvents))
		p, with := pg.Page{Limit: eventPage}, eventPayloads(m.EventPayloads)
		return s.sendLog(r, p, with, snapshotOf(appended.Run), s.eventsOf(r, runID))
	}
	res, err := s.newResult(r, request.Type, appended, with)
	if err != nil {
		return err
	}
	if err := s.addExcerpt(r, &res, appended, m); err != nil {
		return err
	}
	return r.send(res)
}

// check checks what the metadata of an event of the type asks of the answer, and returns whether that has payloads.
func (m meta) check(typ entities.EventType) (read.Payloads, error) {
	if serverOnly[typ] {
		return read.WithoutPayloads, entities.Invalid("clients cannot write events of type %q", typ)
	}
	if m.SinceCursor != "" {
		if _, err := read.ParseEventCursor(m.SinceCursor); err != nil {
			return read.WithoutPayloads, err
		}
	}
	if m.RemoteRefBehavior == noPayloads {
		return read.WithoutPayloads, nil
	}
	return read.WithPayloads, nil
}

// wantsFrames reports whether the client is of the next line, which reads the log of a run that it starts as frames
// (§3.5).
func (r *request) wantsFrames() bool {
	return strings.Contains(r.Request().Header.Get(echo.HeaderAccept), mimeFrames)
}

// setEventHeaders sets the headers that identify the event. Clients of the stable line require them (§1.4).
func (r *request) setEventHeaders(appended eventlog.Result) {
	h := r.Response().Header()
	h.Set("X-Wf-Event-Id", string(appended.Event.ID()))
	h.Set("X-Wf-Run-Id", string(appended.Run.ID))
	h.Set("X-Wf-Created-At", appended.Event.CreatedAt.UTC().Format(time.RFC3339Nano))
}

// newResult makes the answer to an append: the event, and the entity that it changed.
func (s *Server) newResult(
	r *request, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (result, error) {
	row := read.RowOf(appended.Event)
	e, err := new(eventEncoder).append(nil, &row)
	if err != nil {
		return result{}, err
	}
	res := result{Event: e, StepCreated: appended.StepCreated, report: report{Allocated: allocated(appended)}}
	switch typ.Kind() {
	case entities.KindStep:
		res.Step, err = s.stepAfter(r, typ, appended, with)
	case entities.KindHook:
		if appended.Hook != nil {
			res.Hook = new(newHook(*appended.Hook, nil))
		}
	case entities.KindWait:
		if appended.Wait != nil { // the end of a run deletes its waits
			res.Wait = new(newWait(*appended.Wait))
		}
	default:
		res.Run, err = s.runAfter(r, typ, appended, with)
	}
	return res, err
}

// stepAfter returns a step after an append. It includes the step's input only when the step starts, because clients
// need it only then.
func (s *Server) stepAfter(
	r *request, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (*step, error) {
	var created *entities.Event
	if typ == entities.EventStepStarted && with == read.WithPayloads {
		var err error
		if created, err = s.eventAt(r, appended, appended.Step.CreatedSeq); err != nil {
			return nil, err
		}
	}
	w, err := newStep(*appended.Step, created, nil)
	return &w, err
}

// runAfter returns a run after an append.
func (s *Server) runAfter(
	r *request, typ entities.EventType, appended eventlog.Result, with read.Payloads,
) (*run, error) {
	var first *entities.Event
	switch {
	case typ == entities.EventRunCreated:
		first = appended.Event
	case with == read.WithPayloads:
		var err error
		if first, err = s.eventAt(r, appended, 1); err != nil {
			return nil, err
		}
	}
	w, err := newRun(appended.Run, first, nil)
	return &w, err
}

// eventAt returns an event of the run with its payload, from memory if the append has read it.
func (s *Server) eventAt(r *request, appended eventlog.Result, seq int64) (*entities.Event, error) {
	if seq <= int64(len(appended.Log)) {
		return &appended.Log[seq-1], nil
	}
	e, err := s.Log.Event(r.ctx(), appended.Run.Project, appended.Run.ID, seq)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// addExcerpt adds to the answer the part of the log that [Server.excerptFor] returns, and says if it lacks events that
// the writer has to know.
func (s *Server) addExcerpt(r *request, res *result, appended eventlog.Result, m meta) (err error) {
	res.excerpt, err = s.excerptFor(r, appended, m)
	skipped := appended.Event.Seq > int64(m.MaxSlot)+1
	if appended.Repeated {
		skipped = appended.Run.LastSeq > int64(m.MaxSlot)
	}
	res.Incomplete = m.reportsSkipped(appended) && skipped && res.excerpt == nil
	return err
}

// excerptFor returns the part of the log that saves the client its next request, or nil: the whole log when a replay
// starts (§3.5), the events after a cursor, or those that were appended between the client's last known event and the
// new one (§3.2).
func (s *Server) excerptFor(r *request, appended eventlog.Result, m meta) (*excerpt, error) {
	p, overtaken := m.excerptPage(appended)
	if p.Limit == 0 {
		return nil, nil
	}
	with := eventPayloads(m.EventPayloads)
	page, ok := appended.Page(p)
	if !ok {
		var err error
		if page, err = s.Log.Events(r.ctx(), r.project(), appended.Run.ID, p, with); err != nil {
			return nil, err
		}
	}
	if overtaken && len(page.Events) < p.Limit {
		return nil, nil // too large for an answer; the client reads the log instead
	}
	x, err := newExcerpt(page, with)
	if err == nil && overtaken {
		x.Cursor, x.HasMore = nil, false // it ends at the client's own event
	}
	return x, err
}

// excerptPage returns which part of the log the answer has, none if its limit is 0, and whether these are events that
// the client does not know and that overtook its own.
func (m meta) excerptPage(appended eventlog.Result) (p pg.Page, overtaken bool) {
	started := appended.Event.Type == entities.EventRunStarted
	skipped, fits := m.skippedBefore(appended.Event.Seq)
	switch {
	case m.SinceCursor != "":
		return pg.Page{Limit: eventPage, Cursor: m.SinceCursor}, false
	case appended.Repeated:
		return pg.Page{}, false
	case started && !m.SkipPreload:
		return pg.Page{Limit: eventPage}, false
	case started && !m.reportsSkipped(appended):
		return pg.Page{}, false
	case m.MaxSlot >= 1 && skipped.Limit > 0 && fits:
		return skipped, true
	default:
		return pg.Page{}, false
	}
}

func newExcerpt(page read.EventPage, with read.Payloads) (*excerpt, error) {
	x := &excerpt{Events: make([]codec.Encoded, len(page.Events)), HasMore: page.More}
	var w eventEncoder
	for i, e := range page.Events {
		e = with.Of(e)
		row := read.RowOf(&e)
		var err error
		if x.Events[i], err = w.appendResolved(nil, &row); err != nil {
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
func (s *Server) listEvents(r *request) error {
	runID := r.runID()
	if r.err != nil {
		return r.err
	}
	snapshot, err := s.snapshot(r, runID)
	if err != nil {
		return err
	}
	return s.sendEvents(r, snapshot, s.eventsOf(r, runID))
}

// listEventsByCorrelation is endpoint 4: the events with a correlation ID.
func (s *Server) listEventsByCorrelation(r *request) error {
	id, runID := r.required("correlationId"), entities.RunID(r.query("runId"))
	return s.sendEvents(r, nil, func(p pg.Page, with read.Payloads) (read.RowPage, error) {
		return s.Log.RowsByCorrelation(r.ctx(), r.project(), runID, id, p, with)
	})
}

// eventQuery reads one page of events.
type eventQuery func(pg.Page, read.Payloads) (read.RowPage, error)

// eventsOf returns a query for the log of a run.
func (s *Server) eventsOf(r *request, runID entities.RunID) eventQuery {
	return func(p pg.Page, with read.Payloads) (read.RowPage, error) {
		return s.Log.Rows(r.ctx(), r.project(), runID, p, with)
	}
}

// sendEvents sends events as frames: one page, or all of them with returnAll (§2.4).
func (s *Server) sendEvents(r *request, snapshot *codec.Snapshot, list eventQuery) error {
	p, with := r.page(eventPage, oldestFirst), r.eventPayloads()
	if r.err != nil {
		return r.err
	}
	if r.QueryParam("returnAll") == "true" {
		return s.sendLog(r, p, with, snapshot, list)
	}
	got, err := list(p, with)
	if err != nil {
		return err
	}
	w := r.startFrames()
	err = writeRows(w, got.Rows)
	if err == nil {
		err = w.WriteEnd(r.nextCursor(got), got.More, snapshot)
	}
	return s.cutOff(r, err)
}

// sendLog sends all events after the page's cursor, with one page at a time in memory.
func (s *Server) sendLog(
	r *request, p pg.Page, with read.Payloads, snapshot *codec.Snapshot, list eventQuery,
) error {
	got, err := list(p, with)
	if err != nil {
		return err
	}
	w := r.startFrames()
	for {
		if err := writeRows(w, got.Rows); err != nil {
			return s.cutOff(r, err)
		}
		if !got.More {
			return s.cutOff(r, w.WriteEnd(r.nextCursor(got), false, snapshot))
		}
		p.Cursor = read.EventCursorAt(got.Last())
		read.ReuseMemory(r.ctx())
		if got, err = list(p, with); err != nil {
			return s.cutOff(r, err)
		}
	}
}

func (r *request) startFrames() *codec.FrameWriter {
	r.Response().Header().Set(echo.HeaderContentType, mimeFrames)
	return codec.NewFrameWriter(r.Response())
}

func writeRows(w *codec.FrameWriter, rows []read.Row) (err error) {
	var encoder eventEncoder
	var meta []byte
	for i := range rows {
		if meta, err = encoder.append(meta[:0], &rows[i]); err != nil {
			return err
		}
		if err := w.WriteFrame(meta, rows[i].Payload); err != nil {
			return err
		}
	}
	return nil
}

// nextCursor returns the cursor after a page. It differs for the last page (§2.4): clients of the next line keep its
// cursor to read later events from there; clients of the stable line would request another page, so they get none.
func (r *request) nextCursor(p read.RowPage) string {
	if len(p.Rows) == 0 || (!p.More && r.stableLine()) {
		return ""
	}
	return read.EventCursorAt(p.Last())
}

// getEvent is endpoint 3: one event as a frame.
func (s *Server) getEvent(r *request) error {
	runID, id, with := r.runID(), entities.EventID(r.param("eventId")), r.payloads()
	if r.err != nil {
		return r.err
	}
	seq, err := id.Seq()
	if err != nil {
		return entities.ErrEventNotFound // the server never issued this ID
	}
	e, err := s.Log.Event(r.ctx(), r.project(), runID, seq)
	if err != nil {
		return err
	}
	if with == read.WithoutPayloads {
		e.Payload = nil
	}
	w := r.startFrames()
	if err := writeRows(w, []read.Row{read.RowOf(&e)}); err != nil {
		return err
	}
	return w.Flush()
}
