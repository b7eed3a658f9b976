package telemetry

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

var _ eventlog.Observer = (*Telemetry)(nil)

// Append implements [eventlog.Observer].
func (t *Telemetry) Append(
	ctx context.Context, runID entities.RunID, requests []eventlog.Request,
) (context.Context, func(eventlog.Appended)) {
	begin, kind := t.now(), typeOf(requests)
	end := func(string, eventlog.Appended) {}
	if t.traces != nil {
		ctx, end = t.traces.append(ctx, runID, kind)
	}
	return ctx, func(a eventlog.Appended) {
		outcome := becameOf(a)
		t.metrics.appends.WithLabelValues(kind, outcome).Observe(t.now().Sub(begin).Seconds())
		for _, e := range a.Events {
			t.metrics.events.WithLabelValues(string(e.Type)).Inc()
			if status, ends := endings[e.Type]; ends {
				t.metrics.ended.WithLabelValues(string(status)).Inc()
			}
		}
		end(outcome, a)
	}
}

// append begins the span of an append, and returns what ends it.
func (t *Traces) append(
	ctx context.Context, id entities.RunID, kind string,
) (context.Context, func(string, eventlog.Appended)) {
	ctx, span := t.start(ctx, id, "append "+kind)
	return ctx, func(outcome string, a eventlog.Appended) {
		span.SetAttributes(outcomeKey.String(outcome), eventsKey.Int(len(a.Events)))
		if outcome == failedToAppend {
			span.SetStatus(codes.Error, "") // the reason is in the span of the statement that failed
		}
		span.End()
		for _, e := range a.Events {
			if _, ends := endings[e.Type]; ends {
				t.whole(ctx, *a.Run)
			}
		}
	}
}

// whole sends the span of a run that has just ended: the root of its trace, from its creation to its end.
func (t *Traces) whole(ctx context.Context, run entities.Run) {
	_, span := t.tracer.Start(context.WithValue(ctx, wholeRun{}, run.ID), "run",
		trace.WithNewRoot(), trace.WithTimestamp(run.CreatedAt), trace.WithAttributes(
			runKey.String(string(run.ID)), workflowKey.String(run.WorkflowName),
			deploymentKey.String(run.DeploymentID), outcomeKey.String(string(run.Status)),
		))
	if run.Status == entities.RunFailed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(*run.CompletedAt))
}

// failedToAppend is the outcome of an append that the server or the database is to blame for.
const failedToAppend = "error"

// becameOf is the label of what became of an append.
func becameOf(a eventlog.Appended) string {
	switch {
	case a.Err != nil && isRefusal(a.Err):
		return "refused"
	case a.Err != nil:
		return failedToAppend
	case len(a.Events) > 0:
		return "written"
	case a.Refused != nil:
		return "refused"
	default:
		return "repeated" // it was so already, or nothing was asked for
	}
}

// refusals are the errors that say that a request is to blame, or its time.
var refusals = []error{
	entities.ErrInvalid, entities.ErrConflict, entities.ErrRunEnded, entities.ErrStale, entities.ErrNotYet,
	entities.ErrRunNotFound, entities.ErrStepNotFound, entities.ErrHookNotFound, entities.ErrWaitNotFound,
	entities.ErrKeyTaken, entities.ErrKeyReused, engine.ErrNothingLeft,
}

func isRefusal(err error) bool {
	if refused := (*eventlog.RefusedError)(nil); errors.As(err, &refused) {
		return true
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	// A key or a name was taken meanwhile: a class of errors that the database has for it, whatever the driver.
	const integrityViolation = "23"
	state := interface{ SQLState() string }(nil)
	return errors.As(err, &state) && strings.HasPrefix(state.SQLState(), integrityViolation)
}
