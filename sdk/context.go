package stepwell

import "context"

type stepKey struct{}

// stepContext is what a step's context has about its call.
type stepContext struct{ runID, stepID string }

func withStep(ctx context.Context, runID, stepID string) context.Context {
	return context.WithValue(ctx, stepKey{}, stepContext{runID, stepID})
}

// IdempotencyKey returns the key of the step that the context belongs to: the same for all its attempts, and for no
// other step. It is empty outside a step. Pass it on to services that support such keys, so that they act once.
func IdempotencyKey(ctx context.Context) string {
	if s, ok := ctx.Value(stepKey{}).(stepContext); ok {
		return s.runID + "/" + s.stepID
	}
	return ""
}
