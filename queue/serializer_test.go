package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// wake returns the delivery of a wake-up, with changes.
func wake(changes ...func(*Delivery)) Delivery {
	d := Delivery{Project: project, RunID: "wrun_a", Topic: topic, SpecVersion: 3}
	for _, c := range changes {
		c(&d)
	}
	return d
}

// acquireAsync acquires a call in the background, and sends the function that ends it.
func (s *serializer) acquireAsync(tb testing.TB, d Delivery) <-chan func() {
	acquired := make(chan func(), 1)
	go func() {
		answered, err := s.acquire(context.Background(), &d)
		if err != nil {
			tb.Error(err)
		}
		acquired <- answered
	}()
	synctest.Wait()
	return acquired
}

// taken acquires a call that need not wait.
func (s *serializer) taken(tb testing.TB, d Delivery) (answered func()) {
	tb.Helper()
	select {
	case answered = <-s.acquireAsync(tb, d):
	default:
		tb.Fatalf("%+v waits", d)
	}
	return answered
}

// wantNoQueues checks that the serializer keeps no run.
func (s *serializer) wantNoQueues(tb testing.TB) {
	tb.Helper()
	if waiting, lines := s.state(); lines != 0 || waiting != 0 {
		tb.Errorf("got %d queues and %d waiting messages, want none", lines, waiting)
	}
}

func TestSerializedMessages(t *testing.T) {
	t.Parallel()
	flow := func(topic string) func(*Delivery) { return func(d *Delivery) { d.Topic = topic } }
	spec := func(v int) func(*Delivery) { return func(d *Delivery) { d.SpecVersion = v } }
	for name, tt := range map[string]struct {
		change func(*Delivery)
		waits  bool // for a call of the run in progress
		counts bool // holds back the next call
	}{
		"a wake-up":                    {func(*Delivery) {}, true, true},
		"of a namespace":               {flow("__n-s_wkf_workflow_a"), true, true},
		"of a run of version 2":        {spec(2), true, true},
		"came before its run":          {spec(0), false, true},
		"is large":                     {func(d *Delivery) { d.Body = make([]byte, smallBody+1) }, false, true},
		"just not large":               {func(d *Delivery) { d.Body = make([]byte, smallBody) }, true, true},
		"of a client that may do more": {spec(4), false, false},
		"of the next line":             {spec(5), false, false},
		"of the line after":            {spec(7), false, false},
		"a step":                       {flow("__wkf_step_a"), false, false},
		"a step of a namespace":        {flow("__ns_wkf_step_a"), false, false},
		"a step with an odd name":      {flow("__wkf_step___wkf_workflow_"), false, false},
		"a health check":               {flow("__wkf_workflow_health_check"), false, false},
		"a namespace's health check":   {flow("__ns_wkf_workflow_health_check"), false, false},
		"a topic of no SDK":            {flow("x__wkf_workflow_a"), false, false},
		"about no run":                 {func(d *Delivery) { d.RunID = "" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSerializer(100)
				before := s.taken(t, wake())
				acquired := s.acquireAsync(t, wake(tt.change))
				if got := len(acquired) == 0; got != tt.waits {
					t.Errorf("waits: got %v, want %v", got, tt.waits)
				}
				before()
				(<-acquired)()
				s.wantNoQueues(t)

				own := s.taken(t, wake(tt.change))
				after := s.acquireAsync(t, wake())
				if got := len(after) == 0; got != tt.counts {
					t.Errorf("holds back the next: got %v, want %v", got, tt.counts)
				}
				own()
				(<-after)()
				s.wantNoQueues(t)
			})
		})
	}
}

func TestRunsDoNotWaitForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSerializer(100)
		for _, end := range []func(){
			s.taken(t, wake()),
			s.taken(t, wake(func(d *Delivery) { d.RunID = "wrun_b" })),
			s.taken(t, wake(func(d *Delivery) { d.Project = "other" })),
		} {
			end()
		}
		s.wantNoQueues(t)
	})
}

// TestSerializerKeepsTheOrder: calls run one at a time, in the order of their arrival, each as soon as the previous one
// is answered.
func TestSerializerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		s, began := newSerializer(4*n), time.Now()
		answered := s.taken(t, wake())
		var waiting []<-chan func()
		for range n {
			waiting = append(waiting, s.acquireAsync(t, wake()))
		}
		for i, next := range waiting {
			for j, later := range waiting[i:] {
				if len(later) > 0 {
					t.Fatalf("%d has started while %d is in progress", i+j, i-1)
				}
			}
			answered()
			answered() // a second call has no effect
			synctest.Wait()
			if len(next) == 0 {
				t.Fatalf("%d has not started", i)
			}
			answered = <-next
		}
		answered()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it took %s, want no time", waited)
		}
		s.wantNoQueues(t)
	})
}

func TestHangingCallHoldsBackOnlyForItsHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := newSerializer(100), time.Now()
		hanging := s.taken(t, wake())
		time.Sleep(callHold / 4)
		second, third := s.acquireAsync(t, wake()), s.acquireAsync(t, wake())
		hangingToo := <-second
		if waited := time.Since(began); waited != callHold {
			t.Errorf("the second started after %s, want %s", waited, callHold)
		}
		hanging() // is answered at last, but the third waits for the second
		synctest.Wait()
		if len(third) > 0 {
			t.Error("the third started with the answer of the first, want the second's")
		}
		last := <-third
		if waited := time.Since(began); waited != 2*callHold {
			t.Errorf("the third started after %s, want %s", waited, 2*callHold)
		}
		time.Sleep(callHold)
		synctest.Wait()
		s.wantNoQueues(t) // although calls still hang
		hangingToo()
		last()
		s.taken(t, wake())()
		s.wantNoQueues(t)
	})
}

