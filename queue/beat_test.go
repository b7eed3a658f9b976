package queue

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const beating = entities.RunID("wrun_1")

// calledStep returns a delivery of the work of a step.
func (r *replica) calledStep(t testing.TB) Delivery {
	t.Helper()
	d := r.claimed(t, "proc_1")
	r.Exec(t, `UPDATE messages SET work = 'step', run_id = $1, subject = $2 WHERE id = $2`, beating, d.ID)
	d.by = &deliverer{queue: r.Queue, lease: leaseTime}
	return d
}

// again claims the work once more.
func (r *replica) again(t testing.TB, d Delivery) Delivery {
	t.Helper()
	var ticket tickets.Ticket
	r.Scan(t, `UPDATE messages SET ticket = greatest(ticket, 1), due_at = now() WHERE id = $1 RETURNING id, ticket`,
		[]any{d.ID}, &ticket.MessageID, &ticket.Number)
	next, ok, err := r.Claim(t.Context(), ticket, d.Lease+"_next", "proc_1", leaseTime)
	if err != nil || !ok {
		t.Fatalf("claim: got %v, %v", ok, err)
	}
	return next
}

func (r *replica) progress(t testing.TB, id string) (text string) {
	t.Helper()
	r.Scan(t, `SELECT coalesce(convert_from(progress, 'UTF8'), '') FROM messages WHERE id = $1`, []any{id}, &text)
	return text
}

// TestHeartbeatsCountForTheirCall: whose heartbeats are noted, and what they leave.
func TestHeartbeatsCountForTheirCall(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	d := r.calledStep(t)
	beat := func(text string) error {
		return r.Beat(t.Context(), callOf(beating, d.Lease), []byte(text))
	}
	rest := func() { r.Exec(t, `UPDATE messages SET beat_at = now() - $1::interval`, BeatPause) }
	due := r.stored(t, d.ID).Wait
	testdb.WantError(t, "the first", beat(`1`), nil)
	testdb.WantError(t, "too soon", beat(`2`), ErrTooSoon)
	rest()
	testdb.WantError(t, "nothing new", r.Beat(t.Context(), callOf(beating, d.Lease), nil), nil)
	if got := r.progress(t, d.ID); got != `1` {
		t.Errorf("got progress %s, want that of the first heartbeat", got)
	}
	if got := r.stored(t, d.ID).Wait; got > due {
		t.Errorf("heartbeats have extended the lease from %s to %s", due, got)
	}
	rest()
	testdb.WantError(t, "another lease", r.Beat(t.Context(), callOf(beating, "rh_other"), []byte(`3`)), message.ErrStale)
	testdb.WantError(t, "another project", r.Beat(t.Context(), token.Call{Project: "other", RunID: beating, Invocation: d.Lease}, []byte(`3`)), message.ErrStale)
	testdb.WantError(t, "another run", r.Beat(t.Context(), callOf("wrun_2", d.Lease), []byte(`3`)), message.ErrStale)
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	testdb.WantError(t, "the lease has ended", beat(`3`), message.ErrStale)
	if got := r.progress(t, d.ID); got != `1` {
		t.Errorf("got progress %s of a heartbeat that was refused", got)
	}
}

// TestProgressIsForTheNextAttempt, however the attempt ends.
func TestProgressIsForTheNextAttempt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *replica, Delivery){
		"it fails": func(t *testing.T, r *replica, d Delivery) {
			if err := d.Release(t.Context(), Failure{Reason: "m", Reached: true}); err != nil {
				t.Fatal(err)
			}
		},
		"the server dies": func(t *testing.T, r *replica, _ Delivery) {
			r.Exec(t, `UPDATE processes SET beat_at = now() - interval '1 hour'`)
			if _, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_1"}, time.Second, time.Minute); err != nil {
				t.Fatal(err)
			}
			r.registerProcess(t, "proc_1")
		},
		"the lease ends": func(t *testing.T, r *replica, d Delivery) {
			r.Exec(t, `UPDATE messages SET due_at = now() - interval '1 s' WHERE id = $1`, d.ID)
			r.issue(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			d := r.calledStep(t)
			if err := r.Beat(t.Context(), callOf(beating, d.Lease), []byte(`{"rows":7}`)); err != nil {
				t.Fatal(err)
			}
			end(t, r, d)
			if next := r.again(t, d); string(next.Progress) != `{"rows":7}` {
				t.Errorf("the next attempt has the progress %q", next.Progress)
			}
			testdb.WantError(t, "the first attempt", r.Beat(t.Context(), callOf(beating, d.Lease), nil), message.ErrStale)
		})
	}
}

