package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// orchestrates makes a message one for the orchestrator of a run with a fence.
func orchestrates(id entities.RunID) func(*message.Message) {
	return func(m *message.Message) { m.RunID, m.Topic = id, topic+"_"+string(id) }
}

// orchestration returns the delivery of such a message, with changes.
func orchestration(changes ...func(*Delivery)) Delivery {
	return wake(append([]func(*Delivery){func(d *Delivery) {
		d.SpecVersion, d.Topic = entities.SpecFence, topic+"_"+string(d.RunID)
	}}, changes...)...)
}

func TestIsOrchestrator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Delivery)
		want   bool
	}{
		"of a run with a fence":      {func(*Delivery) {}, true},
		"of a namespace":             {func(d *Delivery) { d.Topic = "__n-s" + d.Topic[1:] }, true},
		"of a step":                  {func(d *Delivery) { d.Topic += "_step_1" }, false},
		"of a step, in its topic":    {func(d *Delivery) { d.Topic = "__wkf_step_a_wrun_a" }, false},
		"in a topic of several runs": {func(d *Delivery) { d.Topic = topic }, false},
		"of a run without a fence":   {func(d *Delivery) { d.SpecVersion = entities.SpecTakeover }, false},
		"of a run that is not there": {func(d *Delivery) { d.SpecVersion = 0 }, false},
		"about no run":               {func(d *Delivery) { d.RunID = "" }, false},
	} {
		if got := orchestration(tt.change).isOrchestrator(); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}

// TestOrchestratorWaitsForTheOneBefore: a call holds back the next one of its run until it is answered, however long
// that takes. What waits for long or cannot wait has to come again.
func TestOrchestratorWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := newSerializer(2*waitingShare), time.Now()
		refused := func(d Delivery) {
			t.Helper()
			if _, err := s.acquire(t.Context(), &d); !errors.Is(err, errRunBusy) {
				t.Errorf("got error %v, want %v", err, errRunBusy)
			}
		}
		answered := s.taken(t, orchestration())
		s.taken(t, orchestration(func(d *Delivery) { d.Topic += "_step_1" }))()
		refused(orchestration())
		if waited := time.Since(began); waited != maxCallWait {
			t.Errorf("it waited %s, want %s", waited, maxCallWait)
		}
		refused(orchestration(func(d *Delivery) { d.Body = make([]byte, smallBody+1) }))
		next, last := s.acquireAsync(t, orchestration()), s.acquireAsync(t, orchestration())
		refused(orchestration()) // as many wait as may
		for _, waiting := range []<-chan func(){next, last} {
			if len(waiting) > 0 {
				t.Error("one was called before the answer to the call before")
			}
			answered()
			answered = <-waiting
		}
		answered()
		if waited := time.Since(began); waited != maxCallWait {
			t.Errorf("it took %s, want no time besides", waited-maxCallWait)
		}
		s.wantNoQueues(t)
	})
}