// TestSerializerBoundsTheWait: neither many hanging calls nor a growing queue make a message wait longer than the
// limit.
func TestSerializerBoundsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 2 * int(maxCallWait/callHold)
		s, began := newSerializer(4*n), time.Now()
		s.taken(t, wake())
		var waiting []<-chan func()
		for range n {
			waiting = append(waiting, s.acquireAsync(t, wake()))
		}
		for i, w := range waiting {
			<-w
			want := min(time.Duration(i+1)*callHold, maxCallWait)
			if waited := time.Since(began); waited != want {
				t.Fatalf("%d started after %s, want %s", i, waited, want)
			}
		}
		time.Sleep(callHold)
		synctest.Wait()
		s.wantNoQueues(t)
	})
}

// TestSerializerBoundsTheNumberWaiting: beyond the limit, messages are called at once.
func TestSerializerBoundsTheNumberWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSerializer(8)
		first := s.taken(t, wake())
		other := s.taken(t, wake(func(d *Delivery) { d.RunID = "wrun_b" }))
		a := s.acquireAsync(t, wake())
		b := s.acquireAsync(t, wake(func(d *Delivery) { d.RunID = "wrun_b" }))
		if len(a)+len(b) > 0 {
			t.Fatal("two of eight do not wait")
		}
		third := s.taken(t, wake()) // now its run waits for it
		first()
		other()
		(<-b)()
		synctest.Wait()
		if len(a) > 0 {
			t.Error("one started before the last call of its run was answered")
		}
		third()
		(<-a)()
		s.wantNoQueues(t)
	})
}

func TestSerializerWaitEndsWithContextAndServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(*serializer, context.CancelCauseFunc)
		want error
	}{
		"with the server":  {func(t *serializer, _ context.CancelCauseFunc) { t.close() }, ErrStopping},
		"with the context": {func(_ *serializer, cancel context.CancelCauseFunc) { cancel(errDrainOver) }, errDrainOver},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := newSerializer(100), time.Now()
				answered := s.taken(t, wake())
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan error, 1)
				go func() {
					d := wake()
					_, err := s.acquire(ctx, &d)
					ended <- err
				}()
				synctest.Wait()
				tt.end(s, cancel)
				if err := <-ended; !errors.Is(err, tt.want) {
					t.Errorf("got error %v, want %v", err, tt.want)
				}
				if waited := time.Since(began); waited != 0 {
					t.Errorf("it took %s, want no time", waited)
				}
				if waiting, lines := s.state(); waiting != 0 || lines != 1 {
					t.Errorf("%d wait in %d queues, want 0 in 1: the call in progress continues", waiting, lines)
				}
				answered()
				s.wantNoQueues(t)
				s.taken(t, wake())() // need not wait, so it does not fail
			})
		})
	}
}

// TestCallGrantedWhileItsWaitEnds: an abandoned wake-up passes its permission on, and one whose wait timed out uses its
// permission once.
func TestCallGrantedWhileItsWaitEnds(t *testing.T) {
	t.Parallel()
	s := newSerializer(100)
	var all []*wakeUp
	for range 4 {
		all = append(all, s.add(wake()))
	}
	s.end(all[0])
	s.callNow(all[1])
	s.end(all[1])
	s.end(all[2])
	select {
	case <-all[3].called:
	default:
		t.Error("the last call was not permitted")
	}
	s.end(all[3])
	s.wantNoQueues(t)
}

// TestSerializerUnderContention runs arrivals, cancellations and answers concurrently: no two calls overlap within
// their hold, each acquires or fails, and no queue is left.
func TestSerializerUnderContention(t *testing.T) {
	t.Parallel()
	const racers = 200
	s := newSerializer(4 * racers)
	s.hold, s.maxWait = testdb.Timeout, testdb.Timeout
	var now, called, failed atomic.Int64
	race(racers, func(i int) struct{} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if i%3 == 0 {
			go cancel()
		}
		d := wake()
		answered, err := s.acquire(ctx, &d)
		if err != nil {
			failed.Add(1)
			return struct{}{}
		}
		if n := now.Add(1); n > 1 {
			t.Errorf("%d calls at once", n)
		}
		for range rand.N(100) {
			called.Load()
		}
		now.Add(-1)
		called.Add(1)
		answered()
		return struct{}{}
	})
	if called.Load()+failed.Load() != racers || called.Load() < racers*2/3 {
		t.Errorf("%d were called and %d gave up, of %d", called.Load(), failed.Load(), racers)
	}
	s.wantNoQueues(t)
}

// TestWaitMakesTheLengthOfTheLogUnknown: the log grows while a wake-up waits.
func TestWaitMakesTheLengthOfTheLogUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSerializer(100)
		first, second := wake(func(d *Delivery) { d.LeasedSeq = 7 }), wake(func(d *Delivery) { d.LeasedSeq = 7 })
		answered, err := s.acquire(t.Context(), &first)
		if err != nil || first.LeasedSeq != 7 {
			t.Errorf("without a wait: got %d, error %v; want 7", first.LeasedSeq, err)
		}
		after, err := s.acquire(t.Context(), &second) // until the hold of the first one ends
		if err != nil || second.LeasedSeq != 0 {
			t.Errorf("after a wait: got %d, error %v; want 0", second.LeasedSeq, err)
		}
		answered()
		after()
	})
}
