package queue

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// rawApp starts a server that answers each connection's first request with the given bytes and closes it.
func rawApp(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// refusingAddress returns the address of a port without a listener.
func refusingAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

// failed waits until n deliveries of the message have failed, or more on a slow machine.
func (r *replica) failed(t testing.TB, id string, n int) stored {
	t.Helper()
	var s stored
	testdb.Eventually(t, fmt.Sprintf("delivery %d has failed", n), func() bool {
		s = r.stored(t, id)
		return s.DeliveryCount >= n && s.Lease == ""
	})
	return s
}

func TestFailedDeliveryRecordsItsReason(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	broken := newApp(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "half")
	})
	long := newApp(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	moved := newApp(t, func(w http.ResponseWriter, r *http.Request, _ call) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	for name, try := range map[string]struct{ url, reason string }{
		"500":          {newApp(t, status(500)).URL, "500 Internal Server Error"},
		"404":          {newApp(t, status(404)).URL, "404 Not Found"},
		"redirect":     {moved.URL, "307 Temporary Redirect"},
		"broken":       {broken.URL, "unexpected EOF"},
		"long answer":  {long.URL, strings.Repeat("x", maxReasonBody)},
		"hung up":      {rawApp(t, ""), "EOF"},
		"no HTTP":      {rawApp(t, "\x00\xff\xfe hello\r\n\r\n"), "malformed HTTP"},
		"odd body":     {rawApp(t, "HTTP/1.1 500 no\r\n\r\nb\x00o\xffdy"), `b\x00o\xffdy`},
		"odd status":   {rawApp(t, "HTTP/1.1 500 n\xffo\r\n\r\n"), "500 n\uFFFDo"},
		"hung up late": {rawApp(t, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"+strings.Repeat("y", 5000)), "EOF"},
	} {
		name = strings.ReplaceAll(name, " ", "_")
		r.register(t, name, try.url)
		id := r.send(t, func(m *message.Message) { m.DeploymentID = name })
		for n := 1; n <= 3; n++ {
			got := r.failed(t, id, n)
			if !strings.Contains(got.LastError, try.reason) || len(got.LastError) > 2000 {
				t.Errorf("%s: got last error %q, want it to contain %q", name, got.LastError, try.reason)
			}
			if most := firstBackoff << (got.DeliveryCount - 1); got.Wait > most || got.Wait < most/2-time.Second {
				t.Errorf("%s: after delivery %d due in %s, want about %s", name, n, got.Wait, most)
			}
			r.makeDue(t, id)
		}
	}
}

// TestUnreachableFunctionCountsNoDeliveries: an outage of the app must not park its messages, however long it is.
func TestUnreachableFunctionCountsNoDeliveries(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t, func(o *WorkerOptions) { o.MaxDeliveries = 1 })
	r.register(t, deployment, refusingAddress(t))
	id := r.send(t)
	for n := 1; n <= 12; n++ {
		var unreached int
		testdb.Eventually(t, "it failed once more", func() bool {
			r.Scan(t, `SELECT unreached_count FROM messages WHERE id = $1`, []any{id}, &unreached)
			return unreached >= n && r.stored(t, id).Lease == ""
		})
		got := r.stored(t, id)
		if got.DeliveryCount != 0 || got.Parked || !strings.Contains(got.LastError, "connection refused") {
			t.Fatalf("got %+v, want no delivery counted and the reason", got)
		}
		most := min(firstBackoff<<min(unreached-1, 20), unreachedBackoff)
		if got.Wait > most || got.Wait < most/2-time.Second {
			t.Errorf("after %d failures due in %s, want about %s", unreached, got.Wait, most)
		}
		r.makeDue(t, id)
	}
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	c := a.next(t)
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	r.ack(t, c)
}

// TestBurstOfFailuresDoesNotPark: a message is parked only if its failures span the window.
func TestBurstOfFailuresDoesNotPark(t *testing.T) {
	t.Parallel()
	a := newApp(t, status(http.StatusInternalServerError))
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t, func(o *WorkerOptions) { o.MaxDeliveries, o.FailureWindow = 2, time.Hour })
	id := r.send(t)
	for n := 1; n <= 5; n++ {
		if got := r.failed(t, id, n); got.Parked {
			t.Fatalf("parked after %d failures within the window", n)
		}
		r.makeDue(t, id)
	}
	r.failed(t, id, 6)
	r.Exec(t, `UPDATE messages SET first_failed_at = now() - interval '61 minutes' WHERE id = $1`, id)
	r.makeDue(t, id)
	testdb.Eventually(t, "it is parked", func() bool { return r.stored(t, id).Parked })
}

func TestFailureAfterAcknowledgementChangesNothing(t *testing.T) {
	t.Parallel()
	var r *replica
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		r.ack(t, c)
		w.WriteHeader(http.StatusInternalServerError)
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t)
	id := r.send(t)
	a.next(t)
	r.gone(t, id)
	r.fence(t, a, 2*firstBackoff)
}

