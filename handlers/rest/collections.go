package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/why"
)

func debounceRule(b api.Debounce) (rule collection.Rule, err error) {
	quiet, err := durationField("debounce.quiet", b.Quiet, maxSpan)
	if err != nil {
		return rule, err
	}
	most, err := durationField("debounce.max", b.Max, maxSpan)
	if err != nil {
		return rule, err
	}
	rule, err = collection.NewDebounce(b.Key, quiet, most, collection.Keep(b.Keep))
	return rule, inField("debounce", err)
}

func batchRule(b api.Batch) (rule collection.Rule, err error) {
	wait, err := durationField("batch.wait", b.Wait, maxSpan)
	if err != nil {
		return rule, err
	}
	rule, err = collection.NewBatch(b.Key, int(b.Size), wait, b.Bytes)
	return rule, inField("batch", err)
}

// isCollected reports whether the start is debounced or part of a batch.
func (b startRequest) isCollected() bool { return b.Debounce != nil || b.Batch != nil }

// rule returns how the start is collected. It refuses what says when, or whether, the run starts in another way, and
// what would have to be done for each of several starts.
func (b startRequest) rule() (collection.Rule, error) {
	for field, given := range map[string]bool{
		"delay": b.Delay != "", "startAt": !b.StartAt.IsZero(),
	} {
		if given {
			return collection.Rule{}, badField(field, "debounce or batch says when the run starts: leave %s out", field)
		}
	}
	switch {
	case b.OnConflict != "":
		return collection.Rule{}, badField("onConflict",
			"a run that is debounced or a batch waits until its key is free: leave onConflict out")
	case b.Parent != "":
		return collection.Rule{}, badField("parent", "a run of several starts has no parent: leave parent out")
	case len(b.Inbox) > 0 || len(b.Send) > 0:
		return collection.Rule{}, badField("inbox",
			"a run that is debounced or a batch starts without inboxes: leave inbox and send out")
	default:
		return ruleOf(b.Debounce, b.Batch)
	}
}

// ruleOf returns how starts are collected, of which one is not nil.
func ruleOf(debounce *api.Debounce, batch *api.Batch) (collection.Rule, error) {
	switch {
	case debounce != nil && batch != nil:
		return collection.Rule{}, badField("batch", "there is a debounce as well: give one of them")
	case debounce != nil:
		return debounceRule(*debounce)
	default:
		return batchRule(*batch)
	}
}

// ruleBodies returns how starts are collected as answers say it.
func ruleBodies(r collection.Rule) (*api.Debounce, *api.Batch) {
	if r.Kind == collection.Debounce {
		return &api.Debounce{
			Key: r.Key, Quiet: duration(r.Quiet), Max: duration(r.MaxWait), Keep: string(r.Keep),
		}, nil
	}
	return nil, &api.Batch{Key: r.Key, Size: int64(r.Size), Wait: duration(r.MaxWait), Bytes: r.MaxBytes}
}

// collectStart collects a start. The answer is the collection, or the run if that has started.
func (s *Server) collectStart(r *request, body startRequest) error {
	rule, err := body.rule()
	r.fail(err)
	now := s.Log.Now()
	event, err := body.event(now)
	r.fail(err)
	r.fail(inField("workflow", entities.ValidateWorkflowName("workflow", body.Workflow)))
	start, err := newStart(body, event, now)
	if r.fail(err); r.err != nil {
		return r.err
	}
	done, err := s.Collector.Add(r.ctx(), r.project(), rule, start)
	switch {
	case err != nil:
		return err
	case done.Collection != nil:
		return r.answerCollecting(*done.Collection)
	case done.Created:
		return s.answerNewRun(r, done.Run)
	default:
		return s.answerRun(r, done.Run)
	}
}

// newStart returns the start that a request asks for. The idempotency key is that of the start, and not of the run.
func newStart(b startRequest, event eventlog.Request, now time.Time) (collection.Start, error) {
	start := collection.Start{
		Workflow: b.Workflow, Deployment: b.Deployment, Data: event.Data, Input: b.Input,
		IdempotencyKey: b.IdempotencyKey, Digest: event.Data.RequestDigest,
	}
	if start.Deployment == latest {
		start.Deployment = ""
	}
	if deadline := event.Data.Deadline; deadline != nil {
		start.Timeout = deadline.Sub(now)
	}
	start.Data.IdempotencyKey, start.Data.RequestDigest, start.Data.Deadline = "", "", nil
	return start, checkIDField("deployment", start.Deployment)
}

// answerNewRun answers with a run that the request has started.
func (s *Server) answerNewRun(r *request, run entities.Run) error {
	return answer(r, func() (api.Run, error) {
		r.setCreatedAt(runPath(run.ID))
		return s.runDetail(r, run, r.payloads())
	})
}

