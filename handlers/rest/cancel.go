package rest

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

const (
	// maxCancelled limits the runs that one request cancels.
	maxCancelled = 1000
	// cancelPage is how many of them are read at a time.
	cancelPage = 100
	// maxCancelIDs limits the IDs in the answer.
	maxCancelIDs = 100
)

// cancelRun cancels a run, or asks it to cancel if there is a grace. Cancelling it again answers with the run
// unchanged.
func (s *Server) cancelRun(c echo.Context) error {
	var body struct {
		Reason string `json:"reason"`
		Grace  string `json:"grace"`
	}
	r := s.request(c)
	id := r.runID()
	r.optionalBody(&body)
	cancel := cancellation(id, body.Reason)
	if body.Grace != "" {
		var err error
		if cancel.Grace, err = parseDuration(body.Grace, maxSpan); err != nil {
			r.fail(badField("grace", "%v", err))
		}
	}
	if r.err != nil {
		return r.err
	}
	run, _, err := s.Log.Cancel(r.ctx(), r.project(), cancel)
	if err != nil {
		return err
	}
	if run.Status.Ended() && run.Status != entities.RunCancelled {
		return runEnded(run, entities.EventRunCancelled)
	}
	return s.answerRun(r, run)
}

func cancellation(id entities.RunID, reason string) eventlog.Request {
	return eventlog.Request{RunID: id, Data: entities.EventData{Reason: reason}}
}

// runEnded is the error of an event that came after its run had ended.
func runEnded(r entities.Run, event entities.EventType) error {
	return &entities.TransitionError{
		Kind: entities.KindRun, ID: string(r.ID), Status: string(r.Status), Event: event, Refusal: entities.Ended,
	}
}

// cancelRequest selects the runs to cancel.
type cancelRequest struct {
	Workflow      string             `json:"workflow"`
	Status        entities.RunStatus `json:"status"`
	Key           string             `json:"key"`
	ParentID      entities.RunID     `json:"parentId"`
	Attributes    map[string]string  `json:"attributes"`
	CreatedAfter  instant            `json:"createdAfter"`
	CreatedBefore instant            `json:"createdBefore"`
	Reason        string             `json:"reason"`
	DryRun        bool               `json:"dryRun"`
	Limit         int                `json:"limit"`
}

func (b cancelRequest) filter() (store.RunFilter, error) {
	after, before := time.Time(b.CreatedAfter), time.Time(b.CreatedBefore)
	f := store.RunFilter{
		WorkflowName: b.Workflow, Status: b.Status, Open: true, UniqueKey: b.Key, ParentID: b.ParentID,
		Attributes: b.Attributes, Created: window(after, before),
	}
	switch {
	case b.Workflow == "" && b.Status == "" && b.Key == "" && b.ParentID == "" && len(b.Attributes) == 0 &&
		after.IsZero() && before.IsZero():
		return f, entities.Invalid("no condition given: to cancel all runs, give createdBefore")
	case b.Status != "" && !b.Status.Known():
		return f, badField("status", "%q is not a run status", b.Status)
	case b.Status.Ended():
		return f, badField("status", "runs that are %s cannot be cancelled", b.Status)
	case b.Limit < 1 || b.Limit > maxCancelled:
		return f, badField("limit", "%d is not a number from 1 to %d", b.Limit, maxCancelled)
	case b.Reason != "":
		return f, inField("reason", entities.ValidateName("reason", b.Reason))
	}
	return f, nil
}

// cancelResult is the answer to a request to cancel many runs.
type cancelResult struct {
	Matched   int              `json:"matched"`
	Cancelled int              `json:"cancelled"`
	RunIDs    []entities.RunID `json:"runIds"`
	More      bool             `json:"more"`
}

// cancelRuns cancels the matching runs, oldest first, each in its own transaction. A request that fails may have
// cancelled some of them; it can be repeated.
func (s *Server) cancelRuns(c echo.Context) error {
	body := cancelRequest{Limit: maxCancelled}
	r := s.request(c)
	r.body(&body)
	f, err := body.filter()
	r.fail(err)
	if r.err != nil {
		return r.err
	}
	result, err := s.cancelMatching(r, f, body)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, result)
}

// cancelMatching cancels the runs that match the filter or, in a dry run, only counts them.
func (s *Server) cancelMatching(r *request, f store.RunFilter, body cancelRequest) (cancelResult, error) {
	result := cancelResult{RunIDs: []entities.RunID{}}
	for page := (pg.Page{}); result.Matched < body.Limit; {
		page.Limit = min(cancelPage, body.Limit-result.Matched)
		runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, page)
		if err != nil {
			return result, err
		}
		for _, run := range runs {
			cancelled := false
			if !body.DryRun {
				if _, cancelled, err = s.Log.Cancel(r.ctx(), r.project(), cancellation(run.ID, body.Reason)); err != nil {
					return result, err
				}
			}
			result.add(run.ID, cancelled)
		}
		if page.Cursor, result.More = next, next != ""; !result.More {
			break
		}
	}
	return result, nil
}

func (t *cancelResult) add(id entities.RunID, cancelled bool) {
	t.Matched++
	if cancelled {
		t.Cancelled++
	}
	if len(t.RunIDs) < maxCancelIDs {
		t.RunIDs = append(t.RunIDs, id)
	}
}
