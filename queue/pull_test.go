package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/world"
)

var testApp = world.App{Project: project, Deployment: deployment}

// poll asks for deliveries, and sends each answer that is not empty to the channel until the context ends.
func (r *replica) poll(ctx context.Context, t testing.TB, slots int, got chan<- []Delivery) {
	t.Helper()
	for ctx.Err() == nil {
		list, err := r.Pull(ctx, testApp, slots)
		if err != nil && ctx.Err() == nil {
			t.Errorf("pull: %v", err)
			return
		}
		if len(list) > slots {
			t.Errorf("got %d deliveries for %d slots", len(list), slots)
		}
		if len(list) > 0 {
			got <- list
		}
		for _, d := range list {
			d.Taken()
		}
	}
}

// pulls starts to ask for deliveries until the test ends.
func (r *replica) pulls(t testing.TB) <-chan []Delivery {
	t.Helper()
	got := make(chan []Delivery, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.poll(ctx, t, 10, got) })
	t.Cleanup(func() { cancel(); running.Wait() })
	testdb.Eventually(t, "the app is registered", func() bool {
		return r.Count(t, `SELECT count(*) FROM deployments WHERE id = $1 AND url = $2 AND answered_at IS NOT NULL`,
			deployment, PulledURL) == 1
	})
	return got
}

func (r *replica) ackPulled(t testing.TB, d Delivery) {
	t.Helper()
	if err := r.Acknowledge(context.Background(), project, d.Topic, d.Lease); err != nil {
		t.Errorf("acknowledge %s: %v", d.ID, err)
	}
}

// TestPulledDeliveries: a message reaches the app that asks, whichever process it asks, whenever it comes. Its lease is
// not that of a process, and an acknowledgement ends it.
func TestPulledDeliveries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		asked  func(*testing.T, *replica) *replica
		before bool // the message is there before the app
	}{
		{"the process that delivers", func(_ *testing.T, r *replica) *replica { return r }, false},
		{"the process that delivers, late", func(_ *testing.T, r *replica) *replica { return r }, true},
		{"another process", func(t *testing.T, r *replica) *replica { return open(t, r.pool.Config().ConnString()) }, false},
		{"another process, late", func(t *testing.T, r *replica) *replica { return open(t, r.pool.Config().ConnString()) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := open(t, testdb.New(t))
			r.worker(t)
			asked := tt.asked(t, r)
			var id string
			if tt.before {
				id = r.send(t)
				testdb.Eventually(t, "the message waits for its deployment", func() bool { return r.stored(t, id).LastError != "" })
			}
			got := asked.pulls(t)
			if !tt.before {
				id = r.send(t)
			}
			list := testdb.Receive(t, "a delivery", got)
			if len(list) != 1 || list[0].ID != id || string(list[0].Body) != "body" || list[0].DeliveryCount != 1 {
				t.Fatalf("got %+v, want the first delivery of %s", list, id)
			}
			s := r.stored(t, id)
			if s.Lease != list[0].Lease || s.Wait > PulledLease {
				t.Errorf("got lease %q for %s, want %q for at most %s", s.Lease, s.Wait, list[0].Lease, PulledLease)
			}
			if n := r.Count(t, `SELECT count(*) FROM messages WHERE holder <> ''`); n > 0 {
				t.Error("a process holds the lease, and not the app")
			}
			asked.ackPulled(t, list[0])
			r.gone(t, id)
		})
	}
}

