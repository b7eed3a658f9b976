package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	// maxCancelled is how many runs one request may cancel, and cancelPage how many are looked up at a time.
	maxCancelled = 1000
	cancelPage   = 100
	// maxCancelIDs is how many of them are named in the answer.
	maxCancelIDs = 100
)

// cancelRun ends a run from outside. One that was cancelled before is answered as it is.
func (s *Server) cancelRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := readOptionalBody(c, &body); err != nil {
		return err
	}
	r, _, err := s.Log.Cancel(c.Request().Context(), auth.Project(c), cancellation(id, body.Reason))
	if err != nil {
		return err
	}
	if r.Status != entities.RunCancelled {
		return ended(r, entities.EventRunCancelled)
	}
	return s.answerRun(c, http.StatusOK, r)
}

func cancellation(id entities.RunID, reason string) eventlog.Request {
	return eventlog.Request{RunID: id, Data: entities.EventData{Reason: reason}}
}

// ended is the refusal of an event by a run that has ended.
func ended(r entities.Run, event entities.EventType) error {
	return &entities.TransitionError{
		Kind: entities.KindRun, ID: string(r.ID), Status: string(r.Status), Event: event, Refusal: entities.Ended,
	}
}

// bulk is a request to cancel many runs.
type bulk struct {
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

func (b bulk) filter() (store.RunFilter, error) {
	after, before := time.Time(b.CreatedAfter), time.Time(b.CreatedBefore)
	f := store.RunFilter{
		WorkflowName: b.Workflow, Status: b.Status, Open: true, UniqueKey: b.Key, ParentID: b.ParentID,
		Attributes: b.Attributes, Created: window(after, before),
	}
	if b.Workflow == "" && b.Status == "" && b.Key == "" && b.ParentID == "" && len(b.Attributes) == 0 &&
		after.IsZero() && before.IsZero() {
		return f, entities.Invalid("nothing says which runs: to cancel all, give createdBefore")
	}
	if b.Status != "" && !b.Status.Known() {
		return f, badField("status", "%q is not a status a run can have", b.Status)
	}
	if b.Status.Ended() {
		return f, badField("status", "runs that are %s cannot be cancelled", b.Status)
	}
	return f, nil
}

// tally is what became of a request to cancel many runs.
type tally struct {
	Matched   int              `json:"matched"`
	Cancelled int              `json:"cancelled"`
	RunIDs    []entities.RunID `json:"runIds"`
	More      bool             `json:"more"`
}

// cancelRuns cancels those runs that match, the oldest first, each by itself. A request that breaks off has cancelled
// some of them, and may be repeated.
func (s *Server) cancelRuns(c echo.Context) error {
	body := bulk{Limit: maxCancelled}
	if err := readBody(c, &body); err != nil {
		return err
	}
	f, err := body.filter()
	if err != nil {
		return err
	}
	if body.Limit < 1 || body.Limit > maxCancelled {
		return badField("limit", "%d is not a number from 1 to %d", body.Limit, maxCancelled)
	}
	if body.Reason != "" {
		if err := entities.ValidateName("reason", body.Reason); err != nil {
			return inField("reason", err)
		}
	}
	do := s.cancelEach(auth.Project(c), body.Reason)
	if body.DryRun {
		do = func(context.Context, entities.RunID) (bool, error) { return false, nil }
	}
	t, err := s.eachRun(c, f, body.Limit, do)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, t)
}

func (s *Server) cancelEach(
	project entities.Project, reason string,
) func(context.Context, entities.RunID) (bool, error) {
	return func(ctx context.Context, id entities.RunID) (bool, error) {
		_, did, err := s.Log.Cancel(ctx, project, cancellation(id, reason))
		return did, err
	}
}

// eachRun does something to the runs that match, and counts for how many it reports true.
func (s *Server) eachRun(
	c echo.Context, f store.RunFilter, limit int, do func(context.Context, entities.RunID) (bool, error),
) (tally, error) {
	ctx, t := c.Request().Context(), tally{RunIDs: []entities.RunID{}}
	for p := (pg.Page{}); t.Matched < limit; {
		p.Limit = min(cancelPage, limit-t.Matched)
		runs, next, err := store.ListRuns(ctx, s.Reader, auth.Project(c), f, p)
		if err != nil {
			return t, err
		}
		for _, r := range runs {
			did, err := do(ctx, r.ID)
			if err != nil {
				return t, err
			}
			t.count(r.ID, did)
		}
		if p.Cursor, t.More = next, next != ""; !t.More {
			break
		}
	}
	return t, nil
}

func (t *tally) count(id entities.RunID, did bool) {
	t.Matched++
	if did {
		t.Cancelled++
	}
	if len(t.RunIDs) < maxCancelIDs {
		t.RunIDs = append(t.RunIDs, id)
	}
}