func TestStaleFailureDoesNotTouchTheNewLease(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if c.count() == "1" {
			<-release
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r := start(t, a)
	r.ticketsOnly()
	id := r.send(t)
	a.next(t)
	r.makeDue(t, id) // the lease expires during the first delivery
	second := a.next(t)
	close(release)
	testdb.Eventually(t, "both tickets are done with", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'completed'`) == 2
	})
	got := r.stored(t, id)
	if got.Lease != second.handle() || got.DeliveryCount != 2 || strings.Contains(got.LastError, "500") {
		t.Errorf("got %+v, want the lease %s of delivery 2", got, second.handle())
	}
	r.ack(t, second)
}

func TestCallEndsWithItsLease(t *testing.T) {
	t.Parallel()
	a := newApp(t, func(_ http.ResponseWriter, r *http.Request, _ call) { <-r.Context().Done() }) // never answers
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	w := r.newWorker(t, func(o *WorkerOptions) { o.Deliveries, o.Grace = 1, 0 })
	w.lease = time.Second
	startWorker(t, w)
	// The only slot for deliveries becomes free each time, so both messages are delivered.
	first, second := r.send(t), r.send(t)
	seen := map[string]int{}
	for seen[first] == 0 || seen[second] == 0 || seen[first]+seen[second] < 3 {
		seen[a.next(t).id()]++
	}
}

func TestExtendedCallOutlastsItsFirstLease(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	over := make(chan error, 2)
	a := newApp(t, func(_ http.ResponseWriter, r *http.Request, _ call) {
		select {
		case <-release:
			over <- nil
		case <-r.Context().Done():
			over <- r.Context().Err()
		}
	})
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	w := r.newWorker(t, func(o *WorkerOptions) { o.Deliveries, o.Grace = 10, 0 })
	w.lease = time.Second
	startWorker(t, w)
	r.send(t)
	kept := a.next(t)
	if err := r.SetVisibility(t.Context(), project, topic, kept.handle(), time.Hour); err != nil {
		t.Fatal(err)
	}
	// A second call that starts later and is not extended is canceled: so the first has outlasted its initial lease.
	r.send(t)
	a.next(t)
	if err := testdb.Receive(t, "the end of the second call", over); err == nil {
		t.Error("the second call was answered, want it canceled")
	}
	close(release)
	if err := testdb.Receive(t, "the end of the first call", over); err != nil {
		t.Errorf("the first call was canceled: %v", err)
	}
	r.ack(t, kept)
}

func TestStorable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ü": "plain ü", "": "", "a\x00b": "a\uFFFDb", "a\xff\xfeb": "a\uFFFDb", "\x00\xff": "\uFFFD\uFFFD",
	} {
		if got := Storable(in); got != want || !utf8.ValidString(got) {
			t.Errorf("Storable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMessageWaitsForItsDeployment(t *testing.T) {
	t.Parallel()
	var l testdb.Log
	r := open(t, testdb.New(t))
	r.worker(t, func(o *WorkerOptions) {
		o.MaxDeliveries = 1 // attempts without a request must not count
		o.Logger = slog.New(slog.NewTextHandler(&l, nil))
	})
	id := r.send(t)
	var got stored
	waits := func() bool {
		got = r.stored(t, id)
		return got.LastError != "" && got.Lease == "" && got.Wait > unreachedBackoff/2
	}
	for range 3 {
		testdb.Eventually(t, "it waits", waits)
		if got.DeliveryCount != 0 || got.Parked || !strings.Contains(got.LastError, deployment) {
			t.Errorf("got %+v, want it to wait uncounted, with %s in the error", got, deployment)
		}
		r.makeDue(t, id)
	}
	testdb.Eventually(t, "it waits", waits)
	if !l.Contains("level=WARN") || !l.Contains(id) || !l.Contains(deployment) {
		t.Errorf("got no warning about %s", id)
	}
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	c := a.next(t) // far sooner than unreachedBackoff
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	r.ack(t, c)
}

func TestMessageIsParkedAfterTooManyDeliveries(t *testing.T) {
	t.Parallel()
	var r *replica
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if string(c.Body) == "poison" {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "cannot digest")
			return
		}
		r.ack(t, c)
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t, func(o *WorkerOptions) { o.MaxDeliveries = 3 })
	poison := r.send(t, body("poison"))
	for n := 1; n <= 3; n++ {
		sibling := r.send(t)
		r.failed(t, poison, n)
		r.gone(t, sibling)
		r.makeDue(t, poison)
	}
	testdb.Eventually(t, "it is parked", func() bool { return r.stored(t, poison).Parked })
	got := r.stored(t, poison)
	if got.DeliveryCount != 3 || got.Lease != "" || !strings.Contains(got.LastError, "cannot digest") {
		t.Errorf("got %+v, want 3 deliveries and the last one's error", got)
	}
	r.Exec(t, `UPDATE messages SET due_at = now() WHERE id = $1`, poison)
	r.gone(t, r.send(t, delayed(10*time.Millisecond))) // so the worker has polled since
	poisoned := 0
	for len(a.calls) > 0 {
		if string((<-a.calls).Body) == "poison" {
			poisoned++
		}
	}
	if poisoned != 3 {
		t.Errorf("got %d deliveries, want 3", poisoned)
	}
}

// TestStepsOfRunsWithAFenceAreNotParked: their app counts the attempts in the log of the run, and gives them up there.
func TestStepsOfRunsWithAFenceAreNotParked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version int
		topic   func(entities.RunID) string
		parked  bool
	}{
		"a step":                 {entities.SpecFence, func(id entities.RunID) string { return topic + "_" + string(id) + "_step_1" }, false},
		"a step, in their topic": {entities.SpecFence, func(entities.RunID) string { return "__wkf_step_a" }, false},
		"an orchestrator":        {entities.SpecFence, func(id entities.RunID) string { return topic + "_" + string(id) }, true},
		"a step without a fence": {entities.SpecTakeover, func(entities.RunID) string { return "__wkf_step_a" }, true},
		"a step of no run":       {0, func(entities.RunID) string { return "__wkf_step_a" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			run := entities.NewRunID(time.Now())
			if tt.version > 0 {
				run = r.run(t, tt.version)
			}
			id := r.send(t, of(run), func(m *message.Message) { m.Topic = tt.topic(run) })
			r.Exec(t, `UPDATE messages SET delivery_count = 1000, first_failed_at = now() - interval '1 year', due_at = now()`)
			r.issue(t)
			if got := r.stored(t, id); got.Parked != tt.parked {
				t.Errorf("got %+v, want it parked: %t", got, tt.parked)
			}
		})
	}
}

func TestLostTicketIsReplaced(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	a := newApp(t, nil)
	r := withoutHints(t, dsn)
	r.register(t, deployment, a.URL)
	id := r.send(t)
	r.issue(t)
	if got := r.stored(t, id).Wait; got <= 0 || got > ticketTime {
		t.Errorf("the ticket counts as lost in %s, want within %s", got, ticketTime)
	}
	r.Exec(t, `DELETE FROM river_job`)
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	open(t, dsn).worker(t)
	c := a.next(t)
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	r.ack(t, c)
}

func TestUsedTicketDoesNothing(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	r.ticketsOnly()
	id := r.send(t)
	c := a.next(t)
	r.Exec(t, `UPDATE messages SET lease = '', due_at = now() + interval '1 h', last_error = 'x' WHERE id = $1`, id)
	before := r.stored(t, id)
	r.Exec(t, `
		INSERT INTO river_job (args, kind, max_attempts, queue, state)
		SELECT args, kind, max_attempts, queue, 'available' FROM river_job, generate_series(1, 10)`)
	testdb.Eventually(t, "the tickets are used", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'completed'`) == 11
	})
	after := r.stored(t, id)
	before.Wait, after.Wait = 0, 0
	if after != before {
		t.Errorf("got %+v after used tickets, want %+v", after, before)
	}
	if len(a.calls) > 0 {
		t.Errorf("got %d calls after %s, want none", len(a.calls), c.handle())
	}
}

func TestWaitingTicketStaysGoodWhenItCountsAsLost(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	id := r.send(t)
	r.issue(t)
	r.Exec(t, `UPDATE river_job SET scheduled_at = now() - interval '10 min'`) // a long queue
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	w := r.newWorker(t)
	if _, err := w.issueDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Want(t, "tickets", 2, `SELECT count(*) FROM river_job`)
	if got := r.stored(t, id); got.Wait < 20*time.Minute || got.DeliveryCount != 0 || got.Parked {
		t.Errorf("got %+v, want the next ticket after twice the time others wait", got)
	}
	r.registerProcess(t, "proc_1")
	if _, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Number: firstTicket}, "rh_1", "proc_1", leaseTime); !ok || err != nil {
		t.Errorf("claim with the ticket that waited: got %v, %v; want true", ok, err)
	}
}
