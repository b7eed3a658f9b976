package queue

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSlowAnswersLeaveStartSlots: functions answer at once, but send no body for long. Meanwhile other messages of their
// project are delivered, although another project is active.
func TestSlowAnswersLeaveStartSlots(t *testing.T) {
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

// TestLongWorkLeavesStartSlots: work that takes long, such as a signal for many hooks, does not hold up its project.
func TestLongWorkLeavesStartSlots(t *testing.T) {
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
		testdb.Receive(t, "work", begun)
	}
	r.gone(t, r.send(t))
}

// keepActive makes another project start deliveries all the time.
func keepActive(t *testing.T, w *Worker) {
	t.Helper()
	var active sync.WaitGroup
	active.Go(func() {
		for t.Context().Err() == nil {
			other, err := w.startSlot(t.Context(), "other")
			if err != nil {
				return
			}
			other.end()
			time.Sleep(10 * time.Millisecond) // well within the time for which a project counts as active
		}
	})
	t.Cleanup(active.Wait)
}

// TestDeliveriesThatWaitToCallHoldBackOthers: while the database is slow to hand out messages, a project has no more
// deliveries than it may have unrecorded, since all of them may call at the same time.
func TestDeliveriesThatWaitToCallHoldBackOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newDeliverer(&Queue{}, WorkerOptions{Deliveries: 100})
		most := int(w.unrecorded.Most(shareFactor))
		var claiming []*startSlot
		for range most {
			d, err := w.startSlot(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			claiming = append(claiming, d)
		}
		if _, err := w.startSlotSoon(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another delivery began, error %v", err)
		}
		claiming[0].leave() // it waits for something, and then calls all the same
		claiming[0].call()
		if n := int(w.unrecorded.HeldBy("a")); n != most {
			t.Errorf("%d of %d deliveries count as unrecorded", n, most)
		}
		for _, d := range claiming[1:] {
			d.call()
		}
		time.Sleep(2 * longestStart)
		if n := w.unrecorded.HeldBy("a"); n != 0 {
			t.Errorf("%d deliveries count as unrecorded, although their functions take long", n)
		}
	})
}

// TestAnswersThatWaitHoldBackCalls: while many answers of a project are not recorded, it begins no
// call. Another project does. As one is recorded, one call begins.
func TestAnswersThatWaitHoldBackCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newDeliverer(&Queue{}, WorkerOptions{Deliveries: 100})
		most := int(w.unrecorded.Most(shareFactor))
		var calls []*startSlot
		for range 2 * most {
			d, err := w.startSlot(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			d.call()
			calls = append(calls, d) // blocks until those before have taken longestStart
		}
		for _, d := range calls {
			d.answered()
		}
		time.Sleep(time.Minute) // the database is slow
		if n := int(w.unrecorded.HeldBy("a")); n != 2*most {
			t.Errorf("%d of %d answers count as unrecorded", n, 2*most)
		}
		begun := make(chan *startSlot, 1)
		go func() {
			if d, err := w.startSlot(t.Context(), "a"); err == nil {
				begun <- d
			}
		}()
		other, err := w.startSlotSoon(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other.end()
		for _, d := range calls[:most] {
			d.end()
			synctest.Wait()
			if len(begun) > 0 {
				t.Fatal("a call began although as many answers wait")
			}
		}
		time.Sleep(time.Minute) // b is not active any more
		calls[most].end()
		(<-begun).end()
		if _, err := w.startSlotSoon(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		for range 2 {
			w.unrecorded.Owe("a", 1, shareFactor)
		}
		began := time.Now()
		if _, err := w.startSlotSoon(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != longestWait {
			t.Errorf("a leased message waited %s for its start slot, error %v; want it to be given back", time.Since(began), err)
		}
	})
}