// runPath returns the path of a run.
func runPath(id entities.RunID) string { return "/v1/runs/" + string(id) }

// answerCollecting answers with a run that will be.
func (r *request) answerCollecting(c collection.Collection) error {
	r.Response().Header().Set(echo.HeaderLocation, runPath(c.RunID))
	return r.JSON(http.StatusAccepted, newCollectionJSON(c))
}

// statusCollecting stands in for the status of a run that has not started.
const statusCollecting = "collecting"

// newCollectionJSON encodes a collection, which stands in for its run. It never has the inputs.
func newCollectionJSON(c collection.Collection) api.Collection {
	v := api.Collection{
		ID: string(c.RunID), Status: statusCollecting, Workflow: c.Workflow, Deployment: c.Deployment,
		Attributes: c.Data.Attributes, Key: c.Data.UniqueKey, Timeout: duration(c.Timeout), Count: c.Count, Bytes: c.Bytes,
		FirstAt: timestamp(c.FirstAt), LastAt: timestamp(c.LastAt), DueAt: timestamp(c.DueAt),
	}
	v.Debounce, v.Batch = ruleBodies(c.Rule)
	return v
}

func (s *Server) listCollections(r *request) error {
	page := r.page(oldestFirst)
	return answerPage(r, newCollectionJSON, func() ([]collection.Collection, string, error) {
		return collection.List(r.ctx(), s.Reader, r.project(), page)
	})
}

// getCollection answers with a collection, and why its run has not started.
func (s *Server) getCollection(r *request) error {
	id := r.runID()
	return answer(r, func() (v api.Collection, err error) {
		f, err := why.ReadCollection(r.ctx(), s.Reader, r.project(), id)
		if err != nil {
			return v, err
		}
		v = newCollectionJSON(f.Collection)
		v.Why = encodeAll(why.ExplainCollection(f, s.Log.Now()), newStartReasonJSON)
		return v, nil
	})
}

// flushCollection starts the run of a collection now.
func (s *Server) flushCollection(r *request) error {
	id := r.runID()
	if r.err != nil {
		return r.err
	}
	run, err := s.Collector.Flush(r.ctx(), r.project(), id)
	if err != nil {
		return err
	}
	return s.answerNewRun(r, run)
}

func (s *Server) dropCollection(r *request) error {
	id := r.runID()
	return answerNothing(r, func() error { return s.Collector.Drop(r.ctx(), r.project(), id) })
}

// orPending returns a *[collection.PendingError] in place of the error that the run in the path does not exist, if the
// run will be.
func (r *request) orPending(err error) error {
	if !errors.Is(err, entities.ErrRunNotFound) || r.Param("id") == "" {
		return err
	}
	c, missing := collection.ByID(r.ctx(), r.reader, r.project(), r.runID())
	switch {
	case missing == nil:
		return &collection.PendingError{Collection: c}
	case errors.Is(missing, collection.ErrNotFound):
		return err
	default:
		return missing
	}
}

// findRun reads a run, and fails with a *[collection.PendingError] if it will be.
func (r *request) findRun(id entities.RunID) (entities.Run, error) {
	run, err := store.RunByID(r.ctx(), r.reader, r.project(), id)
	if errors.Is(err, entities.ErrRunNotFound) {
		err = r.orPending(err)
	}
	if errors.Is(err, entities.ErrRunNotFound) { // unless it has started between the two reads
		return store.RunByID(r.ctx(), r.reader, r.project(), id)
	}
	return run, err
}

// awaitEnd waits for the end of a run, and before that for its start, until the deadline context ends. If the run has
// not started by then, it fails with a *[collection.PendingError].
func (s *Server) awaitEnd(r *request, deadline context.Context, id entities.RunID) (entities.Run, error) {
	run, err := s.Log.WaitForEnd(r.ctx(), deadline, r.project(), id)
	if !errors.Is(err, entities.ErrRunNotFound) {
		return run, err
	}
	var pending *collection.PendingError
	err = s.Log.WaitForStart(r.ctx(), deadline, r.project(), id, func(ctx context.Context) (bool, error) {
		_, err := r.findRun(id)
		found, yes := errors.AsType[*collection.PendingError](err)
		if pending = found; yes {
			err = nil
		}
		return yes, err
	})
	switch {
	case err != nil:
		return run, err
	case pending != nil:
		return run, pending
	default:
		return s.Log.WaitForEnd(r.ctx(), deadline, r.project(), id)
	}
}

// answerPending answers with a run that will be, if that is what the error says.
func (r *request) answerPending(err error) error {
	if pending, ok := errors.AsType[*collection.PendingError](err); ok {
		return r.answerCollecting(pending.Collection)
	}
	return err
}
