package wire

import (
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
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
		WorkflowName: r.query("workflowName"), Status: entities.RunStatus(r.QueryParam("status")),
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
