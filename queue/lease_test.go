package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

func TestOnlyTheCurrentHandleIsAccepted(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t)
	stale := a.next(t).handle()
	r.makeDue(t, id)
	handle := a.next(t).handle()
	other := r.send(t, func(m *message.Message) { m.Topic, m.DeploymentID = "other", "unregistered" })

	before := r.stored(t, id)
	for name, try := range map[string]struct {
		project entities.Project
		topic   string
		handle  string
	}{
		"stale":           {project, topic, stale},
		"unknown":         {project, topic, "rh_unknown"},
		"empty":           {project, topic, ""},
		"empty, other":    {project, "other", ""},
		"foreign project": {"other", topic, handle},
		"wrong topic":     {project, "other", handle},
		"message ID":      {project, topic, id},
	} {
		testdb.WantError(t, "acknowledge with handle: "+name,
			r.Acknowledge(t.Context(), try.project, try.topic, try.handle), message.ErrLeaseNotFound)
		testdb.WantError(t, "extend with handle: "+name,
			r.SetVisibility(t.Context(), try.project, try.topic, try.handle, maxVisibility), message.ErrLeaseNotFound)
	}
	after := r.stored(t, id)
	if after.Lease != before.Lease || after.Wait > before.Wait {
		t.Errorf("got %+v after wrong handles, want %+v", after, before)
	}
	r.stored(t, other)
}

// TestReleasedHandleIsInvalid: a request whose transaction started before the release, but executes after it, fails
// too.
func TestReleasedHandleIsInvalid(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := withoutHints(t, dsn)
	// On this connection, transactions start before their statement is sent, so their now() is in the past.
	late := withoutHints(t, dsn, func(c *pgxpool.Config) {
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			_, err := conn.Exec(ctx, `BEGIN; SELECT FROM messages`)
			if err == nil {
				_, err = r.pool.Exec(ctx, `UPDATE messages SET due_at = now()`)
			}
			return true, err
		}
	})
	r.registerProcess(t, "proc_1")
	ticket := tickets.Ticket{MessageID: r.send(t), Number: firstTicket}
	d, ok, err := r.Claim(t.Context(), ticket, "rh_1", "proc_1", leaseTime)
	if err != nil || !ok {
		t.Fatalf("claim: got %v, %v", ok, err)
	}
	testdb.WantError(t, "extend", late.SetVisibility(t.Context(), project, topic, d.Lease, time.Minute), message.ErrLeaseNotFound)
	testdb.WantError(t, "acknowledge", late.Acknowledge(t.Context(), project, topic, d.Lease), message.ErrLeaseNotFound)
}

func TestSetVisibilityBounds(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for _, d := range []time.Duration{-1, maxVisibility + 1} {
		testdb.WantError(t, d.String(), r.SetVisibility(t.Context(), project, topic, "rh_1", d), entities.ErrInvalid)
	}
	for _, d := range []time.Duration{0, maxVisibility} {
		testdb.WantError(t, d.String(), r.SetVisibility(t.Context(), project, topic, "rh_1", d), message.ErrLeaseNotFound)
	}
}

// fence sends a message with delay d and waits for its delivery, which must come before any other.
func (r *replica) fence(t testing.TB, a *app, d time.Duration) {
	t.Helper()
	id := r.send(t, delayed(d))
	if c := a.next(t); c.id() != id {
		t.Errorf("got delivery %s of %s, want none before %s", c.count(), c.id(), id)
	}
}

