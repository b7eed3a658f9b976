package rest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// maxBulk limits the runs that one request cancels or reruns, and the messages that it retries or discards.
	maxBulk = 1000
	// bulkPage is how many of them are read at a time.
	bulkPage = 100
	// maxBulkIDs limits the IDs in the answer.
	maxBulkIDs = 100
	// maxBulkPages limits the pages that a request reads to find runs to rerun, or messages.
	maxBulkPages = 100
	// maxBulkEvents ends a request that starts forks once these have kept as many events: ten of the longest.
	maxBulkEvents = 10 * eventlog.MaxForkEvents
)

// cancelRun cancels a run, or asks it to cancel if there is a grace. Cancelling it again answers with the run
// unchanged.
func (s *Server) cancelRun(r *request) error {
	var body api.CancelRunBody
	id := r.runID()
	r.optionalBody(&body)
	cancel := cancellation(id, body.Reason)
	var err error
	cancel.Grace, err = durationField("grace", body.Grace, maxSpan)
	r.fail(err)
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

// bulkFilter selects runs. At least one condition is required.
type bulkFilter struct {
	Workflow      string             `json:"workflow"`
	Status        entities.RunStatus `json:"status"`
	Key           string             `json:"key"`
	ParentID      entities.RunID     `json:"parentId"`
	Attributes    map[string]string  `json:"attributes"`
	CreatedAfter  api.Instant        `json:"createdAfter"`
	CreatedBefore api.Instant        `json:"createdBefore"`
}

func (b bulkFilter) empty() bool {
	return b.Workflow == "" && b.Status == "" && b.Key == "" && b.ParentID == "" && len(b.Attributes) == 0 &&
		b.CreatedAfter.IsZero() && b.CreatedBefore.IsZero()
}

func (b bulkFilter) runs() (store.RunFilter, error) {
	f := store.RunFilter{
		WorkflowName: b.Workflow, Status: b.Status, UniqueKey: b.Key, ParentID: b.ParentID, Attributes: b.Attributes,
		Created: window(b.CreatedAfter.Time, b.CreatedBefore.Time),
	}
	if b.Status != "" && !b.Status.Known() {
		return f, badField("status", "%q is not a run status", b.Status)
	}
	return f, checkNameField("workflow", b.Workflow)
}

func validateBulkLimit(limit int) error {
	if limit < 1 || limit > maxBulk {
		return badField("limit", "%d is not a number from 1 to %d", limit, maxBulk)
	}
	return nil
}

// cancelRequest selects the runs to cancel.
type cancelRequest struct {
	bulkFilter
	Reason string `json:"reason"`
	DryRun bool   `json:"dryRun"`
	Limit  int    `json:"limit"`
}

func (b cancelRequest) filter() (store.RunFilter, error) {
	f, err := b.runs()
	f.Open = true
	switch {
	case err != nil:
		return f, err
	case b.empty():
		return f, entities.Invalid("no condition given: to cancel all runs, give createdBefore")
	case b.Status.Ended():
		return f, badField("status", "runs that are %s cannot be cancelled", b.Status)
	}
	return f, cmp.Or(checkNameField("reason", b.Reason), validateBulkLimit(b.Limit))
}

// cancelRuns cancels the matching runs, oldest first, each in its own transaction. A request that fails may have
// cancelled some of them; it can be repeated.
func (s *Server) cancelRuns(r *request) error {
	body := cancelRequest{Limit: maxBulk}
	r.body(&body)
	f, err := body.filter()
	r.fail(err)
	return answer(r, func() (api.CancelledRuns, error) { return s.cancelMatching(r, f, body) })
}

// cancelMatching cancels the runs that match the filter or, in a dry run, only counts them.
func (s *Server) cancelMatching(r *request, f store.RunFilter, body cancelRequest) (api.CancelledRuns, error) {
	result := api.CancelledRuns{RunIds: []string{}}
	for page := (pg.Page{}); result.Matched < int64(body.Limit); {
		page.Limit = min(bulkPage, body.Limit-int(result.Matched))
		runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, page)
		if err != nil {
			return result, err
		}
		for _, run := range runs {
			cancelled := false
			if !body.DryRun {
				_, cancelled, err = s.Log.Cancel(r.ctx(), r.project(), cancellation(run.ID, body.Reason))
				if err != nil && !errors.Is(err, entities.ErrRunNotFound) { // retention may have deleted it meanwhile
					return result, err
				}
			}
			result.Matched++
			if cancelled {
				result.Cancelled++
			}
			if len(result.RunIds) < maxBulkIDs {
				result.RunIds = append(result.RunIds, string(run.ID))
			}
		}
		if page.Cursor, result.More = next, next != ""; !result.More {
			break
		}
	}
	return result, nil
}

// rerunsRequest selects ended runs to start again.
type rerunsRequest struct {
	Filter struct {
		bulkFilter
		ErrorCode   string      `json:"errorCode"`
		EndedBefore api.Instant `json:"endedBefore"`
	} `json:"filter"`
	Deployment     string `json:"deployment"`
	IdempotencyKey string `json:"idempotencyKey"`
	From           string `json:"from"`
	DryRun         bool   `json:"dryRun"`
	Limit          int    `json:"limit"`
	Cursor         string `json:"cursor"`
}

