package wire

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Page sizes of analytics lists (§2.7). Clients of the next line never request more than the maximum.
const (
	analyticsRunPage = 20
	analyticsPage    = 100
	maxWidePage      = 100        // of lists across runs, and of hooks
	maxRunPage       = pg.MaxPage // of lists within a run
)

// analyticsRuns is endpoint 21 for runs, with filters.
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
	runs, next, err := store.ListRuns(ctx, s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	origins, err := s.origins(ctx, runs...)
	if err != nil {
		return err
	}
	return answerRows(c, origins, next, newRunRow)
}

func runFilter(c echo.Context) (f store.RunFilter, err error) {
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

// attributes parses the filter by attributes, a JSON object of strings.
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

// analyticsAttributes is endpoint 21 for the attribute keys of runs.
func (s *Server) analyticsAttributes(c echo.Context) error {
	p, err := pageUpTo(c, maxWidePage, analyticsPage, "asc")
	if err != nil {
		return err
	}
	var filter store.KeyFilter
	if filter.WorkflowName, err = query(c, "workflowName"); err != nil {
		return err
	}
	if filter.Created, err = window(c); err != nil {
		return err
	}
	keys, next, err := store.ListAttributeKeys(c.Request().Context(), s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	return answerRows(c, keys, next, newAttributeRow)
}

// pageUpTo is [page], but rejects a limit above the maximum. Other lists reduce such a limit (§2.4).
func pageUpTo(c echo.Context, most, limit int, order string) (pg.Page, error) {
	p, err := page(c, limit, order)
	if err != nil {
		return p, err
	}
	if n, err := strconv.Atoi(c.QueryParam("limit")); err == nil && n > most {
		return p, entities.Invalid("limit %d exceeds the maximum of %d", n, most)
	}
	return p, nil
}

// window parses startTime and endTime. Only both or neither may be given.
func window(c echo.Context) (w store.Window, err error) {
	start, end := c.QueryParam("startTime"), c.QueryParam("endTime")
	if start == "" && end == "" {
		return w, nil
	}
	if start == "" || end == "" {
		return w, entities.Invalid("give both startTime and endTime, or neither")
	}
	if w.From, err = instant("startTime", start); err != nil {
		return w, err
	}
	w.To, err = instant("endTime", end)
	return w, err
}

// instantLayouts are the accepted forms of ISO 8601. A time without zone is UTC.
var instantLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly}

func instant(name, s string) (time.Time, error) {
	for _, layout := range instantLayouts {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1 {
			return t, nil
		}
	}
	return time.Time{}, entities.Invalid("%s %q is not an ISO 8601 time", name, s)
}

// origin is a run with the information in its first event about the code that started it.
type origin struct {
	run entities.Run
	// coreVersion is the version of the SDK, or empty if unknown.
	coreVersion string
	// encrypted is whether payloads are encrypted, or nil if unknown.
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
	execution := optional[codec.Map](extra["executionContext"])
	o.coreVersion = optional[string](execution["workflowCoreVersion"])
	o.encrypted = optional[*bool](optional[codec.Map](execution["features"])["encryption"])
	return o, nil
}

// origins reads the first events of runs.
func (s *Server) origins(ctx context.Context, runs ...entities.Run) ([]origin, error) {
	at := make([]read.Position, len(runs))
	for i, r := range runs {
		at[i] = read.Position{RunID: r.ID, Seq: 1}
	}
	events, err := s.Log.EventsAt(ctx, at, read.WithoutPayloads)
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

// origin reads a run of the caller's project. It fails with [entities.ErrRunNotFound].
func (s *Server) origin(c echo.Context, id entities.RunID) (origin, error) {
	ctx := c.Request().Context()
	run, err := store.RunByID(ctx, s.Reader, auth.Project(c), id)
	if err != nil {
		return origin{}, err
	}
	list, err := s.origins(ctx, run)
	if err != nil {
		return origin{}, err
	}
	return list[0], nil
}

// pathOriginAnd reads the run in the path, and another parameter of the path.
func (s *Server) pathOriginAnd(c echo.Context, name string) (o origin, value string, err error) {
	if value, err = param(c, name); err != nil {
		return o, "", err
	}
	o, err = s.pathOrigin(c)
	return o, value, err
}

// pathOriginPage reads the run in the path, and which page of a list within it is requested.
func (s *Server) pathOriginPage(c echo.Context, order string) (o origin, p pg.Page, err error) {
	if p, err = pageUpTo(c, maxRunPage, analyticsPage, order); err != nil {
		return o, p, err
	}
	o, err = s.pathOrigin(c)
	return o, p, err
}

// answerRows sends a page of the rows of items.
func answerRows[T, R any](c echo.Context, items []T, next string, newRow func(T) R) error {
	rows := make([]R, len(items))
	for i, item := range items {
		rows[i] = newRow(item)
	}
	return answer(c, newListing(rows, next))
}

// pathOrigin reads the run in the path.
func (s *Server) pathOrigin(c echo.Context) (origin, error) {
	id, err := runParam(c)
	if err != nil {
		return origin{}, err
	}
	return s.origin(c, id)
}

// analyticsRun is endpoint 21 for one run.
func (s *Server) analyticsRun(c echo.Context) error {
	o, err := s.pathOrigin(c)
	if err != nil {
		return err
	}
	return answer(c, newRunRow(o))
}