func TestExtendedLeaseIsNotRedelivered(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t)
	c := a.next(t)
	// The lease would expire soon, but is extended.
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '2 s' WHERE id = $1`, id)
	if err := r.SetVisibility(t.Context(), project, topic, c.handle(), time.Hour); err != nil {
		t.Fatal(err)
	}
	r.fence(t, a, 2*time.Second)
	got := r.stored(t, id)
	if got.Lease != c.handle() || got.DeliveryCount != 1 || got.Wait < 50*time.Minute {
		t.Errorf("got %+v, want the lease %s of delivery 1 for an hour", got, c.handle())
	}
	r.ack(t, c)
}

func TestSetVisibilityOfZeroReleasesTheMessage(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	for _, d := range []time.Duration{0, 700 * time.Millisecond} {
		id := r.send(t)
		first := a.next(t)
		if err := r.SetVisibility(t.Context(), project, topic, first.handle(), d); err != nil {
			t.Fatal(err)
		}
		var given time.Time
		r.Scan(t, `SELECT due_at FROM messages WHERE id = $1`, []any{id}, &given)
		second := a.next(t)
		if second.id() != id || second.count() != "2" {
			t.Errorf("%s: got delivery %s of %s, want 2 of %s", d, second.count(), second.id(), id)
		}
		// The deadline that the second delivery got is shownLease after its claim.
		deadline, err := time.Parse(time.RFC3339, second.Header.Get("Ce-Vqsvisibilitydeadline"))
		if err != nil {
			t.Fatal(err)
		}
		if claimed := deadline.Add(-shownLease); d > 0 && claimed.Before(given.Truncate(time.Millisecond)) {
			t.Errorf("%s: released until %s, but delivered at %s", d, given, claimed)
		}
		testdb.WantError(t, "old handle", r.Acknowledge(t.Context(), project, topic, first.handle()), message.ErrLeaseNotFound)
		r.ack(t, second)
	}
}

// TestAnswerAloneDoesNotAcknowledge: an answer shortens the lease, to a time that grows with the number of deliveries.
func TestAnswerAloneDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusOK, http.StatusNoContent} {
		a := newApp(t, status(code))
		r := start(t, a)
		r.ticketsOnly()
		id := r.send(t)
		for n, most := range []time.Duration{answeredLease, 128 * time.Second, leaseTime} {
			c := a.next(t)
			r.ticketsDone(t, id, n+1)
			got := r.stored(t, id)
			if got.Lease != c.handle() || got.Wait > most || got.Wait < most/2 || n == 0 && got.LastError != "" {
				t.Errorf("status %d: got %+v, want the message leased to %s for %s", code, got, c.handle(), most)
			}
			if n == 2 {
				r.ack(t, c)
				break
			}
			r.Exec(t, `UPDATE messages SET delivery_count = $2 WHERE id = $1`, id, []int{7, 12}[n])
			r.makeDue(t, id)
		}
		r.gone(t, id)
	}
}

// TestAnswerKeepsTheLeaseTheFunctionSet: the answer does not shorten a lease whose time the function has set.
func TestAnswerKeepsTheLeaseTheFunctionSet(t *testing.T) {
	t.Parallel()
	var r *replica
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		if err := r.SetVisibility(context.Background(), project, topic, c.handle(), time.Minute); err != nil {
			t.Error(err)
		}
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t)
	r.ticketsOnly()
	id := r.send(t)
	c := a.next(t)
	r.ticketsDone(t, id, 1)
	if got := r.stored(t, id); got.Lease != c.handle() || got.Wait < time.Minute/2 {
		t.Errorf("got %+v, want the message leased to %s for a minute", got, c.handle())
	}
}

// ticketsDone waits until n of the message's tickets have been used.
func (r *replica) ticketsDone(t testing.TB, id string, n int) {
	t.Helper()
	testdb.Eventually(t, fmt.Sprintf("%d tickets are done with", n), func() bool {
		return r.Count(t, `
			SELECT count(*) FROM river_job WHERE args->>'message' = $1 AND state = 'completed'`, id) == n
	})
}

// TestRacersForOneTicketClaimOnce: of processes that use one ticket, and clients that ask for the message by its ID, one
// gets it.
func TestRacersForOneTicketClaimOnce(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.registerProcess(t, "proc_1")
	for range 5 {
		id := r.send(t)
		ticket := tickets.Ticket{MessageID: id, Number: firstTicket}
		won := race(16, func(i int) string {
			if i%4 == 3 {
				d, err := r.Receive(context.Background(), project, topic, id, time.Minute)
				if err != nil && !errors.Is(err, entities.ErrConflict) {
					t.Error(err)
				}
				return d.Lease
			}
			d, _, err := r.Claim(context.Background(), ticket, fmt.Sprint(id, i), "proc_1", leaseTime)
			if err != nil {
				t.Error(err)
			}
			return d.Lease
		})
		handles := slices.DeleteFunc(won, func(handle string) bool { return handle == "" })
		got := r.stored(t, id)
		if len(handles) != 1 || got.Lease != handles[0] || got.DeliveryCount != 1 {
			t.Errorf("got winners %v and %+v, want one winner and one delivery", handles, got)
		}
	}
}

func TestClaimNeedsTheNewestTicket(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.registerProcess(t, "proc_1")
	parked, leased, fresh, later := r.send(t), r.send(t), r.send(t), r.send(t, delayed(time.Hour))
	r.Exec(t, `UPDATE messages SET parked_at = now() WHERE id = $1`, parked)
	r.Exec(t, `UPDATE messages SET lease = 'rh_other' WHERE id = $1`, leased)
	r.Exec(t, `UPDATE messages SET ticket = 7 WHERE id = $1`, fresh)
	for name, ticket := range map[string]tickets.Ticket{
		"parked":          {MessageID: parked, Number: 1},
		"leased":          {MessageID: leased, Number: 1},
		"stale ticket":    {MessageID: fresh, Number: 6},
		"future ticket":   {MessageID: fresh, Number: 8},
		"delayed":         {MessageID: later, Number: 1},
		"unknown message": {MessageID: "msg_unknown", Number: 1},
	} {
		if _, ok, err := r.Claim(t.Context(), ticket, "rh_1", "proc_1", leaseTime); ok || err != nil {
			t.Errorf("%s: claim got %v, %v; want false", name, ok, err)
		}
	}
	if _, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: fresh, Number: 7}, "rh_1", "proc_1", leaseTime); !ok || err != nil {
		t.Errorf("newest ticket: claim got %v, %v; want true", ok, err)
	}
}

// overlaps checks that no message is processed twice at the same time.
type overlaps struct {
	mu     sync.Mutex
	active map[string]bool
	seen   map[string]int
}

func (o *overlaps) enter(t testing.TB, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.active[id] {
		t.Errorf("message %s is delivered twice at the same time", id)
	}
	o.active[id] = true
	o.seen[id]++
}

func (o *overlaps) leave(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active[id] = false
}

func TestReplicasDeliverEachMessageOnce(t *testing.T) {
	t.Parallel()
	const messages = 300
	dsn := testdb.New(t)
	first, second := open(t, dsn), open(t, dsn)
	o := &overlaps{active: map[string]bool{}, seen: map[string]int{}}
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		o.enter(t, c.id())
		// More tickets for all messages, as if a timer counted all tickets as lost.
		if rand.N(3) == 0 {
			if _, err := first.pool.Exec(context.Background(), `
				UPDATE messages SET due_at = now() WHERE id IN (
					SELECT id FROM messages WHERE lease = '' FOR UPDATE SKIP LOCKED)`); err != nil {
				t.Error(err)
			}
			first.hub.Publish(timerTopic)
		}
		o.leave(c.id())
		second.ack(t, c)
	})
	first.register(t, deployment, a.URL)
	var sent []string
	for range messages {
		sent = append(sent, first.send(t))
	}
	first.Exec(t, `
		INSERT INTO river_job (args, kind, max_attempts, queue, state)
		SELECT args, kind, max_attempts, queue, 'available' FROM river_job ORDER BY random()`)
	first.worker(t)
	second.worker(t)
	testdb.Eventually(t, "all messages are acknowledged", func() bool {
		return first.Count(t, `SELECT count(*) FROM messages`) == 0
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range sent {
		if o.seen[id] != 1 {
			t.Errorf("message %s was delivered %d times, want once", id, o.seen[id])
		}
	}
}

func TestReceiveLeasesAMessage(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.registerProcess(t, "proc_1")
	id := r.send(t, body("pulled"))
	m, err := r.Receive(t.Context(), project, topic, id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != id || string(m.Body) != "pulled" || m.ContentType != "application/cbor" || m.DeliveryCount != 1 {
		t.Errorf("got %+v, want delivery 1 of %s", m, id)
	}
	if got := r.stored(t, id); got.Lease != m.Lease || got.Wait > time.Minute {
		t.Errorf("got %+v, want the lease %s for a minute", got, m.Lease)
	}
	if _, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Number: firstTicket}, "rh_1", "proc_1", leaseTime); ok || err != nil {
		t.Errorf("claim with the earlier ticket: got %v, %v; want false", ok, err)
	}
	if err := r.Acknowledge(t.Context(), project, topic, m.Lease); err != nil {
		t.Error(err)
	}
}

func TestReceiveFails(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	ready, leased, parked, later := r.send(t), r.send(t), r.send(t), r.send(t, delayed(time.Hour))
	r.Exec(t, `UPDATE messages SET parked_at = now() WHERE id = $1`, parked)
	if _, err := r.Receive(t.Context(), project, topic, leased, time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		project entities.Project
		topic   string
		id      string
		lease   time.Duration
		want    error
	}{
		"leased":          {project, topic, leased, time.Minute, entities.ErrConflict},
		"parked":          {project, topic, parked, time.Minute, entities.ErrConflict},
		"delayed":         {project, topic, later, time.Minute, entities.ErrConflict},
		"unknown":         {project, topic, "msg_unknown", time.Minute, message.ErrMessageNotFound},
		"foreign project": {"other", topic, ready, time.Minute, message.ErrMessageNotFound},
		"wrong topic":     {project, "other", ready, time.Minute, message.ErrMessageNotFound},
		"no time":         {project, topic, ready, 0, entities.ErrInvalid},
		"too long":        {project, topic, ready, maxVisibility + 1, entities.ErrInvalid},
	} {
		_, err := r.Receive(t.Context(), try.project, try.topic, try.id, try.lease)
		testdb.WantError(t, name, err, try.want)
	}
}

// TestExpiredLeaseIsAFailure: the call reached the function, so the count of consecutive unreached attempts restarts, and
// a message that has failed often is parked.
func TestExpiredLeaseIsAFailure(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	reached, often, lost := r.claimed(t, ""), r.claimed(t, ""), r.send(t)
	r.Exec(t, `UPDATE messages SET unreached_count = 5, due_at = now()`)
	r.Exec(t, `UPDATE messages SET delivery_count = 1000, first_failed_at = now() WHERE id = $1`, often.ID)
	r.issue(t)
	for id, want := range map[string]int{reached.ID: 0, often.ID: 0, lost: 5} {
		if got := r.Count(t, `SELECT unreached_count FROM messages WHERE id = $1`, id); got != want {
			t.Errorf("message %s: got %d times not reached in a row, want %d", id, got, want)
		}
	}
	if got := r.stored(t, often.ID); !got.Parked || got.LastError != notAcknowledged || got.Lease != "" {
		t.Errorf("got %+v, want it parked with the error %q", got, notAcknowledged)
	}
	if got := r.stored(t, reached.ID); got.Parked || got.LastError != notAcknowledged || got.Lease != "" {
		t.Errorf("got %+v, want the error %q", got, notAcknowledged)
	}
}