// TestRacingAttemptsSendHeartbeatsOfOne: racers of an attempt that ends send heartbeats while the next one begins. What the
// next one has got is what the row has then: none of the others comes later. Of racers of one call, one in a second
// counts.
func TestRacingAttemptsSendHeartbeatsOfOne(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	const rounds, racers = 20, 8
	for round := range rounds {
		d := r.calledStep(t)
		var noted atomic.Int64
		var racing sync.WaitGroup
		begin := make(chan struct{})
		for n := range racers {
			racing.Go(func() {
				<-begin
				switch err := r.Beat(t.Context(), callOf(beating, d.Lease), []byte(strconv.Itoa(n))); {
				case err == nil:
					noted.Add(1)
				case !errors.Is(err, ErrTooSoon) && !errors.Is(err, message.ErrStale):
					t.Errorf("got error %v", err)
				}
			})
		}
		close(begin)
		if round%2 == 0 {
			racing.Wait()
			if n := noted.Load(); n != 1 {
				t.Errorf("%d heartbeats of one second were noted, want 1", n)
			}
		}
		if err := d.Release(t.Context(), Failure{Reason: "m", Reached: true}); err != nil {
			t.Fatal(err)
		}
		next := r.again(t, d)
		racing.Wait()
		if got := r.progress(t, d.ID); got != string(next.Progress) {
			t.Errorf("the next attempt has got %q, and an earlier one has written %q since", next.Progress, got)
		}
		r.Exec(t, `DELETE FROM messages`)
	}
}

// TestSilentCallsAreNotKept: a function that says that it works, but sends no heartbeat, keeps no call for which no
// server waits.
func TestSilentCallsAreNotKept(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for _, tt := range []struct {
		name   string
		silent string
		want   error
	}{
		{"a step without a time", `beat_timeout = NULL, beat_at = now() - interval '1 hour', holder = ''`, nil},
		{"it beats", `beat_at = now() - interval '30 s', holder = ''`, nil},
		{"it is silent", `beat_at = now() - interval '32 s', holder = ''`, message.ErrStale},
		{"it is silent, and its server will find out", `beat_at = now() - interval '32 s'`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { // one after the other: they share a process
			d := r.calledStep(t)
			if err := d.StartBeats(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
			r.Exec(t, `UPDATE messages SET `+tt.silent)
			testdb.WantError(t, "keep", r.KeepCall(t.Context(), callOf(beating, d.Lease)), tt.want)
			r.Exec(t, `DELETE FROM messages`)
		})
	}
}

// TestSilenceIsNoticed by the server that waits, and not while there are heartbeats.
func TestSilenceIsNoticed(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	d := r.calledStep(t)
	const silence = 50 * time.Millisecond
	if err := d.StartBeats(t.Context(), silence); err != nil {
		t.Fatal(err)
	}
	lost := make(chan struct{})
	go d.WatchBeats(t.Context(), silence, func() { close(lost) })
	testdb.Receive(t, "the end of the time", lost)
	if left := d.untilSilent(t.Context(), silence); left != 0 {
		t.Errorf("a silent function may be silent for %s more", left)
	}
	if err := r.Beat(t.Context(), callOf(beating, d.Lease), nil); err != nil {
		t.Fatal(err)
	}
	if left := d.untilSilent(t.Context(), silence); left <= 0 || left > silence+BeatPause {
		t.Errorf("a function that beats may be silent for %s more", left)
	}
	r.Exec(t, `DELETE FROM messages`)
	if left := d.untilSilent(t.Context(), silence); left != silence {
		t.Errorf("a call that is over is watched for %s more", left)
	}
}
