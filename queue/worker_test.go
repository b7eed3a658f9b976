package queue

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestDeliveriesUnderWayHoldNoConnections(t *testing.T) {
	t.Parallel()
	const messages = 2000 // over 10 connections
	var r *replica
	var arrived sync.WaitGroup
	arrived.Add(messages)
	release := make(chan struct{})
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		arrived.Done()
		<-release
		r.ack(t, c)
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t, func(o *WorkerOptions) { o.Deliveries = messages * 3 / 2 })
	race(8, func(i int) bool {
		for range messages / 8 {
			if _, err := r.Send(context.Background(), newMessage()); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	all := make(chan struct{})
	go func() {
		arrived.Wait()
		close(all)
	}()
	testdb.Receive(t, "all deliveries at once", all)
	r.Want(t, "messages leased", messages, `SELECT count(*) FROM messages WHERE lease <> '' AND delivery_count = 1`)
	if got := r.pool.Stat().MaxConns(); got != 10 {
		t.Errorf("got a pool of %d connections, want 10", got)
	}
	close(release)
	testdb.Eventually(t, "all are acknowledged", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if got := len(a.calls); got != messages {
		t.Errorf("got %d calls, want %d", got, messages)
	}
}

func TestWorkerDeliversNoMoreThanAllowedAtOnce(t *testing.T) {
	t.Parallel()
	const limit = 3
	var r *replica
	release := make(chan struct{})
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		<-release
		r.ack(t, c)
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t, func(o *WorkerOptions) { o.Deliveries = limit })
	for range 10 {
		r.send(t)
	}
	for range limit {
		a.next(t)
	}
	// River polls each second; two polls later there must still be no fourth delivery.
	testdb.Eventually(t, "River has fetched again", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE created_at < clock_timestamp() - interval '2 s'`) == 10
	})
	r.Want(t, "deliveries at once", limit, `SELECT count(*) FROM messages WHERE lease <> ''`)
	close(release)
	testdb.Eventually(t, "all are acknowledged", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
}

// stopping stops the worker in the background; the channels are closed when Stop is called and when it returns.
func stopping(ctx context.Context, t testing.TB, w *Worker) (began, ended <-chan struct{}) {
	t.Helper()
	b, e := make(chan struct{}), make(chan struct{})
	inner := w.loop.halt
	w.loop.halt = sync.OnceFunc(func() {
		inner()
		close(b)
	})
	go func() {
		defer close(e)
		if err := w.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	return b, e
}

func TestStopWaitsForDeliveries(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	release, broken := make(chan struct{}), make(chan struct{})
	var stopped, other *replica
	a := newApp(t, func(_ http.ResponseWriter, r *http.Request, c call) {
		if string(c.Body) != "slow" {
			other.ack(t, c)
			return
		}
		select {
		case <-release:
			other.ack(t, c)
		case <-r.Context().Done():
			close(broken)
		}
	})
	stopped, other = open(t, dsn), open(t, dsn)
	other.register(t, deployment, a.URL)
	w := stopped.worker(t)
	slow := other.send(t, body("slow"))
	a.next(t)
	began, ended := stopping(context.Background(), t, w)
	testdb.Receive(t, "the start of Stop", began)
	other.worker(t)
	for range 20 { // which takes a while
		other.gone(t, other.send(t))
	}
	select {
	case <-ended:
		t.Error("Stop has not waited for the delivery")
	case <-broken:
		t.Error("Stop has canceled the delivery")
	default:
	}
	close(release)
	testdb.Receive(t, "Stop to end", ended)
	other.gone(t, slow)
	if got, want := len(a.calls), 20; got != want {
		t.Errorf("got %d more calls, want %d", got, want)
	}
}

// TestStopLeavesLeasesWithFunctions: a function that is still working when the grace period ends keeps its lease, and
// can extend and end it through any other server. If it does not, the message is delivered again.
func TestStopLeavesLeasesWithFunctions(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		grace  time.Duration
		cancel bool
	}{"grace over": {grace: 20 * time.Millisecond}, "context over": {grace: time.Hour, cancel: true}} {
		dsn := testdb.New(t)
		a := newApp(t, func(_ http.ResponseWriter, r *http.Request, c call) {
			if c.count() == "1" {
				<-r.Context().Done()
			}
		})
		stopped, other := open(t, dsn), open(t, dsn)
		other.register(t, deployment, a.URL)
		w := stopped.worker(t, func(o *WorkerOptions) { o.Grace = how.grace })
		kept, lost := other.send(t, body("kept")), other.send(t, body("lost"))
		calls := map[string]call{}
		for range 2 {
			c := a.next(t)
			calls[c.id()] = c
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if how.cancel {
			cancel()
		}
		if err := w.Stop(ctx); err != nil {
			t.Errorf("%s: stop: %v", name, err)
		}
		for _, id := range []string{kept, lost} {
			got := other.stored(t, id)
			if got.Lease != calls[id].handle() || got.Wait > leftLease || got.Wait < leftLease/2 || got.DeliveryCount != 1 {
				t.Errorf("%s: got %+v after Stop, want the lease of delivery 1 for %s", name, got, leftLease)
			}
		}
		if got := other.Count(t, `SELECT count(*) FROM river_job WHERE state = 'running'`); got != 0 {
			t.Errorf("%s: got %d tickets in use after Stop, want none", name, got)
		}
		if got := other.Count(t, `SELECT count(*) FROM processes`); got != 0 {
			t.Errorf("%s: got %d processes after Stop, want none", name, got)
		}
		other.worker(t)
		if err := other.SetVisibility(t.Context(), project, topic, calls[kept].handle(), leaseTime); err != nil {
			t.Errorf("%s: extend after Stop: %v", name, err)
		}
		other.makeDue(t, lost)
		second := a.next(t)
		if second.id() != lost || second.count() != "2" || second.handle() == calls[lost].handle() {
			t.Errorf("%s: got delivery %s of %s, want 2 of %s", name, second.count(), second.id(), lost)
		}
		other.ack(t, second)
		other.ack(t, calls[kept])
	}
}

func TestNoDeliveryBeginsAfterStop(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := open(t, dsn)
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(t, c) })
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	r.gone(t, r.send(t))
	a.next(t)
	stop(t, w)
	id, later := r.send(t), r.send(t, delayed(time.Millisecond))
	// Longer than every poll interval of a worker.
	testdb.Eventually(t, "the messages are old", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE created_at < clock_timestamp() - interval '1500 ms'`) == 2
	})
	for _, id := range []string{id, later} {
		if got := r.stored(t, id); got.DeliveryCount != 0 || got.Ticket > firstTicket {
			t.Errorf("got %+v after Stop, want it untouched", got)
		}
	}
	if len(a.calls) > 0 {
		t.Errorf("got %d calls after Stop, want none", len(a.calls))
	}
	r.worker(t)
	r.gone(t, id)
	r.gone(t, later)
}