// TestPullersRace: several polls at two processes and a worker at each. Each message has one delivery, of one poll.
func TestPullersRace(t *testing.T) {
	t.Parallel()
	const messages, pollers = 200, 4
	dsn := testdb.New(t)
	replicas := []*replica{open(t, dsn), open(t, dsn)}
	got := make(chan []Delivery, messages)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range replicas {
		r.worker(t)
		for range pollers {
			running.Go(func() { r.poll(ctx, t, 5, got) })
		}
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range messages {
		running.Go(func() {
			if _, err := replicas[i%2].Send(ctx, newMessage(keyed(fmt.Sprint(i)))); err != nil {
				t.Errorf("send: %v", err)
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < messages {
		for _, d := range testdb.Receive(t, "deliveries", got) {
			seen[d.ID]++
			if seen[d.ID] > 1 || d.DeliveryCount != 1 {
				t.Errorf("delivery %d of %s, which counts as %d", seen[d.ID], d.ID, d.DeliveryCount)
			}
			replicas[len(seen)%2].ackPulled(t, d)
		}
	}
	testdb.Eventually(t, "no message is left", func() bool { return replicas[0].Count(t, `SELECT count(*) FROM messages`) == 0 })
}

// TestPulledLeaseEndsWithItsApp: a lease that the app renews lasts; otherwise the message is delivered again.
func TestPulledLeaseEndsWithItsApp(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	got := r.pulls(t)
	id := r.send(t)
	first := testdb.Receive(t, "a delivery", got)[0]
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '10 s' WHERE id = $1`, id)
	others := world.App{Project: project, Deployment: "dpl_other"}
	if err := r.Renew(t.Context(), others, []string{first.Lease}); err != nil {
		t.Fatal(err)
	}
	if left := r.stored(t, id).Wait; left > 10*time.Second {
		t.Errorf("another app has renewed the lease: %s are left", left)
	}
	if err := r.Renew(t.Context(), testApp, []string{"rh_none", first.Lease}); err != nil {
		t.Fatal(err)
	}
	if left := r.stored(t, id).Wait; left < PulledLease/2 {
		t.Errorf("%s are left of the lease after its renewal", left)
	}
	r.makeDue(t, id) // the app has died
	second := testdb.Receive(t, "another delivery", got)[0]
	if second.ID != id || second.DeliveryCount != 2 || second.Lease == first.Lease {
		t.Errorf("got %+v, want the second delivery of %s", second, id)
	}
	if err := r.Renew(t.Context(), testApp, []string{first.Lease}); err != nil {
		t.Fatal(err)
	}
	testdb.WantError(t, "acknowledge the first", r.Acknowledge(t.Context(), project, first.Topic, first.Lease), message.ErrLeaseNotFound)
	r.ackPulled(t, second)
	r.gone(t, id)
}

// TestPulledMessageFails: an app that fails gets the message again after its backoff.
func TestPulledMessageFails(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	got := r.pulls(t)
	id := r.send(t)
	first := testdb.Receive(t, "a delivery", got)[0]
	f := Failure{Reason: "the app failed: no", Public: "the app failed", Reached: true, After: time.Hour}
	if err := r.Nack(t.Context(), project, first.Topic, first.Lease, f); err != nil {
		t.Fatal(err)
	}
	if s := r.stored(t, id); s.LastError != f.Reason || s.DeliveryCount != 1 || s.Wait < f.After/2 {
		t.Errorf("got %+v, want the failure and a backoff of an hour", s)
	}
	r.makeDue(t, id)
	if second := testdb.Receive(t, "another delivery", got)[0]; second.DeliveryCount != 2 {
		t.Errorf("got delivery %d, want 2", second.DeliveryCount)
	}
}

// TestGivenBackMessageIsDeliveredAgain: what an app did not get does not count.
func TestGivenBackMessageIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	got := r.pulls(t)
	id := r.send(t)
	lost := testdb.Receive(t, "a delivery", got)
	if err := r.GiveBack(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	again := testdb.Receive(t, "another delivery", got)[0]
	if again.ID != id || again.DeliveryCount != 1 || again.Lease == lost[0].Lease {
		t.Errorf("got %+v, want the first delivery of %s", again, id)
	}
}

// TestURLComesBeforePolls: an app that is registered at a URL gets its deliveries there. Moving it there or to its
// polls moves what waits.
func TestURLComesBeforePolls(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	_, err := r.Pull(t.Context(), testApp, 1)
	testdb.WantError(t, "pull", err, message.ErrHasURL)

	r.register(t, deployment, PulledURL)
	id := r.send(t)
	testdb.Eventually(t, "the message waits for a poll", func() bool { return r.stored(t, id).LastError != "" })
	r.register(t, deployment, a.URL)
	if c := a.next(t); c.id() != id {
		t.Errorf("got message %s, want %s", c.id(), id)
	}
	if list, err := r.claimGivenBack(t.Context(), testApp, 1); len(list) > 0 || err != nil {
		t.Errorf("a poll claimed %+v, %v from an app with a URL", list, err)
	}
}

// TestMessageSaysThatNoAppAsks: and since when, as soon as that is no moment.
func TestMessageSaysThatNoAppAsks(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	r.register(t, deployment, PulledURL)
	r.Exec(t, `UPDATE deployments SET answered_at = '2026-11-20T10:00:00Z'`)
	id := r.send(t)
	for _, want := range []string{
		"no app asks for deliveries of deployment dpl_test: start it",
		"no app asks for deliveries of deployment dpl_test since 2026-11-20T10:00:00Z: start it",
	} {
		testdb.Eventually(t, want, func() bool { return r.stored(t, id).LastError == want })
		if s := r.stored(t, id); s.DeliveryCount != 0 || s.Wait < unreachedBackoff/2 {
			t.Errorf("got %+v, want a wait that does not count", s)
		}
		r.makeDue(t, id)
	}
}

// TestPollIsBounded: a poll gets no more than it has slots for, and no more bytes than one answer may have, unless a
// single message is larger.
func TestPollIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.register(t, deployment, PulledURL)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = r.send(t)
	}
	for i, mib := range []int{9, 5, 5, 1, 0, 0} {
		r.Exec(t, `UPDATE messages SET unreached_count = 1, due_at = now() + $2 * interval '1 s',
			body = decode(repeat('00', $3), 'hex') WHERE id = $1`, ids[i], i, mib<<20)
	}
	for _, tt := range []struct{ slots, want int }{{6, 1}, {6, 1}, {2, 2}, {6, 2}} {
		list, err := r.Pull(t.Context(), testApp, tt.slots)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != tt.want {
			t.Fatalf("got %d messages for %d slots, want %d", len(list), tt.slots, tt.want)
		}
		for i := range list {
			if !slices.ContainsFunc(list, func(d Delivery) bool { return d.ID == ids[i] }) {
				t.Errorf("message %s is not among the first %d", ids[i], tt.want)
			}
		}
		ids = ids[tt.want:]
	}
}

// TestBodyOfPollIsCounted: while the answer of a poll is written, its bodies take memory, and others wait for it.
func TestBodyOfPollIsCounted(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	w := r.newWorker(t, func(o *WorkerOptions) { o.BodyMemory = 1 << 20 })
	startWorker(t, w)
	got := make(chan []Delivery)
	go func() {
		list, err := r.Pull(t.Context(), testApp, 10)
		if err != nil {
			t.Errorf("pull: %v", err)
		}
		got <- list
	}()
	var give func(*Delivery) // keeps the poll waiting
	testdb.Eventually(t, "the poll waits", func() bool { give = r.polls.Reserve(testApp); return give != nil })
	id := r.send(t, body(strings.Repeat("x", 1<<20)))
	testdb.Eventually(t, "the app has the lease", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE lease <> '' AND holder = ''`) == 1
	})
	give(nil)
	list := testdb.Receive(t, "a delivery", got)
	if len(list) != 1 || list[0].ID != id {
		t.Fatalf("got %+v, want %s", list, id)
	}
	if _, ok := w.memory.try(project, 1<<20); ok {
		t.Error("the memory of a body is free before its poll is answered")
	}
	list[0].Taken()
	testdb.Eventually(t, "the memory is free", func() bool {
		free, ok := w.memory.try(project, 1<<20)
		if ok {
			free()
		}
		return ok
	})
}

// TestPollsOfOthersGetNothing: neither another project nor another deployment gets the message.
func TestPollsOfOthersGetNothing(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	r.register(t, deployment, PulledURL)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, app := range []world.App{{Project: "other", Deployment: deployment}, {Project: project, Deployment: "other"}} {
		running.Go(func() {
			if list, err := r.Pull(ctx, app, 10); len(list) > 0 || err != nil {
				t.Errorf("%v: got %+v, %v", app, list, err)
			}
		})
	}
	testdb.Eventually(t, "both wait", func() bool { return r.Count(t, `SELECT count(*) FROM deployments`) == 3 })
	id := r.send(t)
	testdb.Eventually(t, "the message waits for a poll", func() bool { return r.stored(t, id).LastError != "" })
	cancel()
	running.Wait()
	if list, err := r.Pull(t.Context(), testApp, 10); len(list) != 1 || err != nil {
		t.Errorf("its own app got %+v, %v", list, err)
	}
}
