package queue

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// WatchLease calls over when no more than the reserve is left of the lease, unless the context ends first. It reads the
// lease again each time that would be so, since the function may have extended it through any server.
func (d Delivery) WatchLease(ctx context.Context, reserve time.Duration, over func()) {
	err := rescue.Do(ctx, "lease", func() error {
		d.watchLease(ctx, reserve, over)
		return nil
	})
	if err != nil {
		over()
	}
}

func (d Delivery) watchLease(ctx context.Context, reserve time.Duration, over func()) {
	for left := d.by.lease; left > reserve; {
		if !pause(ctx, left-reserve) {
			return
		}
		var err error
		if left, err = leaseLeft(ctx, d.by.queue.pool, d.Lease); err != nil {
			left = reserve + duePoll // the database is unavailable
		}
	}
	over()
}
