package queue

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// of sets the run of a message.
func of(id entities.RunID) func(*message.Message) { return func(m *message.Message) { m.RunID = id } }

// run creates a run with the given protocol version.
func (r *replica) run(t *testing.T, version int) entities.RunID {
	t.Helper()
	id := entities.NewRunID(time.Now())
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at)
		VALUES ($1, $2, $3, 'order', 'running', $4, 1, 0, now(), now())`, id, project, deployment, version)
	return id
}

// withoutTimeLimits disables the time limits of the serializer.
func (w *deliverer) withoutTimeLimits() {
	w.serializer.mu.Lock()
	defer w.serializer.mu.Unlock()
	w.serializer.hold, w.serializer.maxWait = time.Hour, time.Hour
}

// holding starts an app whose calls wait until letGo receives an item for each, and then acknowledge. Those that are
// left end with the test, so that one that fails ends too.
func holding(t *testing.T, r *replica) (a *app, letGo chan struct{}) {
	t.Helper()
	letGo = make(chan struct{})
	return newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		select {
		case <-letGo:
			r.ack(t, c)
		case <-t.Context().Done():
		}
	}), letGo
}

// leased waits until n messages are leased.
func (r *replica) leased(t *testing.T, n int) {
	t.Helper()
	testdb.Eventually(t, "messages are leased", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE lease <> ''`) == n
	})
}

// state returns the numbers of waiting messages and of run queues.
func (s *serializer) state() (waiting, queues int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting, len(s.runs)
}

// waitUntilWaiting waits until n messages wait in the serializer.
func (w *deliverer) waitUntilWaiting(t *testing.T, n int) {
	t.Helper()
	testdb.Eventually(t, "messages wait in the serializer", func() bool {
		waiting, _ := w.serializer.state()
		return waiting == n
	})
}

// TestWakeUpsOfARunAreSerialized covers all ways in which a delivery starts. Each message is delivered and acknowledged
// once.
func TestWakeUpsOfARunAreSerialized(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, *replica) *deliverer{
		"direct":  func(t *testing.T, r *replica) *deliverer { return r.worker(t).deliverer },
		"tickets": func(t *testing.T, r *replica) *deliverer { w := r.worker(t); r.ticketsOnly(); return w.deliverer },
		"drain": func(t *testing.T, r *replica) *deliverer {
			d := r.drainer(t)
			started, err := d.StartDrain(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if _, err := started.Run(context.Background(), testdb.Timeout, testdb.Timeout); err != nil {
					t.Error(err)
				}
			}()
			t.Cleanup(func() { d.Stop(); <-ended })
			return d.worker
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 5
			r := open(t, testdb.New(t))
			a, letGo := holding(t, r)
			r.register(t, deployment, a.URL)
			w := start(t, r)
			w.withoutTimeLimits()
			run, other := r.run(t, 3), r.run(t, 3)
			var sent, called []string
			for i := range n {
				sent = append(sent, r.send(t, of(run)))
				r.leased(t, i+1)
			}
			w.waitUntilWaiting(t, n-1)
			r.send(t, of(other))
			for range 2 {
				called = append(called, a.next(t).id())
			}
			for i := range n - 1 {
				if waiting, _ := w.serializer.state(); len(a.calls) > 0 || waiting != n-1-i {
					t.Errorf("%d calls too many; %d wait, want %d", len(a.calls), waiting, n-1-i)
				}
				letGo <- struct{}{}
				if i == 0 {
					letGo <- struct{}{} // for the other run's message, or the last one
				}
				called = append(called, a.next(t).id())
			}
			letGo <- struct{}{}
			testdb.Eventually(t, "all are acknowledged", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
			for _, id := range sent {
				if i := slices.Index(called, id); i < 0 || slices.Contains(called[i+1:], id) {
					t.Errorf("message %s was not called once: %v", id, called)
				}
			}
			testdb.Eventually(t, "no line is left", func() bool {
				_, lines := w.serializer.state()
				return lines == 0
			})
		})
	}
}

// TestOtherMessagesDoNotWaitForWakeUps covers steps of the run, runs of clients that execute steps when woken, and runs
// that do not exist.
func TestOtherMessagesDoNotWaitForWakeUps(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a, letGo := holding(t, r)
	r.register(t, deployment, a.URL)
	r.worker(t).withoutTimeLimits()
	stable, next, unknown := r.run(t, 3), r.run(t, 5), entities.NewRunID(time.Now())
	for range 2 {
		r.send(t, of(stable), func(m *message.Message) { m.Topic = "__wkf_step_a" })
		r.send(t, of(next))
		r.send(t, of(unknown))
	}
	r.send(t, of(stable))
	for range 7 {
		a.next(t)
	}
	close(letGo)
}

// TestStoppingServerReleasesWaitingWakeUps: a waiting message is due for other processes at once, without counting a
// delivery. The call in progress continues.
func TestStoppingServerReleasesWaitingWakeUps(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := open(t, dsn)
	a, letGo := holding(t, r)
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	w.withoutTimeLimits()
	run := r.run(t, 3)
	first := r.send(t, of(run))
	a.next(t)
	waiting := r.send(t, of(run))
	w.waitUntilWaiting(t, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(context.Background()) }()
	testdb.Eventually(t, "it is released", func() bool { return r.stored(t, waiting).Lease == "" })
	if s := r.stored(t, waiting); s.DeliveryCount != 0 || s.Wait > 0 || s.LastError != "" {
		t.Errorf("got %+v, want it due as if for the first time", s)
	}
	if s := r.stored(t, first); s.Lease == "" {
		t.Errorf("got %+v, want it still in progress", s)
	}
	open(t, dsn).worker(t)
	if c := a.next(t); c.id() != waiting || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), waiting)
	}
	close(letGo)
	if err := testdb.Receive(t, "the end of the first server", stopped); err != nil {
		t.Error(err)
	}
	r.gone(t, first)
	r.gone(t, waiting)
}
