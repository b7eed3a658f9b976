package queue

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// bound registers the tests' deployment with a bound of its calls; 0 for none.
func (r *replica) bound(t testing.TB, url string, n int) {
	t.Helper()
	if _, err := r.Register(t.Context(), project, Deployment{ID: deployment, URL: url, MaxConcurrent: &n}); err != nil {
		t.Fatal(err)
	}
}

// countedApp is an app that answers and acknowledges when open is closed, and keeps the highest number of calls at once.
func countedApp(t *testing.T, r **replica, open <-chan struct{}) (a *app, now, most *atomic.Int64) {
	t.Helper()
	now, most = &atomic.Int64{}, &atomic.Int64{}
	var mu sync.Mutex
	return newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		mu.Lock()
		most.Store(max(most.Load(), now.Add(1)))
		mu.Unlock()
		<-open
		now.Add(-1) // from the acknowledgement on, another call may begin
		(*r).ack(t, c)
	}), now, most
}

// TestNeverMoreCallsThanTheDeploymentAllows: two servers deliver messages, of which some were stored before the bound
// was set, and some arrive while others wait.
func TestNeverMoreCallsThanTheDeploymentAllows(t *testing.T) {
	t.Parallel()
	const bound, messages = 3, 60
	dsn := testdb.New(t)
	r := open(t, dsn)
	full := make(chan struct{})
	a, now, most := countedApp(t, &r, full)
	race(messages/3, func(int) string { return r.send(t) })
	r.bound(t, a.URL, bound)
	r.worker(t)
	open(t, dsn).worker(t)
	race(messages/3, func(int) string { return r.send(t) })
	testdb.Eventually(t, "the slots are taken", func() bool { return now.Load() == bound })
	testdb.Eventually(t, "all others wait", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE awaits_since IS NOT NULL AND lease = ''`) == 2*messages/3-bound
	})
	close(full)
	race(messages/3, func(int) string { return r.send(t) })
	for range messages {
		if c := a.next(t); c.count() != "1" {
			t.Errorf("delivery %s of message %s", c.count(), c.id())
		}
	}
	testdb.Eventually(t, "all are gone", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if most.Load() != bound {
		t.Errorf("%d calls at once, want %d", most.Load(), bound)
	}
}

// TestRacersForASlotAtADeployment: only as many tickets as there are slots lease their messages, and the others wait.
func TestRacersForASlotAtADeployment(t *testing.T) {
	t.Parallel()
	const bound, racers = 2, 16
	r := withoutHints(t, testdb.New(t))
	r.bound(t, "http://127.0.0.1:1", bound)
	ids := race(racers, func(int) string { return r.send(t) })
	claimed := race(racers, func(i int) bool {
		ticket := tickets.Ticket{MessageID: ids[i], Project: project, Number: firstTicket}
		_, ok, err := r.Claim(t.Context(), ticket, fmt.Sprint("rh_", i), "", leaseTime)
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		return ok
	})
	n := 0
	for _, ok := range claimed {
		if ok {
			n++
		}
	}
	waiting := r.Count(t, `SELECT count(*) FROM messages WHERE awaits_since IS NOT NULL AND lease = '' AND due_at = `+gated)
	if n != bound || waiting != racers-bound {
		t.Errorf("%d claimed and %d wait, want %d and %d", n, waiting, bound, racers-bound)
	}
}

// TestTheBoundOfADeploymentCanChange: more slots count for those that wait at once, fewer keep no call from going on,
// and without a bound all go. Who came first goes first, whatever comes meanwhile.
func TestTheBoundOfADeploymentCanChange(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, nil) // which acknowledges nothing: its calls stay under way for [answeredLease]
	r.bound(t, a.URL, 1)
	r.worker(t)
	var ids []string
	for i := range 4 {
		ids = append(ids, r.send(t))
		testdb.Eventually(t, "it is called or waits", func() bool {
			return r.Count(t, `SELECT count(*) FROM messages WHERE lease <> '' OR awaits_since IS NOT NULL`) == i+1
		})
	}
	first := a.next(t)
	r.bound(t, a.URL, 2)
	second := a.next(t)
	r.bound(t, a.URL, 1)
	r.ack(t, first)
	if err := r.bounds.CheckAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := r.send(t)
	testdb.Eventually(t, "the last one waits, too", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE awaits_since IS NOT NULL AND due_at = `+gated) == 3
	})
	r.ack(t, second)
	third := a.next(t)
	if got := []string{first.id(), second.id(), third.id()}; !slices.Equal(got, ids[:3]) {
		t.Errorf("called %v, want %v", got, ids[:3])
	}
	r.bound(t, a.URL, 0)
	if got, want := []string{a.next(t).id(), a.next(t).id()}, []string{ids[3], late}; !slices.Contains(got, want[0]) ||
		!slices.Contains(got, want[1]) {
		t.Errorf("without a bound %v were called, want %v", got, want)
	}
}

