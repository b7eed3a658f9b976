package queue

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSlowAnswersLeaveTurns: functions answer at once, but send no body for long. Meanwhile other messages of their
// project are delivered, although another project is active.
func TestSlowAnswersLeaveTurns(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	slow := newApp(t, func(w http.ResponseWriter, r *http.Request, _ call) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	r.register(t, deployment, slow.URL)
	w := r.worker(t, func(o *WorkerOptions) { o.Grace = 0 })
	keepActive(t, w)
	for range 3 * runtime.GOMAXPROCS(0) {
		r.send(t)
	}
	for range 3 * runtime.GOMAXPROCS(0) {
		slow.next(t)
	}
}

// TestLongWorkLeavesTurns: work that takes long, such as a signal for many hooks, does not hold up its project.
func TestLongWorkLeavesTurns(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	begun := make(chan struct{})
	w := r.worker(t, func(o *WorkerOptions) {
		o.Grace = 0
		o.Handlers = map[message.Work]Handler{message.WorkSignal: func(ctx context.Context, _ Delivery) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}
	})
	keepActive(t, w)
	for range runtime.GOMAXPROCS(0) {
		signal := invocation()
		signal.Work = message.WorkSignal
		if _, err := r.SendAll(t.Context(), []message.Message{signal}); err != nil {
			t.Fatal(err)
		}
		receive(t, "work", begun)
	}
	r.gone(t, r.send(t))
}

// keepActive makes another project start deliveries all the time.
func keepActive(t *testing.T, w *Worker) {
	t.Helper()
	var active sync.WaitGroup
	active.Go(func() {
		for t.Context().Err() == nil {
			end, err := w.turn(t.Context(), "other")
			if err != nil {
				return
			}
			end()
			time.Sleep(10 * time.Millisecond) // well within the time for which a project counts as active
		}
	})
	t.Cleanup(active.Wait)
}
