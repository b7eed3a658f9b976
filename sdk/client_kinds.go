package stepwell

import (
	"context"
	"fmt"
)

// Answer answers a question that is asked under the token. If nobody waits for an answer, the error is an [*APIError]
// with the code hook_not_found or run_ended.
func (k *ApprovalKind) Answer(ctx context.Context, c *Client, token string, a Answer, options ...SendOption) error {
	return c.resume(ctx, token, a, options)
}

// Send sends a signal to all runs that wait for it. It returns before they receive it.
func (k *SignalKind[T]) Send(ctx context.Context, c *Client, data T, options ...SendOption) error {
	return c.sendSignal(ctx, k.name, data, options)
}

// Send sends a message to the run's inbox. A run without this inbox is an [*APIError] with the code inbox_not_found, and
// one that has ended one with the code run_ended.
func (k *InboxKind[T]) Send(ctx context.Context, c *Client, runID string, message T, options ...SendOption) error {
	return c.sendMessage(ctx, runID, k.name, message, options)
}

// AtStart sends a message in the transaction that starts the run. With [RunKey] and [Join], it reaches the run that has
// the key.
func (k *InboxKind[T]) AtStart(message T, options ...SendOption) StartOption {
	return withMessage(k.name, message, options...)
}

// Of reads the value in the store of a run, from outside; false if there is none.
func (k *Key[T]) Of(ctx context.Context, c *Client, runID string) (value T, ok bool, err error) {
	data, ok, err := c.storeValue(ctx, runID, k.name)
	if err != nil || !ok {
		return value, false, err
	}
	if value, err = decode[T](data); err != nil {
		return value, false, fmt.Errorf("decode %s in the store of run %s: %w", k.name, runID, err)
	}
	return value, true, nil
}
