package engine

import "context"

// Inline executes the inline operations of an invocation one at a time, in an order of its choice. Tests use it, to
// make executions repeatable and to try all orders.
type Inline interface {
	// Next returns the index of the operation that ends next, of those in progress.
	Next(running []*Operation) int
	// Execute executes an operation. An error ends the invocation, as if the process had died.
	Execute(ctx context.Context, op *Operation) (Result, error)
}

type inlineKey struct{}

// WithInline returns a context whose invocations execute their inline operations by i.
func WithInline(ctx context.Context, i Inline) context.Context {
	return context.WithValue(ctx, inlineKey{}, i)
}

// executeNext executes one of the inline operations in progress and delivers its result.
func (e *Engine) executeNext(ctx context.Context) (more bool, err error) {
	op := e.running[e.inline.Next(e.running)]
	r, err := e.inline.Execute(ctx, op)
	if err != nil {
		e.running = nil
		return false, err
	}
	return true, e.record(finished{op, r})
}