// TestStopLeavesNoGoroutine is not parallel, so that no other worker runs.
//
//nolint:paralleltest // it counts the goroutines of the process
func TestStopLeavesNoGoroutine(t *testing.T) {
	r := open(t, testdb.New(t))
	a := newApp(t, func(_ http.ResponseWriter, r *http.Request, c call) {
		if string(c.Body) == "slow" {
			<-r.Context().Done()
		}
	})
	r.register(t, deployment, a.URL)
	w := r.worker(t, func(o *WorkerOptions) { o.Grace = 0 })
	w.http.Transport = loopback(t).Transport(&http.Transport{IdleConnTimeout: time.Hour}) // so that only Stop ends them
	r.send(t)
	r.send(t, body("slow"))
	r.send(t, delayed(time.Hour))
	a.next(t)
	a.next(t)
	ours := func() string {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		var found []string
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			for _, owner := range []string{"riverqueue", "queue.(*Worker)", "queue.(*deliverer)", "http.(*persistConn)"} {
				if strings.Contains(stack, owner) {
					found = append(found, stack)
					break
				}
			}
		}
		return strings.Join(found, "\n\n")
	}
	if ours() == "" {
		t.Fatal("found no goroutine of a running worker, so the test sees nothing")
	}
	stop(t, w)
	// Some goroutines have been signaled but have not ended yet.
	testdb.Eventually(t, "no goroutine is left", func() bool { return ours() == "" })
}
