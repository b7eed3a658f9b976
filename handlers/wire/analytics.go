package wire

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Page sizes of analytics lists (§2.7). Clients of the next line ask for no more than the maximum.
const (
	analyticsRunPage = 20
	analyticsPage    = 100
	maxWidePage      = 100              // of lists that go over runs, and of hooks
	maxRunPage       = entities.MaxPage // of lists within a run
)

// analyticsRuns is endpoint 21, runs: a list by any of their qualities.
func (s *Server) analyticsRuns(c echo.Context) error {
	p, err := pageUpTo(c, maxWidePage, analyticsRunPage, "desc")
	if err != nil {
		return err
	}
	filter, err := runFilter(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	runs, next, err := entities.ListRuns(ctx, s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	origins, err := s.origins(ctx, runs...)
	if err != nil {
		return err
	}
	rows := make([]runRow, len(origins))
	for i, o := range origins {
		rows[i] = newRunRow(o)
	}
	return answer(c, newListing(rows, next))
}

func runFilter(c echo.Context) (f entities.RunFilter, err error) {
	if f.WorkflowName, err = query(c, "workflowName"); err != nil {
		return f, err
	}
	f.Status = entities.RunStatus(c.QueryParam("status"))
	if f.Created, err = window(c); err != nil {
		return f, err
	}
	f.Attributes, err = attributes(c)
	return f, err
}

// attributes reads the values that runs are to have, which come as a JSON object.
func attributes(c echo.Context) (map[string]string, error) {
	given := c.QueryParam("attributes")
	if given == "" {
		return nil, nil
	}
	var values map[string]*string
	if err := json.Unmarshal([]byte(given), &values); err != nil {
		return nil, entities.Invalid("attributes is not a JSON object of strings")
	}
	wanted := make(map[string]string, len(values))
	for key, value := range values {
		if value == nil {
			return nil, entities.Invalid("attribute %q has no value to filter by", key)
		}
		wanted[key] = *value
	}
	return wanted, nil
}

// analyticsAttributes is endpoint 21, attributes: those that runs have.
func (s *Server) analyticsAttributes(c echo.Context) error {
	p, err := pageUpTo(c, maxWidePage, analyticsPage, "asc")
	if err != nil {
		return err
	}
	var filter entities.KeyFilter
	if filter.WorkflowName, err = query(c, "workflowName"); err != nil {
		return err
	}
	if filter.Created, err = window(c); err != nil {
		return err
	}
	keys, next, err := entities.ListAttributeKeys(c.Request().Context(), s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	rows := make([]attributeRow, len(keys))
	for i, k := range keys {
		rows[i] = newAttributeRow(k)
	}
	return answer(c, newListing(rows, next))
}

// pageUpTo is [page] for a list whose clients know the limit, and are told when they pass it.
func pageUpTo(c echo.Context, most, limit int, order string) (entities.Page, error) {
	p, err := page(c, limit, order)
	if err != nil {
		return p, err
	}
	if n, err := strconv.Atoi(c.QueryParam("limit")); err == nil && n > most {
		return p, entities.Invalid("limit %d is more than this list's %d", n, most)
	}
	return p, nil
}

// window reads startTime and endTime, which come together or not at all.
func window(c echo.Context) (w entities.Window, err error) {
	start, end := c.QueryParam("startTime"), c.QueryParam("endTime")
	if start == "" && end == "" {
		return w, nil
	}
	if start == "" || end == "" {
		return w, entities.Invalid("startTime and endTime belong together: give both or neither")
	}
	if w.From, err = instant("startTime", start); err != nil {
		return w, err
	}
	w.To, err = instant("endTime", end)
	return w, err
}

// instantLayouts are ISO 8601; without a zone it is UTC.
var instantLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly}

func instant(name, s string) (time.Time, error) {
	for _, layout := range instantLayouts {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1 {
			return t, nil
		}
	}
	return time.Time{}, entities.Invalid("%s %q is not an ISO 8601 time", name, s)
}

// origin is a run and what its first event says about the code that started it.
type origin struct {
	run entities.Run
	// coreVersion is that of the SDK; empty when it did not say.
	coreVersion string
	// encrypted says whether payloads are; nil when nobody said.
	encrypted *bool
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
	// Each may be of another shape than we look for; then it says nothing.
	var execution, features codec.Map
	_ = codec.Unmarshal(extra["executionContext"], &execution)
	_ = codec.Unmarshal(execution["workflowCoreVersion"], &o.coreVersion)
	_ = codec.Unmarshal(execution["features"], &features)
	_ = codec.Unmarshal(features["encryption"], &o.encrypted)
	return o, nil
}

// origins looks up where runs came from.
func (s *Server) origins(ctx context.Context, runs ...entities.Run) ([]origin, error) {
	at := make([]eventlog.Position, len(runs))
	for i, r := range runs {
		at[i] = eventlog.Position{RunID: r.ID, Seq: 1}
	}
	events, err := s.Log.EventsAt(ctx, at, eventlog.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	list := make([]origin, len(runs))
	for i, r := range runs {
		if list[i], err = newOrigin(r, eventsAt(events).at(r.ID, 1)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// origin looks up a run of the caller's project. It fails with [entities.ErrRunNotFound].
func (s *Server) origin(c echo.Context, id entities.RunID) (origin, error) {
	ctx := c.Request().Context()
	run, err := entities.RunByID(ctx, s.Reader, auth.Project(c), id)
	if err != nil {
		return origin{}, err
	}
	list, err := s.origins(ctx, run)
	if err != nil {
		return origin{}, err
	}
	return list[0], nil
}

// pathOrigin is the run of the path.
func (s *Server) pathOrigin(c echo.Context) (origin, error) {
	id, err := runParam(c)
	if err != nil {
		return origin{}, err
	}
	return s.origin(c, id)
}

// analyticsRun is endpoint 21, a run.
func (s *Server) analyticsRun(c echo.Context) error {
	o, err := s.pathOrigin(c)
	if err != nil {
		return err
	}
	return answer(c, newRunRow(o))
}
