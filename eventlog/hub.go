package eventlog

import (
	"context"
	"time"
)

// waitForNews waits for an item of a subscription, but no longer than d: a hint may have got lost. It fails
// with the context's error when that ends first.
func waitForNews(ctx context.Context, news <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-news:
	case <-timer.C:
	}
	return nil
}
