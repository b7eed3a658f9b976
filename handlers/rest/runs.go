package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	// attributePrefix begins the query parameters that are the values of attributes: attribute.KEY=value.
	attributePrefix = "attribute."

	// How long a request waits for the end of a run unless it says, and at most.
	defaultWait = 30 * time.Second
	maxWait     = time.Minute
)

func (s *Server) listRuns(c echo.Context) error {
	f, err := runFilter(c)
	if err != nil {
		return err
	}
	return s.answerRuns(c, f)
}

// listChildren answers with the runs that a run started.
func (s *Server) listChildren(c echo.Context) error {
	parent, err := s.theRun(c)
	if err != nil {
		return err
	}
	return s.answerRuns(c, store.RunFilter{ParentID: parent.ID})
}

func (s *Server) answerRuns(c echo.Context, f store.RunFilter) error {
	p, err := page(c, newestFirst)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	runs, next, err := store.ListRuns(ctx, s.Reader, auth.Project(c), f, p)
	if err != nil {
		return err
	}
	shown, err := s.briefly(ctx, runs)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, list[run]{shown, next})
}

// runFilter reads the parameters of the list of runs.
func runFilter(c echo.Context) (store.RunFilter, error) {
	f := store.RunFilter{
		WorkflowName: c.QueryParam("workflow"), Status: entities.RunStatus(c.QueryParam("status")),
		UniqueKey: c.QueryParam("key"), ParentID: entities.RunID(c.QueryParam("parentId")),
	}
	for name, values := range c.QueryParams() {
		if key, ok := strings.CutPrefix(name, attributePrefix); ok {
			if f.Attributes == nil {
				f.Attributes = map[string]string{}
			}
			f.Attributes[key] = values[0]
		}
	}
	if err := entities.ValidateAttributes(f.Attributes, true); err != nil {
		return f, inParam("attribute", err)
	}
	if f.Status != "" && !f.Status.Known() {
		return f, badParam("status", "%q is not a status a run can have", f.Status)
	}
	after, err := timeParam(c, "createdAfter")
	if err != nil {
		return f, err
	}
	before, err := timeParam(c, "createdBefore")
	if err != nil {
		return f, err
	}
	f.Created = window(after, before)
	return f, nil
}

// window is from a time on until just before another one, as lists of runs have it: of whole milliseconds. A zero
// time leaves its side open.
func window(after, before time.Time) store.Window {
	if !after.IsZero() {
		after = after.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	}
	if !before.IsZero() {
		before = before.Add(-1).Truncate(time.Millisecond)
	}
	return store.Window{From: after, To: before}
}

// theRun is the run that the path names.
func (s *Server) theRun(c echo.Context) (entities.Run, error) {
	id, err := runParam(c)
	if err != nil {
		return entities.Run{}, err
	}
	return store.RunByID(c.Request().Context(), s.Reader, auth.Project(c), id)
}

func (s *Server) getRun(c echo.Context) error {
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	return s.answerRun(c, http.StatusOK, r)
}

// answerRun answers with a single run.
func (s *Server) answerRun(c echo.Context, status int, r entities.Run) error {
	shown, err := s.wholly(c.Request().Context(), r, payloadsFor(c))
	if err != nil {
		return err
	}
	return c.JSON(status, shown)
}

// awaitRun answers with a run once it has ended, or as it is when the time is over.
func (s *Server) awaitRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	timeout, err := durationParam(c, "timeout", defaultWait, maxWait)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	patience, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	r, err := s.Log.WaitForEnd(ctx, patience, auth.Project(c), id)
	if err != nil {
		return err
	}
	return s.answerRun(c, http.StatusOK, r)
}
