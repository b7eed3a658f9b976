package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
)

// callback returns where the result of an async step may be sent.
func (e *Engine) callback(ctx context.Context, d queue.Delivery, s stepWork) (*contract.Callback, error) {
	key, err := e.callKey.get(ctx)
	if err != nil {
		return nil, err
	}
	return &contract.Callback{
		URL: fmt.Sprintf("%s/v1/runs/%s/steps/%s/result", strings.TrimSuffix(e.hooksURL, hooksPath), d.RunID,
			url.PathEscape(string(s.ID))),
		Token: key.SignCall(e.cell, token.Callback(d.Project, d.RunID, s.ID), *s.spec.Deadline),
	}, nil
}

// StepResult is the result of a step that its function has accepted: an output, or an error.
type StepResult struct {
	Output []byte
	Error  *contract.Failure
}

// EndStep records the result of an async step, and ends the work that waits for it. The first result counts. It fails
// with [entities.ErrStepNotFound], with [entities.ErrInvalid] if the step is not async or the result refused by
// [strictjson.Check], with [flow.ErrPayloadTooLarge], and with [entities.ErrConflict] if it has a result already. One
// that comes after the end of the run is recorded, and starts nothing.
func (e *Engine) EndStep(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.StepID, result StepResult,
) error {
	err := strictjson.Check(result.Output)
	if err == nil && result.Error != nil {
		err = strictjson.Check(result.Error.Details)
	}
	if err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	found, err := e.log.Step(ctx, project, runID, id)
	if err != nil {
		return err
	}
	s := newStepWork(found)
	if !s.spec.Async {
		return entities.Invalid("step %s is not async: its function answers with its result", id)
	}
	r := s.request(entities.EventStepCompleted)
	if r.Payload = result.Output; result.Error != nil {
		r.Type, r.Payload, r.Data.ErrorCode = entities.EventStepFailed, result.Error.Text(), result.Error.Code
	}
	if err := e.CheckPayload(ctx, project, s.run.DeploymentID, r.Payload); err != nil {
		return err
	}
	_, err = e.log.AppendAll(ctx, project, runID, []eventlog.Request{r}, eventlog.AppendOptions{
		With: eventlog.UnderLock{Write: func(last *pgx.Batch) { e.queue.DropWaitingStep(last, project, runID, id) }},
	})
	if errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrRunEnded) {
		return e.recordLate(ctx, project, r, found.Run.ID, err)
	}
	if err == nil && len(s.spec.Limits) > 0 {
		e.queue.Freed(project, s.spec.Limits)
	}
	return err
}
