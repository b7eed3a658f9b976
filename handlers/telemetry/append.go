package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
)

var _ eventlog.Observer = (*Telemetry)(nil)

// Append implements [eventlog.Observer].
func (t *Telemetry) Append(
	ctx context.Context, runID entities.RunID, requests []eventlog.Request,
) (context.Context, func(eventlog.Appended)) {
	begin, eventType := t.now(), appendType(requests)
	end := func(string, eventlog.Appended) {}
	if t.traces != nil {
		ctx, end = t.traces.append(ctx, runID, eventType)
	}
	return ctx, func(a eventlog.Appended) {
		outcome := appendOutcome(a)
		t.metrics.appends.WithLabelValues(eventType, outcome).Observe(t.now().Sub(begin).Seconds())
		for _, e := range a.Events {
			t.metrics.events.WithLabelValues(string(e.Type)).Inc()
			if status, ends := endStatus[e.Type]; ends {
				t.metrics.ended.WithLabelValues(string(status)).Inc()
			}
		}
		end(outcome, a)
	}
}

// append starts the span of an append and returns the function that ends it.
func (t *Traces) append(
	ctx context.Context, id entities.RunID, eventType string,
) (context.Context, func(outcome string, a eventlog.Appended)) {
	ctx, span := t.start(ctx, id, "append "+eventType)
	return ctx, func(outcome string, a eventlog.Appended) {
		span.SetAttributes(outcomeKey.String(outcome), eventsKey.Int(len(a.Events)))
		if outcome == outcomeError {
			span.SetStatus(codes.Error, "") // the failed statement's span has the reason
		}
		span.End()
		for _, e := range a.Events {
			if _, ends := endStatus[e.Type]; ends {
				t.recordRun(ctx, *a.Run)
			}
		}
	}
}

// recordRun records the span of a run that has just ended: the root of its trace, from the run's creation to its end.
func (t *Traces) recordRun(ctx context.Context, run entities.Run) {
	_, span := t.tracer.Start(context.WithValue(ctx, rootOfRun{}, run.ID), "run",
		trace.WithNewRoot(), trace.WithTimestamp(run.CreatedAt), trace.WithAttributes(
			runKey.String(string(run.ID)), workflowKey.String(run.WorkflowName),
			deploymentKey.String(run.DeploymentID), outcomeKey.String(string(run.Status)),
		))
	if run.Status == entities.RunFailed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(*run.CompletedAt))
}

// outcomeError is the outcome of an append that failed because of the server or the database.
const outcomeError = "error"

// appendOutcome returns the outcome label of an append.
func appendOutcome(a eventlog.Appended) string {
	switch {
	case a.Err != nil && isRefusal(a.Err):
		return "refused"
	case a.Err != nil:
		return outcomeError
	case len(a.Events) > 0:
		return "written"
	case a.Refused != nil:
		return "refused"
	default:
		return "repeated" // the log already had the events, or none were requested
	}
}

// refusals are the errors caused by the request or by the run's state, not by the server or the database.
var refusals = []error{
	entities.ErrInvalid, entities.ErrConflict, entities.ErrRunEnded, message.ErrStale, entities.ErrNotYet,
	entities.ErrRunNotFound, entities.ErrStepNotFound, entities.ErrHookNotFound, entities.ErrWaitNotFound,
	entities.ErrKeyTaken, entities.ErrKeyReused, engine.ErrNothingLeft,
}

func isRefusal(err error) bool {
	if _, refused := errors.AsType[*eventlog.RefusedError](err); refused {
		return true
	}
	if slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return true
	}
	const integrityViolation = "23" // the SQLSTATE class: a concurrent request took the key or the name
	var sqlError interface{ SQLState() string }
	return errors.As(err, &sqlError) && strings.HasPrefix(sqlError.SQLState(), integrityViolation)
}
