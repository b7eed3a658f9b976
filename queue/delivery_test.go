package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestWaitingForMemoryRestartsTheLease also checks that a delivery fails, uncounted, when it waits too long for memory.
func TestWaitingForMemoryRestartsTheLease(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	w := r.newWorker(t)
	held := w.Bind(r.claimed(t, ""))
	const log = 2 * (smallBody + 1)
	most, _ := w.memory.try(project, w.memory.Most(shareFactor)-log/2)
	w.lease = 10 * time.Millisecond
	failed := (*Failure)(nil)
	if _, err := held.ReserveMemory(t.Context(), log); !errors.As(err, &failed) || failed.Reached {
		t.Errorf("without memory: got error %v, want one that does not count as a delivery", err)
	}
	w.lease = time.Hour
	got := make(chan error, 1)
	go func() {
		free, err := held.ReserveMemory(t.Context(), log)
		if err == nil {
			free()
		}
		got <- err
	}()
	testdb.Eventually(t, "it waits", func() bool { // so later requests wait behind it
		free, ok := w.memory.try(project, log/2)
		if ok {
			free()
		}
		return !ok
	})
	most()
	if err := testdb.Receive(t, "memory", got); err != nil {
		t.Fatal(err)
	}
	left, err := leaseLeft(t.Context(), r.pool, held.Lease)
	if err != nil {
		t.Fatal(err)
	}
	if left < time.Minute {
		t.Errorf("the lease lasts another %s, want about %s", left, w.lease)
	}
}
