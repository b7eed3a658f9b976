package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// Page sizes of analytics lists (§2.7). Clients of the next line never request more than the maximum.
const (
	analyticsRunPage = 20
	analyticsPage    = 100
	maxWidePage      = 100        // of lists across runs, and of hooks
	maxRunPage       = pg.MaxPage // of lists within a run
)

// analyticsRuns is endpoint 21 for runs, with filters.
func (s *Server) analyticsRuns(r *request) error {
	page := r.pageUpTo(maxWidePage, analyticsRunPage, newestFirst)
	filter := store.RunFilter{
		WorkflowName: r.query("workflowName"), AnyStatus: r.runStatuses(),
		Created: r.window(), Attributes: r.attributes(),
	}
	return answerRows(r, newRunRow, func() ([]origin, string, error) {
		runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(), filter, page)
		if err != nil {
			return nil, "", err
		}
		origins, err := s.origins(r, runs...)
		return origins, next, err
	})
}

// runStatuses returns the statuses that runs may have, each of its own parameter or all in one, with commas between
// them.
func (r *request) runStatuses() (list []entities.RunStatus) {
	for _, text := range strings.Split(strings.Join(r.QueryParams()["status"], ","), ",") {
		switch status := entities.RunStatus(text); {
		case text == "":
		case !status.Known():
			r.fail(fmt.Errorf("status: %w %q", ErrUnknownValue, text))
		default:
			list = append(list, status)
		}
	}
	return list
}

// attributes returns the filter by attributes, a JSON object of strings.
func (r *request) attributes() map[string]string {
	given := r.QueryParam("attributes")
	if given == "" {
		return nil
	}
	var values map[string]*string
	if err := json.Unmarshal([]byte(given), &values); err != nil {
		r.fail(entities.Invalid("attributes is not a JSON object of strings"))
	}
	wanted := make(map[string]string, len(values))
	for key, value := range values {
		if value == nil {
			r.fail(entities.Invalid("attribute %q has no value to filter by", key))
			continue
		}
		wanted[key] = *value
	}
	return wanted
}

// analyticsAttributes is endpoint 21 for the attribute keys of runs.
func (s *Server) analyticsAttributes(r *request) error {
	page := r.pageUpTo(maxWidePage, analyticsPage, oldestFirst)
	filter := store.KeyFilter{WorkflowName: r.query("workflowName"), Created: r.window()}
	return answerRows(r, newAttributeRow, func() ([]store.AttributeKey, string, error) {
		return store.ListAttributeKeys(r.ctx(), s.Reader, r.project(), filter, page)
	})
}

// window returns the parameters startTime and endTime. Only both or neither may be given.
func (r *request) window() store.Window {
	if (r.QueryParam("startTime") == "") != (r.QueryParam("endTime") == "") {
		r.fail(entities.Invalid("give both startTime and endTime, or neither"))
	}
	return store.Window{From: r.instant("startTime"), To: r.instant("endTime")}
}

// instantLayouts are the accepted forms of ISO 8601. A time without zone is UTC.
var instantLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly}

// instant returns a query parameter that is a time, or the zero time if it is missing.
func (r *request) instant(name string) time.Time {
	s := r.QueryParam(name)
	if s == "" {
		return time.Time{}
	}
	for _, layout := range instantLayouts {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1 {
			return t
		}
	}
	r.fail(entities.Invalid("%s %q is not an ISO 8601 time", name, s))
	return time.Time{}
}

// origin is a run with the information in its first event about the code that started it.
type origin struct {
	run entities.Run
	madeBy
}

func newOrigin(r entities.Run, first *entities.Event) (origin, error) {
	o := origin{run: r}
	if first == nil {
		return o, nil
	}
	extra, err := extraOf(*first)
	if err != nil {
		return o, err
	}
	execution := optional[codec.Map](extra["executionContext"])
	o.CoreVersion = optional[string](execution["workflowCoreVersion"])
	o.Encrypted = optional[*bool](optional[codec.Map](execution["features"])["encryption"])
	return o, nil
}

// origins reads the first events of runs.
func (s *Server) origins(r *request, runs ...entities.Run) ([]origin, error) {
	at := make([]read.Position, len(runs))
	for i, run := range runs {
		at[i] = read.Position{RunID: run.ID, Seq: 1}
	}
	events, err := s.Log.EventsAt(r.ctx(), at, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	list := make([]origin, len(runs))
	for i, run := range runs {
		if list[i], err = newOrigin(run, eventsAt(events).at(run.ID, 1)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// origin reads a run of the caller's project.
func (s *Server) origin(r *request, id entities.RunID) (o origin) {
	if r.err != nil {
		return o
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), id)
	if err != nil {
		r.err = err
		return o
	}
	list, err := s.origins(r, run)
	if err != nil {
		r.err = err
		return o
	}
	return list[0]
}

// answerRows sends a page of the rows of what find returns, unless reading the request failed.
func answerRows[T, R any](r *request, newRow func(T) R, find func() (items []T, next string, err error)) error {
	return answer(r, func() (listing[R], error) {
		items, next, err := find()
		rows := make([]R, len(items))
		for i, item := range items {
			rows[i] = newRow(item)
		}
		return newListing(rows, next), err
	})
}

// analyticsRun is endpoint 21 for one run.
func (s *Server) analyticsRun(r *request) error {
	o := s.origin(r, r.runID())
	return answer(r, func() (runRow, error) { return newRunRow(o), nil })
}

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
	status := entities.WaitStatus(r.oneOf("status", "",
		string(entities.WaitWaiting), string(entities.WaitCompleted), string(entities.WaitCancelled)))
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