// TestOrchestratorsOfARunAreCalledOneAtATime: of messages that are sent at once, each is called once, after the answer
// to the one before.
func TestOrchestratorsOfARunAreCalledOneAtATime(t *testing.T) {
	t.Parallel()
	const n = 8
	r := open(t, testdb.New(t))
	a, letGo := holding(t, r)
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	w.withoutTimeLimits()
	run := r.run(t, entities.SpecFence)
	var racers sync.WaitGroup
	for range n {
		racers.Go(func() { r.send(t, orchestrates(run)) })
	}
	racers.Wait()
	called := map[string]bool{}
	for i := range n {
		c := a.next(t)
		called[c.id()] = true
		w.waitUntilWaiting(t, n-1-i)
		if len(a.calls) > 0 || c.Header.Get("Ce-Vqsdeliverycount") != "1" {
			t.Errorf("%d calls at once; delivery %s", 1+len(a.calls), c.Header.Get("Ce-Vqsdeliverycount"))
		}
		letGo <- struct{}{}
	}
	testdb.Eventually(t, "all are acknowledged", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if len(called) != n {
		t.Errorf("%d messages were called, want %d", len(called), n)
	}
}

// TestMessageOfABusyRunIsDueAgain: it has not been delivered, so its first delivery is still to come.
func TestMessageOfABusyRunIsDueAgain(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a, letGo := holding(t, r)
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	w.serializer.mu.Lock()
	w.serializer.slots = 0
	w.serializer.mu.Unlock()
	run := r.run(t, entities.SpecFence)
	r.send(t, orchestrates(run))
	a.next(t)
	later := r.send(t, orchestrates(run))
	testdb.Eventually(t, "it is put back", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE id = $1 AND lease = '' AND delivery_count = 0
			AND due_at BETWEEN now() AND now() + interval '1 second' AND last_error = ''`, later) == 1
	})
	letGo <- struct{}{}
	if c := a.next(t); c.id() != later || c.Header.Get("Ce-Vqsdeliverycount") != "1" {
		t.Errorf("message %s comes as delivery %s, want the first of %s", c.id(), c.Header.Get("Ce-Vqsdeliverycount"), later)
	}
	letGo <- struct{}{}
	r.gone(t, later)
}

// TestOrchestratorGivesWayToAnotherServer that calls one of its run, and had its message first. What the function itself
// has leased does not count, since nobody would notice the death of that.
func TestOrchestratorGivesWayToAnotherServer(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for name, tt := range map[string]struct {
		change string // of the message of the other server
		want   error
	}{
		"that calls":           {`topic = topic`, errRunBusy},
		"that claimed it then": {`lease = 'rh_z'`, nil},
		"that calls a step":    {`topic = topic || '_step_1'`, nil},
		"of another run":       {`run_id = 'wrun_other'`, nil},
		"that has ended":       {`lease = '', holder = ''`, nil},
		"of another project":   {`project = 'other'`, nil},
		"or its function":      {`holder = ''`, nil},
		"or the same":          {`holder = 'proc_own'`, nil},
	} {
		run, w := r.run(t, entities.SpecFence), r.newWorker(t)
		w.heartbeat.ID = "proc_own"
		first, d := r.claimed(t, "proc_other", orchestrates(run)), r.claimed(t, w.heartbeat.ID, orchestrates(run))
		r.Exec(t, `UPDATE messages SET `+tt.change+` WHERE id = $1`, first.ID)
		answered, err := w.awaitRun(t.Context(), &d)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		if err == nil {
			answered()
		}
		w.serializer.wantNoQueues(t)
		r.Exec(t, `DELETE FROM messages`)
	}
}

// TestOneOfTheServersCalls: of several that claim at the same time, not all give way.
func TestOneOfTheServersCalls(t *testing.T) {
	t.Parallel()
	const racers = 8
	r := withoutHints(t, testdb.New(t))
	run := r.run(t, entities.SpecFence)
	workers, claimed := make([]*Worker, racers), make([]Delivery, racers)
	for i := range racers {
		workers[i] = r.newWorker(t)
		claimed[i] = r.claimed(t, workers[i].heartbeat.ID, orchestrates(run))
	}
	calls := race(racers, func(i int) int {
		_, err := workers[i].awaitRun(context.Background(), &claimed[i])
		if err != nil && !errors.Is(err, errRunBusy) {
			t.Error(err)
		}
		return map[bool]int{true: 1}[err == nil]
	})
	if want := []int{1, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want that of the first claim: %v", calls, want)
	}
}

// TestMessageComesWhenAnotherServerHasItsAnswer: until then it is put back again and again, and has not been delivered.
func TestMessageComesWhenAnotherServerHasItsAnswer(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r, other := open(t, dsn), open(t, dsn)
	a, letGo := holding(t, r)
	r.register(t, deployment, a.URL)
	r.worker(t)
	run := r.run(t, entities.SpecFence)
	r.send(t, orchestrates(run))
	a.next(t)
	other.worker(t)
	later := other.send(t, orchestrates(run))
	testdb.Eventually(t, "it is put back", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE id = $1 AND lease = '' AND ticket > $2
			AND delivery_count = 0 AND last_error = ''`, later, firstTicket) == 1
	})
	if len(a.calls) > 0 {
		t.Error("two servers call the orchestrator of a run at the same time")
	}
	letGo <- struct{}{}
	if c := a.next(t); c.id() != later || c.Header.Get("Ce-Vqsdeliverycount") != "1" {
		t.Errorf("message %s comes as delivery %s, want the first of %s", c.id(), c.Header.Get("Ce-Vqsdeliverycount"), later)
	}
	letGo <- struct{}{}
	r.gone(t, later)
}