// runs returns the filter of the runs: failed ones, unless it names another status.
func (b rerunsRequest) runs() (store.RunFilter, error) {
	f, err := b.Filter.runs()
	f.Status, f.ErrorCode = cmp.Or(f.Status, entities.RunFailed), b.Filter.ErrorCode
	f.Ended.To = b.Filter.EndedBefore.Time
	switch {
	case err != nil:
		return f, err
	case b.Filter.empty() && f.ErrorCode == "" && f.Ended.To.IsZero():
		return f, badField("filter", "no condition given: to rerun all failed runs, give status")
	case !f.Status.Ended():
		return f, badField("status", "runs that are %s have not ended: only ended runs are rerun", f.Status)
	case b.IdempotencyKey == "" && !b.DryRun:
		return f, badField("idempotencyKey", "it is missing: without one, a repeated request starts runs twice")
	}
	return f, cmp.Or(checkNameField("idempotencyKey", b.IdempotencyKey), checkIDField("deployment", b.Deployment),
		checkFrom(b.From, f.Status), validateBulkLimit(b.Limit))
}

// batch is what the idempotency keys of the copies begin with that requests with this idempotency key start. The ID of
// the original follows. It has the same length for all requests, so that no two batches share a key.
func (b rerunsRequest) batch() string {
	return "rerun:" + incoming.Digest([]byte(b.IdempotencyKey)) + ":"
}

// rerunRuns starts copies of the matching runs, oldest first, each in its own transaction. A request that fails may
// have started some of them. When it is repeated, these are left out.
func (s *Server) rerunRuns(r *request) error {
	body := rerunsRequest{Limit: maxBulk}
	r.body(&body)
	f, err := body.runs()
	r.fail(err)
	return answer(r, func() (api.CopiedRuns, error) { return s.rerunMatching(r, f, body) })
}

// rerunMatching starts copies of the runs that match the filter or, in a dry run, only says which it would be. It reads
// a limited number of pages, and keeps a limited number of events, so it may leave runs for the next request.
func (s *Server) rerunMatching(r *request, f store.RunFilter, body rerunsRequest) (api.CopiedRuns, error) {
	result := api.CopiedRuns{RunIds: []string{}, Refused: []api.RefusedRun{}, Cursor: body.Cursor}
	kept := int64(0)
	for range maxBulkPages {
		page := pg.Page{Limit: bulkPage, Cursor: result.Cursor}
		runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, page)
		if err != nil {
			return result, err
		}
		left, err := s.notYetRerun(r, runs, body)
		if err != nil {
			return result, err
		}
		for i, run := range left {
			events, err := s.rerunOne(r, run, body, &result)
			if err != nil {
				return result, err
			}
			if kept += events; result.Matched == int64(body.Limit) || kept >= maxBulkEvents {
				result.More = i+1 < len(left) || next != ""
				result.Cursor = ""
				if result.More {
					result.Cursor = store.RunCursor(run)
				}
				return result, nil
			}
		}
		if result.Cursor, result.More = next, next != ""; !result.More {
			break
		}
	}
	return result, nil
}

// notYetRerun returns the runs of a page without those that the batch has already copied, and without its copies, which
// match the filter too if they have failed in turn.
func (s *Server) notYetRerun(r *request, runs []entities.Run, body rerunsRequest) ([]entities.Run, error) {
	if body.IdempotencyKey == "" {
		return runs, nil
	}
	batch := body.batch()
	runs = slices.DeleteFunc(runs, func(run entities.Run) bool { return strings.HasPrefix(run.IdempotencyKey, batch) })
	keys := make([]string, len(runs))
	for i, run := range runs {
		keys[i] = batch + string(run.ID)
	}
	used, err := store.UsedIdempotencyKeys(r.ctx(), s.Reader, r.project(), keys)
	return slices.DeleteFunc(runs, func(run entities.Run) bool { return used[batch+string(run.ID)] }), err
}

// rerunOne starts a copy of a run or, in a dry run, finds out whether its log can be kept. It returns how many events
// the copy keeps. What keeps this run alone from being copied does not fail the request.
func (s *Server) rerunOne(
	r *request, original entities.Run, body rerunsRequest, result *api.CopiedRuns,
) (events int64, err error) {
	result.Matched++
	if len(result.RunIds) < maxBulkIDs {
		result.RunIds = append(result.RunIds, string(original.ID))
	}
	copied := api.RerunRunBody{
		Deployment: body.Deployment, IdempotencyKey: body.batch() + string(original.ID), From: body.From,
	}
	var started startedRun
	switch {
	case !body.DryRun:
		started, err = s.rerun(r, original, copied)
	case isFork(copied):
		started.event, _, err = s.copyOf(r, original, copied)
	}
	read.ReuseMemory(r.ctx())
	if refusesOne(err) {
		if len(result.Refused) < maxBulkIDs {
			result.Refused = append(result.Refused, api.RefusedRun{RunID: string(original.ID), Message: err.Error()})
		}
		return 0, nil
	}
	if started.created {
		result.Started++
	}
	if fork := started.event.Data.Fork; fork != nil && (started.created || body.DryRun) {
		result.OpenSteps += int64(fork.Steps)
		result.OpenChildren += int64(fork.Children)
	}
	return int64(len(started.event.Kept)), err
}

// refusesOne reports whether an error is about one run of many: its key is taken, its deployment is gone, retention has
// deleted it, or it was started with what is not accepted any more. A batch goes on after it; if it stopped there, it
// could never get past that run.
func refusesOne(err error) bool {
	return slices.ContainsFunc([]error{
		entities.ErrKeyTaken, entities.ErrKeyReused, message.ErrDeploymentNotFound, entities.ErrRunNotFound,
		entities.ErrInvalid, entities.ErrConflict, entities.ErrForkRefused, entities.ErrForkTooLarge,
		codec.ErrTooLarge, codec.ErrMalformed,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}
