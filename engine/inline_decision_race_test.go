package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

const joinFlow = `
flow: join
deployment: dpl_test
steps:
  a: {call: work}
  b: {call: work}
  c: {needs: [a, b], call: work}
`

// prepareFlow makes a run of a flow that waits for its steps a and b, which are under way. The server has its state.
func (b *cachingServer) prepareFlow(t *testing.T, home *server) *runUnderWay {
	t.Helper()
	b.Attach(nil)
	b.knowFlow(t, joinFlow, "join@1")
	home.Exec(t, `DELETE FROM runs`)
	home.Exec(t, `DELETE FROM river_job`)
	home.Exec(t, `DELETE FROM messages`)
	m := &runUnderWay{home: home, steps: map[string]queue.Delivery{}}
	id := b.startFlow(t, "join", `null`)
	for _, step := range []string{"a", "b"} {
		m.steps[step] = home.claim(t, message.WorkStep, step)
	}
	home.Exec(t, `
		INSERT INTO processes (id, host, session_key, beat_at) VALUES ($1, 'host', 1, now() - interval '1 h')
		ON CONFLICT (id) DO NOTHING`, frozenProcess)
	home.Exec(t, `UPDATE messages SET holder = $1`, frozenProcess)
	var err error
	if m.run, err = store.RunByID(t.Context(), home.pool, project, id); err != nil {
		t.Fatal(err)
	}
	return m
}

// prepareLast is prepareFlow of a run that only waits for a.
func (b *cachingServer) prepareLast(t *testing.T, home *server) *runUnderWay {
	t.Helper()
	m := b.prepareFlow(t, home)
	if err := completeStep("b", "2")(t.Context(), b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// prepareTurn is prepareLast of a run that is also being invoked.
func (b *cachingServer) prepareTurn(t *testing.T, home *server) *runUnderWay {
	t.Helper()
	m := b.prepareLast(t, home)
	if err := enqueueInvocation(t.Context(), b, m); err != nil {
		t.Fatal(err)
	}
	m.invocation = home.claim(t, message.WorkRun, "")
	return m
}

// TestI4EveryInterleavingOfInlineDecisionsIsSerial stops two servers before each statement and commit, as
// TestI4EveryInterleavingOfOptimisticAppendsIsSerial does. The first has the state of a flow, and records a result that
// brings what follows. If it comes second, or while the run is being invoked, it may leave that to an invocation. So
// the state is always as if one had acted after the other, with or without what follows.
func TestI4EveryInterleavingOfInlineDecisionsIsSerial(t *testing.T) {
	t.Parallel()
	var first, last, invocation preparation = (*cachingServer).prepareFlow, (*cachingServer).prepareLast,
		(*cachingServer).prepareTurn
	one := completeStep("a", "1")
	for name, e := range map[string]pairing{
		"result × result":        {prepare: first, two: completeStep("b", "2")},
		"last result × the same": {prepare: last, two: one},
		"last result × cancel":   {prepare: last, two: appendEvent(eventlog.Request{Type: entities.EventRunCancelled})},
		"last result × ask to cancel": {
			prepare: last, two: appendEvent(eventlog.Request{Type: entities.EventCancelRequested, Grace: 2 * time.Hour}),
		},
		"last result × sweeper":              {prepare: last, two: enqueueInvocation},
		"last result × takeover":             {prepare: last, two: takeOver},
		"last result × nack":                 {prepare: last, two: nackWork("a")},
		"invocation, last result × answer":   {prepare: invocation, two: answerWith(``), needsLock: true},
		"invocation, last result × command":  {prepare: invocation, two: sendCommand(`{"type":"runStep","id":"c"}`), needsLock: true},
		"invocation, last result × released": {prepare: invocation, two: nackWork(""), needsLock: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.one = one
			e.checkInline(t)
		})
	}
}

// checkInline checks the interleavings of a pairing whose first operation decides inline, unless it needs a lock.
func (e pairing) checkInline(t *testing.T) {
	t.Helper()
	d := e.duel(t)
	alone := d.alone(t)
	if inline := len(alone) == 2; inline == e.needsLock || d.errs[0] != nil { // the statement and its commit
		t.Fatalf("got statements %.60q and error %v; needs a lock: %v", alone, d.errs[0], e.needsLock)
	}
	serial := map[string]bool{}
	for _, order := range [][2]int{{2, 1}, {1, 2}, {0, 1}, {1, 0}} { // nothing is decided inline at the third server
		serial[d.after(t, order[0], order[1])] = true
	}
	schedules := gate.Interrupt(t, d.one, d.two, func(s *gate.Schedule) {
		if got := d.play(t, s); !serial[got] || s.Deadlocked {
			t.Fatalf("deadlock: %v; the state is\n%s\nwant one of\n%s", s.Deadlocked, got,
				strings.Join(slices.Sorted(maps.Keys(serial)), "\n\n"))
		}
	})
	t.Logf("%d schedules, %d outcomes", schedules, len(serial))
}

// TestNothingIsDecidedInlineDuringAnInvocation: the invocation would not know what has been decided. The result is
// recorded alone, and the run is invoked again.
func TestNothingIsDecidedInlineDuringAnInvocation(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		home := idleServer(t, testdb.New(t))
		b := cachingServerOn(t, gate.Open(t, home.pool.Config().ConnString(), home.pool, nil), home)
		prepare := b.prepareLast
		if during {
			prepare = b.prepareTurn
		}
		m := prepare(t, home)
		if err := completeStep("a", "1")(t.Context(), b, m); err != nil {
			t.Fatal(err)
		}
		log := home.events(t, m.run.ID)
		if inline := slices.Contains(log, "step_created c"); inline == during {
			t.Errorf("during an invocation: %t; the log is %q", during, log)
		}
		if again := home.Count(t, `SELECT count(*) FROM messages WHERE work = 'run' AND redeliver`) == 1; again != during {
			t.Errorf("during an invocation: %t; the run is invoked again: %t", during, again)
		}
	}
}

