package queue

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// die closes the connection of a call, as the death of the app does.
func die(http.ResponseWriter, *http.Request, call) { panic(http.ErrAbortHandler) }

func TestDisconnectIsDistinguished(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"closed":       {fmt.Errorf("Post: %w", io.EOF), true},
		"closed early": {fmt.Errorf("Post: %w", io.ErrUnexpectedEOF), true},
		"reset":        {fmt.Errorf("Post: %w", syscall.ECONNRESET), true},
		"broken pipe":  {fmt.Errorf("Post: %w", syscall.EPIPE), true},
		"lease over":   {errLeaseOver, false},
		"status":       {&answerError{status: 502}, false},
	} {
		if got := isDisconnect(tt.err); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestDisconnectBackoff: a message that was cut off is tried again within ten seconds at first, and one that kills its
// app every time still takes hours until clients fail its run.
func TestDisconnectBackoff(t *testing.T) {
	t.Parallel()
	total := time.Duration(0)
	for n := 1; n <= 48; n++ {
		d := disconnectBackoff(n)
		total += d
		if n <= shortDisconnects && d > longestDisconnectPause {
			t.Errorf("disconnectBackoff(%d) is %s, want at most %s", n, d, longestDisconnectPause)
		}
		if n > shortDisconnects+6 && d < maxBackoff*3/4 {
			t.Errorf("disconnectBackoff(%d) is %s, want about %s", n, d, maxBackoff)
		}
	}
	if total < 4*time.Hour {
		t.Errorf("48 deliveries take %s, want hours", total)
	}
}

// TestRefusedCallsAreRepeatedSoon: a message that nobody makes due when its app is back comes again every ten seconds.
func TestRefusedCallsAreRepeatedSoon(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for disconnects, most := range map[int]time.Duration{
		0: unreachedBackoff, promptDisconnects: unreachedBackoff, promptDisconnects + 1: longestDisconnectPause,
	} {
		f := Delivery{DisconnectCount: disconnects, UnreachedCount: 30}.Failure(refused)
		if f.After > most || f.After < most/2 || f.Reached {
			t.Errorf("after %d deaths of its app: got %+v, want it due within %s", disconnects, f, most)
		}
	}
}

// TestDeathsOfTheAppDoNotDelayRetries: an app dies during nine deliveries of a message. The message never waits for
// longer than ten seconds, and the first failure of the app's code counts as the first.
func TestDeathsOfTheAppDoNotDelayRetries(t *testing.T) {
	t.Parallel()
	const deaths = 9
	var calls atomic.Int32
	a := newApp(t, func(w http.ResponseWriter, req *http.Request, c call) {
		if calls.Add(1) <= deaths {
			die(w, req, c)
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := start(t, a)
	id := r.send(t)
	for n := 1; n <= deaths; n++ {
		got := r.failed(t, id, n)
		if got.Wait > longestDisconnectPause {
			t.Errorf("after death %d it is due in %s, want at most %s", n, got.Wait, longestDisconnectPause)
		}
		r.makeDue(t, id)
	}
	if got := r.failed(t, id, deaths+1); got.Wait > firstBackoff || got.Parked {
		t.Errorf("got %+v after the first failure of the code, want it due within %s", got, firstBackoff)
	}
	r.makeDue(t, id)
	if got := r.failed(t, id, deaths+2); got.Wait > 2*firstBackoff || got.DeliveryCount != deaths+2 {
		t.Errorf("got %+v after the second failure of the code, want it due within %s", got, 2*firstBackoff)
	}
}

// TestMessagesWaitNoLongerThanTheirApp: the messages that were cut off, or did not reach the app, are due as soon as
// the app answers another one. A message that was cut off often keeps its backoff: it may be what kills the app.
func TestMessagesWaitNoLongerThanTheirApp(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	a := newApp(t, func(w http.ResponseWriter, req *http.Request, c call) {
		if !up.Load() {
			die(w, req, c)
		}
	})
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	r.unreached(t, 4)
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '5 min',
		disconnect_count = CASE id WHEN 'msg_2' THEN 3 WHEN 'msg_3' THEN 4 ELSE 0 END,
		unreached_count = CASE id WHEN 'msg_4' THEN 0 ELSE 1 END`)
	first := r.send(t)
	r.failed(t, first, 1)
	up.Store(true)
	w.outages.Store(deploymentKey{project, deployment}, time.Now().Add(-shortestOutage))
	want := map[string]bool{first: true, "msg_1": true, "msg_2": true}
	for len(want) > 0 {
		c := a.next(t)
		if c.id() == first && c.count() == "1" {
			continue
		}
		if !want[c.id()] {
			t.Fatalf("got delivery %s of %s, want one of %v", c.count(), c.id(), want)
		}
		delete(want, c.id())
		r.ack(t, c)
	}
	for name, id := range map[string]string{"cut off often": "msg_3", "failed": "msg_4"} {
		if got := r.stored(t, id); got.Wait < 4*time.Minute {
			t.Errorf("%s: got %+v, want it to keep its backoff", name, got)
		}
	}
}

// TestLeasesLeftToADeadAppEndSoon: a server that stops leaves its leases to the functions. When calls of the same app
// are cut off or refused later, the leases last for seconds only, except those that the functions have extended.
func TestLeasesLeftToADeadAppEndSoon(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"cut off": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t, die)
			url := a.URL
			if gone {
				url = refusingAddress(t)
			}
			r := open(t, testdb.New(t))
			r.register(t, deployment, url)
			leave := func() Delivery {
				d := r.claimed(t, "proc_stopped")
				if err := leaveLease(t.Context(), r.pool, d.Lease, d.ClaimedAt); err != nil {
					t.Fatal(err)
				}
				return d
			}
			left, extended, other := leave(), leave(), leave()
			r.Exec(t, `UPDATE messages SET deployment_id = 'elsewhere' WHERE id = $1`, other.ID)
			if err := r.SetVisibility(t.Context(), project, topic, extended.Lease, leaseTime); err != nil {
				t.Fatal(err)
			}
			r.worker(t)
			id := r.send(t)
			testdb.Eventually(t, "a call failed", func() bool { return r.stored(t, id).LastError != "" })
			if got := r.stored(t, left.ID); got.Lease != left.Lease || got.Wait > cluster.KeptLease {
				t.Errorf("got %+v, want the lease for at most %s", got, cluster.KeptLease)
			}
			for what, d := range map[string]Delivery{"extended": extended, "at another app": other} {
				if got := r.stored(t, d.ID); got.Lease != d.Lease || got.Wait < leftLease/2 {
					t.Errorf("%s: got %+v, want the lease unchanged", what, got)
				}
			}
		})
	}
}
