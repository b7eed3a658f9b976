package failover

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAcceptedRunsSurvivePromotion kills a primary while its synchronous standby lags. Clients whose first tries were
// cut off by their own timeouts try again. What they were told was accepted must exist after the promotion.
func TestAcceptedRunsSurvivePromotion(t *testing.T) {
	t.Parallel()
	a := newNode(t, map[string]string{"synchronous_standby_names": "b"})
	b := a.newStandby("b")
	a.awaitStandby("sync")
	s := startServer(t, databaseURL(t, "", a, b))

	b.stop() // from now on no commit of a is durable by the configured standard
	const clients = 16
	var wg sync.WaitGroup
	var accepted [clients]string
	var early atomic.Int64
	var promoted atomic.Bool
	for i := range clients {
		wg.Go(func() {
			accepted[i] = s.mustStartRun("lag-"+strconv.Itoa(i), 500*time.Millisecond)
			if !promoted.Load() {
				early.Add(1)
			}
		})
	}
	// Rows that other sessions see, although they are only on a.
	eventually(t, "clients have given up on commits", func() bool {
		return query[int](a, `SELECT count(*) FROM stepwell.runs`) >= clients/2
	})
	settled, cancel := context.WithTimeout(t.Context(), 3*time.Second) // time to be told wrongly that a run is safe
	defer cancel()
	<-settled.Done()
	a.kill()
	promoted.Store(true)
	b.start()
	b.promote()
	wg.Wait()

	lost := 0
	for i, id := range accepted {
		if got := s.send(t.Context(), http.MethodGet, "/v1/runs/"+id, nil); got.status != http.StatusOK {
			lost++
			t.Logf("run %d (%s) was accepted and is lost: %d %s", i, id, got.status, got.body)
		}
	}
	if lost > 0 || early.Load() > 0 {
		t.Errorf("%d of %d accepted runs are lost; %d were accepted before they were durable", lost, clients, early.Load())
	}
}