// TestAKeptStateThatIsWrongIsDropped: a failover has lost what the state knows, or the answer of its invocation was
// refused. The next call has the whole log.
func TestAKeptStateThatIsWrongIsDropped(t *testing.T) {
	t.Parallel()
	home := idleServer(t, testdb.New(t))
	b := cachingServerOn(t, gate.Open(t, home.pool.Config().ConnString(), home.pool, nil), home)
	m := b.prepareTurn(t, home)
	work := b.worker.Bind(m.invocation)
	work.URL = contract.FlowScheme + "join@1"
	run, _, err := b.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	states := b.runs.kept
	seq := states.seq(run.ID)
	if seq == 0 {
		t.Fatal("there is no state")
	}
	kept := *states.take(run.ID)
	keep := func() {
		state := kept
		states.put(run.ID, &state)
	}
	keep()
	short := run
	short.LastSeq = seq - 1
	c, err := b.runs.newCall(t.Context(), work, &short, largestCall)
	if err != nil || c.Since != 0 || states.seq(run.ID) != 0 {
		t.Errorf("the log is shorter: got a call since %d (%v)", c.Since, err)
	}
	keep()
	if c, err := b.runs.newCall(t.Context(), work, &run, largestCall); err != nil || c.Since != seq {
		t.Errorf("the log is as long: got a call since %d (%v), want %d", c.Since, err, seq)
	}
	fresh := eventlog.NewEvents{Run: run, Events: []entities.Event{{Seq: seq}}}
	if b.runs.stateBefore(fresh) != nil || states.seq(run.ID) != 0 {
		t.Error("events in a shorter log: the state is used, or still there")
	}
	keep()
	err = b.runs.applyAnswer(t.Context(), work, run, answer{status: 200, body: []byte(
		`{"commands":[{"type":"runStep","id":"c"},{"type":"closeHook","id":"none"}]}`)})
	if err == nil || states.seq(run.ID) != 0 {
		t.Errorf("the answer was refused with %v: the state is still there", err)
	}
}

