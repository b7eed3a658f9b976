package stepwell

import (
	"context"
	"errors"
	"log/slog"
)

// The causes with which contexts of steps end, besides [ErrShutdown]; see [context.Cause].
var (
	// ErrRunEnded means that the result of an inline step is not wanted any more: its run has ended, or the server has
	// given up the call.
	ErrRunEnded = errors.New("the run has ended")
	// ErrStepCancelled means that the workflow has cancelled an inline step, or that the server has closed the call of a
	// step: the step or its run was cancelled, or has ended otherwise.
	ErrStepCancelled = errors.New("the step was cancelled")
	// ErrAttemptTimeout means that the time of an attempt is over; see [AttemptTimeout].
	ErrAttemptTimeout = errors.New("the time of the attempt is over")
)

type stepKey struct{}

// stepContext is what a step's context has about its call.
type stepContext struct {
	StepInfo

	app *App
}

func withStep(ctx context.Context, s stepContext) context.Context {
	return context.WithValue(ctx, stepKey{}, s)
}

func stepOf(ctx context.Context) (stepContext, bool) {
	s, ok := ctx.Value(stepKey{}).(stepContext)
	return s, ok
}

// IdempotencyKey returns the key of the step that the context belongs to: the same for all its attempts, and for no
// other step. It is empty outside a step. Pass it on to services that support such keys, so that they act once.
func IdempotencyKey(ctx context.Context) string {
	if s, ok := stepOf(ctx); ok {
		return s.Run.ID + "/" + s.ID
	}
	return ""
}

// Info describes the attempt that the context belongs to. It is empty outside a step.
func Info(ctx context.Context) StepInfo {
	s, _ := stepOf(ctx)
	return s.StepInfo
}

// Log returns the app's logger, with the run and the step that the context belongs to. Outside a step, it is
// [slog.Default].
func Log(ctx context.Context) *slog.Logger {
	s, ok := stepOf(ctx)
	if !ok {
		return slog.Default()
	}
	return s.app.logger.With("run", s.Run.ID, "workflow", s.Run.Workflow, "step", s.ID, "attempt", s.Attempt)
}
