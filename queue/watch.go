package queue

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// WatchLease calls over when no more than the reserve is left of the lease, unless the context ends first. It reads the
// lease again each time that would be so, since the function may have extended it through any server.
func (d Delivery) WatchLease(ctx context.Context, reserve time.Duration, over func()) {
	watch(ctx, "lease", d.by.lease-reserve, func(ctx context.Context) time.Duration {
		left, err := leaseLeft(ctx, d.by.queue.pool, d.Lease)
		if err != nil {
			return duePoll // the database is unavailable
		}
		return left - reserve
	}, over)
}

// watch calls over when nothing is left of a time that others may lengthen, unless the context ends first. Read returns
// what is left.
func watch(
	ctx context.Context, what string, left time.Duration, read func(context.Context) time.Duration, over func(),
) {
	err := rescue.Do(ctx, what, func() error {
		for left > 0 {
			if !pause(ctx, left) {
				return nil
			}
			left = read(ctx)
		}
		over()
		return nil
	})
	if err != nil {
		over()
	}
}