// TestWhatNeedsAnInvocationIsDecidedOnce: a result does not ask again what could not be written inline, until an
// invocation has carried it out. Large events are left to an invocation that reserves the memory.
func TestWhatNeedsAnInvocationIsDecidedOnce(t *testing.T) {
	t.Parallel()
	home := idleServer(t, testdb.New(t))
	b := cachingServerOn(t, gate.Open(t, home.pool.Config().ConnString(), home.pool, nil), home)
	fresh := func(m *runUnderWay, payload string) eventlog.NewEvents {
		return eventlog.NewEvents{Run: m.run, Events: []entities.Event{{
			Seq: b.runs.kept.seq(m.run.ID) + 1, Type: entities.EventStepCompleted, CorrelationID: "a",
			Payload: []byte(payload),
		}}}
	}
	m := b.prepareLast(t, home)
	if b.runs.decideInline(t.Context(), fresh(m, `"`+strings.Repeat("x", maxInlineBytes)+`"`)) != nil {
		t.Error("large events bring something")
	}
	kept := b.runs.kept.take(m.run.ID)
	kept.needsInvocation, kept.lease = true, "lease"
	b.runs.kept.put(m.run.ID, kept)
	if b.runs.decideInline(t.Context(), fresh(m, `1`)) != nil {
		t.Error("it is decided again before the invocation")
	}
	b.runs.kept.answered(queue.Delivery{RunID: m.run.ID, Lease: "lease"}, nil, time.Now())
	if f := b.runs.decideInline(t.Context(), fresh(m, `1`)); f == nil || !f.Known {
		t.Errorf("after the invocation: got %+v", f)
	}
}

// TestResultsOfAJoinRace has the results of many steps arrive on two servers at once. Whoever comes last, the step that
// needs them all begins, once.
func TestResultsOfAJoinRace(t *testing.T) {
	t.Parallel()
	const racers, rounds = 12, 8
	var document strings.Builder
	document.WriteString("flow: race\ndeployment: dpl_test\nsteps:\n")
	var ids []string
	for n := range racers {
		ids = append(ids, fmt.Sprint("r", n))
		fmt.Fprintf(&document, "  r%d: {call: racer}\n", n)
	}
	fmt.Fprintf(&document, "  join: {needs: [%s], call: join}\n", strings.Join(ids, ", "))
	dsn := testdb.New(t)
	var mu sync.Mutex
	started := map[entities.RunID]*sync.WaitGroup{}
	f := serve(t, func(c *functionCall) {
		if c.Step.Name == "racer" {
			mu.Lock()
			all := started[c.Run.ID]
			if all == nil {
				all = &sync.WaitGroup{}
				all.Add(racers)
				started[c.Run.ID] = all
			}
			mu.Unlock()
			all.Done()
			all.Wait()
		}
		_, _ = fmt.Fprintf(c.w, `%q`, c.Step.ID)
	})
	var servers []*server
	for range 2 {
		d := newServer(t, dsn)
		d.register(t, deployment, f.URL)
		d.knowFlow(t, document.String(), "race@1")
		d.worker(t, func(o *queue.WorkerOptions) {
			o.Handlers, o.Deliveries = d.runs.Handlers(), racers
		})
		servers = append(servers, d)
	}
	for n := range rounds {
		d := servers[n%2]
		id := d.startFlow(t, "race", `null`)
		d.wantEnd(t, id, entities.RunCompleted, `{"join":"join"}`)
		log := d.events(t, id)
		for _, event := range []string{"step_created join", "step_completed join", "step_completed r0"} {
			if n := d.countEvents(t, id, event); n != 1 {
				t.Errorf("%d times %s in %q", n, event, log)
			}
		}
	}
}
