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
	a, b, s := newSynchronous(t)

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
		return query[int](a, `SELECT count(*) FROM stepwell.runs`) >= 3
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
		if got := s.send(t.Context(), http.MethodGet, "/v1/runs/"+id, nil); got.Status != http.StatusOK {
			lost++
			t.Logf("run %d (%s) was accepted and is lost: %d %s", i, id, got.Status, got.Body)
		}
	}
	if lost > 0 || early.Load() > 0 {
		t.Errorf("%d of %d accepted runs are lost; %d were accepted before they were durable", lost, clients, early.Load())
	}
}

// TestRepeatedRequestsWaitForTheStandby repeats requests whose first answers are long known, while the standby is away.
// Their answers write nothing, but report commits, so they come when commits succeed.
func TestRepeatedRequestsWaitForTheStandby(t *testing.T) {
	t.Parallel()
	_, b, s := newSynchronous(t)
	first := s.mustStartRun("first", timeout)
	keyed := map[string]any{"workflow": "w", "deployment": "f", "delay": "1h", "key": "k"}
	joining := map[string]any{"workflow": "w", "deployment": "f", "delay": "1h", "key": "k", "onConflict": "join"}
	s.want(http.StatusCreated, "/v1/runs", keyed)
	cancelled := s.mustStartRun("cancelled", timeout)
	s.want(http.StatusOK, "/v1/runs/"+cancelled+"/cancel", nil)
	message := func(ctx context.Context) answer { // as the clients of the Workflow SDK send it
		return s.send(ctx, http.MethodPost, "/sdk/queues-proxy/api/v3/topic/__wkf_step_a", "x",
			"Vqs-Deployment-Id", "f", "Vqs-Idempotency-Key", "m", "Vqs-Delay-Seconds", "600")
	}
	if got := message(t.Context()); got.Status >= 300 || got.Err != nil {
		t.Fatalf("send message: got %d %s %v", got.Status, got.Body, got.Err)
	}

	b.stop()
	repeats := []func(context.Context) answer{
		func(ctx context.Context) answer { _, a := s.startRun(ctx, "first"); return a },
		func(ctx context.Context) answer { return s.send(ctx, http.MethodPost, "/v1/runs", keyed) },
		func(ctx context.Context) answer { return s.send(ctx, http.MethodPost, "/v1/runs", joining) },
		func(ctx context.Context) answer {
			return s.send(ctx, http.MethodPost, "/v1/runs/"+cancelled+"/cancel", nil)
		},
		message,
	}
	for i, repeat := range repeats {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		if got := repeat(ctx); got.Err == nil {
			t.Errorf("request %d was answered without the standby: %d %s", i, got.Status, got.Body)
		}
		cancel()
	}
	if got := s.send(t.Context(), http.MethodGet, "/v1/runs/"+first, nil); got.Status != http.StatusOK {
		t.Errorf("a read waits for the standby: %d %s %v", got.Status, got.Body, got.Err)
	}
	b.start()
	for i, want := range []int{http.StatusOK, http.StatusConflict, http.StatusOK, http.StatusOK, http.StatusCreated} {
		if got := repeats[i](t.Context()); got.Status != want {
			t.Errorf("request %d: got %d %s %v, want %d", i, got.Status, got.Body, got.Err, want)
		}
	}
}

// want sends a POST request and fails the test unless its answer has the status.
func (s *server) want(status int, path string, body any) {
	s.t.Helper()
	if got := s.send(s.t.Context(), http.MethodPost, path, body); got.Status != status {
		s.t.Fatalf("POST %s: got %d %s %v, want %d", path, got.Status, got.Body, got.Err, status)
	}
}