// TestASlotIsFreeWhateverEndsTheCall: a call that fails, is cut off, or whose lease has expired makes room.
func TestASlotIsFreeWhateverEndsTheCall(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
	}
	var calls atomic.Int64
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if i := calls.Add(1) - 1; int(i) < len(answers) {
			answers[i](w)
			return
		}
		r.ack(t, c)
	})
	r.bound(t, a.URL, 1)
	r.worker(t)
	for range len(answers) + 1 {
		r.send(t)
	}
	testdb.Eventually(t, "all have been called", func() bool { return int(calls.Load()) > len(answers) })
	testdb.Eventually(t, "all are gone", func() bool {
		r.Exec(t, `UPDATE messages SET due_at = now() WHERE lease <> '' AND holder = ''`) // of the one that was only answered
		r.Exec(t, `UPDATE messages SET due_at = now() WHERE last_error <> '' AND lease = '' AND awaits_since IS NULL`)
		return r.Count(t, `SELECT count(*) FROM messages`) == 0
	})
}

// TestTheBoundIsNoBusinessOfTheServersOwnWork: work that calls no function of the deployment needs no slot.
func TestTheBoundIsNoBusinessOfTheServersOwnWork(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.bound(t, "http://127.0.0.1:1", 1)
	for _, work := range []message.Work{message.WorkNone, message.WorkRun, message.WorkStep, message.WorkCancel} {
		r.Exec(t, `
			INSERT INTO messages (id, project, topic, deployment_id, run_id, work, content_type, body, expires_at,
				ticket, due_at)
			VALUES ('msg_' || $2, $1, '', $3, $2, $2, '', '', now() + interval '1 d', 1, now())`, project, work, deployment)
		ticket := tickets.Ticket{MessageID: "msg_" + string(work), Project: project, Number: firstTicket}
		_, ok, err := r.Claim(t.Context(), ticket, "rh_"+string(work), "", leaseTime)
		if want := work == message.WorkNone || work == message.WorkCancel; ok != want || err != nil {
			t.Errorf("claim work %q: got %v, %v; want %v", work, ok, err, want)
		}
	}
}

// TestARegistrationKeepsTheBound: apps repeat their registration at every start, and say nothing of the bound.
func TestARegistrationKeepsTheBound(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.bound(t, "http://127.0.0.1:1", 5)
	r.register(t, deployment, "http://127.0.0.1:2")
	if d, err := r.Deployment(t.Context(), project, deployment); err != nil || d.MaxConcurrent == nil || *d.MaxConcurrent != 5 {
		t.Errorf("got %v, %v; want a bound of 5", d.MaxConcurrent, err)
	}
	for _, wrong := range []struct {
		url string
		n   int
	}{{"http://127.0.0.1:1", -1}, {"http://127.0.0.1:1", 10_001}, {PulledURL, 1}} {
		_, err := r.Register(t.Context(), project, Deployment{ID: deployment, URL: wrong.url, MaxConcurrent: &wrong.n})
		testdb.WantError(t, fmt.Sprint(wrong), err, entities.ErrInvalid)
	}
	r.register(t, deployment, PulledURL)
	if d, err := r.Deployment(t.Context(), project, deployment); err != nil || d.MaxConcurrent != nil {
		t.Errorf("an app that asks: got %v, %v; want no bound", d.MaxConcurrent, err)
	}
}

