package wire

import (
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// analyticsSteps is endpoint 21 for the steps of a run.
func (s *Server) analyticsSteps(r *request) error {
	page, o := r.pageUpTo(maxRunPage, analyticsPage, newestFirst), s.origin(r, r.runID())
	return answer(r, func() (l listing[stepRow], err error) {
		steps, next, err := store.ListSteps(r.ctx(), s.Reader, r.project(), o.run.ID, page)
		if err != nil {
			return l, err
		}
		rows, err := s.stepRows(r, o, steps)
		return newListing(rows, next), err
	})
}

// analyticsStep is endpoint 21 for one step.
func (s *Server) analyticsStep(r *request) error {
	id, o := entities.StepID(r.param("stepId")), s.origin(r, r.runID())
	return answer(r, func() (row stepRow, err error) {
		st, err := store.StepByID(r.ctx(), s.Reader, r.project(), o.run.ID, id)
		if err != nil {
			return row, err
		}
		rows, err := s.stepRows(r, o, []entities.Step{st})
		if err != nil {
			return row, err
		}
		return rows[0], nil
	})
}

// stepRows completes steps from their events: the error code of the last attempt, and the machine it ran on.
func (s *Server) stepRows(r *request, o origin, steps []entities.Step) ([]stepRow, error) {
	var failures []read.Position
	ids := make([]entities.StepID, len(steps))
	for i, st := range steps {
		ids[i] = st.ID
		if st.ResultSeq > 0 && st.Status != entities.StepCompleted {
			failures = append(failures, read.Position{RunID: st.RunID, Seq: st.ResultSeq})
		}
	}
	failed, err := s.Log.EventsAt(r.ctx(), failures, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	starts, err := s.Log.LastStarts(r.ctx(), o.run.ID, ids)
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
func (s *Server) analyticsEvents(r *request) error {
	page := r.pageUpTo(maxRunPage, analyticsPage, oldestFirst)
	filter := read.EventFilter{
		Type: entities.EventType(r.query("eventType")), CorrelationID: r.query("correlationId"),
	}
	o := s.origin(r, r.runID())
	return answer(r, func() (l listing[eventRow], err error) {
		got, err := s.Log.FilteredEvents(r.ctx(), r.project(), o.run.ID, filter, page)
		if err != nil {
			return l, err
		}
		return eventListing(o, got)
	})
}

// analyticsEventsByCorrelation is endpoint 21 for the events with a correlation ID.
func (s *Server) analyticsEventsByCorrelation(r *request) error {
	page, id := r.pageUpTo(maxRunPage, analyticsPage, oldestFirst), r.required("correlationId")
	return answer(r, func() (l listing[eventRow], err error) {
		got, err := s.Log.EventsByCorrelation(r.ctx(), r.project(), "", id, page, read.WithoutPayloads)
		if err != nil {
			return l, err
		}
		var o origin
		if len(got.Events) > 0 {
			o = s.origin(r, got.Events[0].RunID)
		}
		if r.err != nil {
			return l, r.err
		}
		return eventListing(o, got)
	})
}

func eventListing(o origin, page read.EventPage) (listing[eventRow], error) {
	rows, err := eventRows(o, page.Events)
	next := ""
	if page.More {
		next = read.EventCursor(page.Events[len(page.Events)-1])
	}
	return newListing(rows, next), err
}

// analyticsEvent is endpoint 21 for one event.
func (s *Server) analyticsEvent(r *request) error {
	id, o := entities.EventID(r.param("eventId")), s.origin(r, r.runID())
	return answer(r, func() (row eventRow, err error) {
		rows, err := s.rowsOfEvents(r, o, []entities.EventID{id})
		if err != nil {
			return row, err
		}
		if len(rows) == 0 {
			return row, entities.ErrEventNotFound
		}
		return rows[0], nil
	})
}

// maxGetMany limits the events in one request to endpoint 21b.
const maxGetMany = 100

// analyticsEventsAt is endpoint 21b: several events of a run by ID. Unknown events are omitted.
func (s *Server) analyticsEventsAt(r *request) error {
	var body struct {
		EventIDs []entities.EventID `cbor:"eventIds"`
	}
	r.body(&body)
	slices.Sort(body.EventIDs)
	ids := slices.Compact(body.EventIDs)
	if len(ids) < 1 || len(ids) > maxGetMany {
		r.fail(entities.Invalid("eventIds has %d IDs; want 1 to %d", len(ids), maxGetMany))
	}
	o := s.origin(r, r.runID())
	return answer(r, func() ([]eventRow, error) { return s.rowsOfEvents(r, o, ids) })
}

// rowsOfEvents reads events of a run by ID, in the order of the IDs.
func (s *Server) rowsOfEvents(r *request, o origin, ids []entities.EventID) ([]eventRow, error) {
	var at []read.Position
	for _, id := range ids {
		if seq, err := id.Seq(); err == nil { // otherwise the server never issued the ID
			at = append(at, read.Position{RunID: o.run.ID, Seq: seq})
		}
	}
	found, err := s.Log.EventsAt(r.ctx(), at, read.WithoutPayloads)
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
func (s *Server) analyticsHooks(r *request) error {
	page, runID := r.pageUpTo(maxWidePage, analyticsPage, oldestFirst), entities.RunID(r.required("runId"))
	o := s.origin(r, runID)
	newRow := func(h read.HookHistory) hookRow { return newHookRow(o, h) }
	return answerRows(r, newRow, func() ([]read.HookHistory, string, error) {
		return s.Log.HookHistories(r.ctx(), r.project(), o.run.ID, page)
	})
}

// analyticsHook is endpoint 21 for one hook. The run ID is optional.
func (s *Server) analyticsHook(r *request) error {
	id, runID := entities.HookID(r.param("hookId")), entities.RunID(r.query("runId"))
	return answer(r, func() (row hookRow, err error) {
		h, err := s.Log.HookHistory(r.ctx(), r.project(), runID, id)
		if err != nil {
			return row, err
		}
		o := s.origin(r, h.RunID)
		return newHookRow(o, h), r.err
	})
}

// analyticsWaits is endpoint 21 for the waits of a run.
func (s *Server) analyticsWaits(r *request) error {
	page, o := r.pageUpTo(maxRunPage, analyticsPage, oldestFirst), s.origin(r, r.runID())
	status := entities.WaitStatus(r.QueryParam("status"))
	newRow := func(w read.WaitHistory) waitRow { return newWaitRow(o, w) }
	return answerRows(r, newRow, func() ([]read.WaitHistory, string, error) {
		return s.Log.WaitHistories(r.ctx(), r.project(), o.run.ID, status, page)
	})
}

// analyticsWait is endpoint 21 for one wait.
func (s *Server) analyticsWait(r *request) error {
	id, o := entities.WaitID(r.param("waitId")), s.origin(r, r.runID())
	return answer(r, func() (waitRow, error) {
		w, err := s.Log.WaitHistory(r.ctx(), r.project(), o.run.ID, id)
		return newWaitRow(o, w), err
	})
}
