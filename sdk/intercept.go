package stepwell

import "context"

// StepInfo describes an attempt of a step.
type StepInfo struct {
	Run RunInfo
	// ID is the ID of the step in the run, and Name its name.
	ID, Name string
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Inline is set if the step is executed where its workflow runs.
	Inline bool
}

// TurnInfo describes a call of a workflow.
type TurnInfo struct {
	Run RunInfo
	// Attempt is the number of the call for the same events, from 1.
	Attempt int
	// Events is the number of events in the call, and Warm is set if they continue those that the process already has.
	Events int
	Warm   bool
}

// InterceptSteps wraps each attempt of a step. The function must call next once, and return its error or another one; it
// can add to the context. The first of several is the outermost.
func InterceptSteps(fn func(ctx context.Context, s StepInfo, next func(context.Context) error) error) AppOption {
	return func(a *App) { a.serving.aroundSteps = append(a.serving.aroundSteps, fn) }
}

// InterceptTurns wraps each call of a workflow, as [InterceptSteps] does with steps. An error holds the run. What it adds
// to the context, the workflow does not see, but its inline steps do.
func InterceptTurns(fn func(ctx context.Context, t TurnInfo, next func(context.Context) error) error) AppOption {
	return func(a *App) { a.serving.aroundTurns = append(a.serving.aroundTurns, fn) }
}

// around calls fn inside all interceptors.
func around[I any](
	ctx context.Context, info I, all []func(context.Context, I, func(context.Context) error) error,
	fn func(context.Context) error,
) error {
	if len(all) == 0 {
		return fn(ctx)
	}
	return all[0](ctx, info, func(ctx context.Context) error { return around(ctx, info, all[1:], fn) })
}