// TestAParkedMessageBarsNobody: it keeps its slot in the line, but others go before it.
func TestAParkedMessageBarsNobody(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.bound(t, "http://127.0.0.1:1", 1)
	parked, next := r.send(t), r.send(t)
	r.Exec(t, `UPDATE messages SET parked_at = now(), awaits_since = now() WHERE id = $1`, parked)
	_, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: next, Project: project, Number: firstTicket}, "rh_1", "",
		time.Minute)
	if !ok || err != nil {
		t.Errorf("claim: got %v, %v", ok, err)
	}
}

// TestALeaseEndsTheWait, also one that was taken without a bound: during its backoff, the message bars nobody.
func TestALeaseEndsTheWait(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, deployment, "http://127.0.0.1:1")
	failed, next := r.send(t), r.send(t)
	r.Exec(t, `UPDATE messages SET awaits_since = now() WHERE id = $1`, failed)
	m, err := r.Receive(t.Context(), project, topic, failed, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r.bound(t, "http://127.0.0.1:1", 1)
	if err := r.Nack(t.Context(), project, topic, m.Lease, Failure{After: time.Hour, Reached: true}); err != nil {
		t.Fatal(err)
	}
	ticket := tickets.Ticket{MessageID: next, Project: project, Number: firstTicket}
	if _, ok, err := r.Claim(t.Context(), ticket, "rh_1", "", time.Minute); !ok || err != nil {
		t.Errorf("claim: got %v, %v", ok, err)
	}
}

// TestAMissedCheckIsMadeUpFor at every deployment with room, and what waits at a full one stays.
func TestAMissedCheckIsMadeUpFor(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for _, id := range []string{"a", "b", "full"} {
		one := 1
		if _, err := r.Register(t.Context(), project, Deployment{ID: id, URL: "http://127.0.0.1:1", MaxConcurrent: &one}); err != nil {
			t.Fatal(err)
		}
	}
	r.Exec(t, `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, ticket, due_at,
			lease, awaits_since)
		SELECT deployment || lease, $1, 't', deployment, '', '', '', now(), 1, `+gated+`, lease, CASE lease WHEN '' THEN now() END
		FROM (VALUES ('a', ''), ('b', ''), ('full', ''), ('full', 'rh_1')) AS v (deployment, lease)`, project)
	if err := r.bounds.CheckAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Want(t, "messages made due", 2, `SELECT count(*) FROM messages WHERE due_at <= now() AND id IN ('a', 'b')`)
	r.Want(t, "messages at the full one", 2, `SELECT count(*) FROM messages WHERE due_at = `+gated)
}

// TestCallsAreCountedFromAnIndex: a claim and the checks read nothing of other deployments.
func TestCallsAreCountedFromAnIndex(t *testing.T) {
	t.Parallel()
	const others = 5000
	dsn := testdb.Indexed(t)
	func() {
		r := withoutHints(t, dsn)
		defer r.pool.Close()
		r.bound(t, "http://127.0.0.1:1", 1)
		r.Exec(t, `
			INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, ticket, due_at,
				lease)
			SELECT 'msg_' || i, $1, 't', 'other', '', '', '', now(), 1, now() + interval '1 d',
				CASE WHEN i % 2 = 0 THEN 'rh_' || i ELSE '' END
			FROM generate_series(1, $2) i`, project, others)
		r.Exec(t, `ANALYZE messages`)
		for _, id := range []string{r.send(t), r.send(t)} {
			ticket := tickets.Ticket{MessageID: id, Project: project, Number: firstTicket}
			if _, _, err := r.Claim(t.Context(), ticket, "rh_"+id, "", time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.bounds.CheckAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	for index, n := range testdb.Read(t, dsn) {
		if n >= others/2 {
			t.Errorf("%d entries of index %s were read", n, index)
		}
	}
}
