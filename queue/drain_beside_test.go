package queue

import (
	"context"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestDrainsBesideWorkers: servers of all roles can share a database. Each message is delivered once, and no process
// takes over the lease of a live one.
func TestDrainsBesideWorkers(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	steady := withoutHints(t, dsn) // gets no hints, so the tickets go to the first process that polls
	a := acknowledgingApp(t, steady)
	steady.register(t, deployment, a.URL)
	w := steady.worker(t)
	const drainers, rounds, batch = 3, 4, 10
	var draining sync.WaitGroup
	for range drainers {
		r := minimal(t, dsn)
		d := r.drainer(t)
		draining.Go(func() {
			for range rounds {
				for range batch {
					if _, err := r.Send(context.Background(), newMessage()); err != nil {
						t.Error(err)
					}
				}
				started, err := d.StartDrain(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := started.Run(context.Background(), testdb.Timeout, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	draining.Wait()
	testdb.Eventually(t, "all is delivered", func() bool { return steady.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(a.calls); n != drainers*rounds*batch {
		t.Errorf("%d calls, want %d: each message once", n, drainers*rounds*batch)
	}
	steady.Want(t, "processes are registered", 0, `SELECT count(*) FROM processes`)
}
