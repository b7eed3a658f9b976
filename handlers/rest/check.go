package rest

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// maxChecked limits the runs that one request checks.
	maxChecked = 100
	// checkTime is how long a request goes on to further runs.
	checkTime = time.Minute
	// maxCheckMessage limits what is shown of an error, in bytes.
	maxCheckMessage = 4 << 10
	// checkSlots is how many logs a process has replayed at once.
	checkSlots = 8
	// checkFactor is the factor of [share.Pool] by which projects share the slots for checks: one that is alone gets half.
	checkFactor = 1
)

// checks replays logs with the code of functions, few at once: each call has a whole log.
type checks struct {
	*engine.Checker

	slots *share.Pool
}

// checkDeployment replays the open runs of a deployment with the code at a URL, oldest first.
func (s *Server) checkDeployment(r *request) error {
	var body api.CheckDeploymentBody
	id := r.deploymentID()
	r.optionalBody(&body)
	if body.Limit == 0 {
		body.Limit = maxChecked
	}
	if body.Limit < 1 || body.Limit > maxChecked {
		r.fail(badField("limit", "%d is not a number from 1 to %d", body.Limit, maxChecked))
	}
	return answer(r, func() (api.CheckedRuns, error) {
		address, err := s.checkAddress(r, id, body.URL)
		if err != nil {
			return api.CheckedRuns{}, err
		}
		return s.checkRuns(r, id, address, body)
	})
}

// checkAddress returns where the function is whose code is to replay the runs of a deployment: at the URL, or where the
// deployment is registered if that is empty.
func (s *Server) checkAddress(r *request, id, given string) (string, error) {
	d, err := s.Queue.Deployment(r.ctx(), r.project(), id)
	if err != nil {
		return "", err
	}
	if given == "" {
		if !strings.HasPrefix(d.URL, "http") {
			return "", &engine.CheckRefusedError{Reason: "deployment " + id + " has no URL at which its code can be asked: " +
				"give one, or replay exported runs in its tests"}
		}
		return d.URL, nil
	}
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", badField("url", "%q is not an absolute http or https URL", given)
	}
	return given, s.checkURL(given)
}

// checkRuns checks a page of the runs, as many as it comes to in its time: one at least.
func (s *Server) checkRuns(r *request, id, address string, body api.CheckDeploymentBody) (api.CheckedRuns, error) {
	result := api.CheckedRuns{Runs: []api.CheckedRun{}, Cursor: body.Cursor}
	runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(),
		store.RunFilter{DeploymentID: id, Open: true},
		pg.Page{Limit: int(body.Limit), Cursor: body.Cursor})
	if err == nil && len(runs) > 0 {
		err = s.checks.Offers(r.ctx(), r.project(), address)
	}
	if err != nil {
		return result, err
	}
	timed, cancel := context.WithTimeout(r.ctx(), checkTime)
	defer cancel()
	for i, run := range runs {
		if i > 0 && timed.Err() != nil {
			result.Cursor, result.More = store.RunCursor(runs[i-1]), true
			return result, nil
		}
		found, err := s.checkRun(r, run, address)
		if errors.Is(err, entities.ErrRunNotFound) {
			continue // retention has deleted it meanwhile
		}
		if err != nil {
			return result, err
		}
		count(&result, run, found)
	}
	result.Cursor, result.More = next, next != ""
	return result, nil
}

// checkRun checks one run.
func (s *Server) checkRun(r *request, run entities.Run, address string) (engine.Checked, error) {
	if run.Driver == entities.DriverClient {
		return engine.Checked{Verdict: engine.Unchecked, Message: "it is of the Workflow SDK, which knows no checks"}, nil
	}
	if err := s.checks.slots.Take(r.ctx(), string(r.project()), 1, checkFactor); err != nil {
		return engine.Checked{}, err
	}
	defer s.checks.slots.Release(string(r.project()), 1)
	defer read.ReuseMemory(r.ctx())
	log, err := s.firstEvents(r, run.ID, run.LastSeq)
	if tooLarge, ok := errors.AsType[*entities.ForkTooLargeError](err); ok {
		return engine.Checked{Verdict: engine.Unchecked, Message: tooLarge.OfLog()}, nil
	}
	if err != nil {
		return engine.Checked{}, err
	}
	return s.checks.Check(r.ctx(), run, log, address), r.ctx().Err()
}

// count adds the outcome for a run. Those that replay are only counted.
func count(result *api.CheckedRuns, run entities.Run, found engine.Checked) {
	result.Checked++
	switch found.Verdict {
	case engine.Replays:
		result.Replayed++
		return
	case engine.Diverges:
		result.Diverged++
	case engine.Blocks:
		result.Blocked++
	case engine.Unchecked:
		result.Unchecked++
	}
	message := found.Message
	if len(message) > maxCheckMessage {
		message = strings.ToValidUTF8(message[:maxCheckMessage], "") + " …"
	}
	result.Runs = append(result.Runs, api.CheckedRun{
		RunID: string(run.ID), Workflow: run.WorkflowName, Verdict: string(found.Verdict), Code: found.Code,
		Message: message,
	})
}
