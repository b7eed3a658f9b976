package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/why"
)

// awaitModel says when a run is invoked. It keeps what the function awaits as it was asked for.
type awaitModel struct {
	// steps has the open steps, and waits those that are not over. The function executes its own steps; the value says
	// whether the next attempt is still to come.
	steps, waits, own map[string]bool
	awaits            *awaitSet
	// underWay is set during an invocation, and fresh if something happened since its start that the function does not
	// learn from a response.
	underWay, fresh bool
	// length is that of the log, and called the length as the call has it. The function knows the log up to known, and
	// must hear of what happened at must.
	length, called, known, must int64
	// followed is the length after the last commands whose events the function has read.
	followed int64
	// due is set if the run must be invoked. Forgot is set if something other than an answer has made everything wake the
	// run: then no message may exist for the end of a wait, until the sweeper makes one.
	due, forgot bool
}

func (m *awaitModel) ended(ref string) bool { return !m.steps[ref] && !m.waits[ref] }

func (m *awaitModel) holds() bool {
	return slices.ContainsFunc(m.awaits.Any, m.ended) || slices.ContainsFunc(m.awaits.All, func(list []string) bool {
		return !slices.ContainsFunc(list, func(ref string) bool { return !m.ended(ref) })
	})
}

func (m *awaitModel) start() {
	m.due, m.underWay, m.fresh, m.forgot, m.called = false, true, false, false, m.length
}

func (m *awaitModel) answer(a *awaitSet, seen int64) {
	if seen == 0 {
		seen = m.called
	}
	m.underWay, m.awaits, m.known = false, a, max(m.known, seen)
	if a == nil {
		m.due = m.fresh
	} else {
		m.due = m.must > m.known || m.holds()
	}
}

// happened notes that something has happened outside of the function. A step that has ended is in ended.
func (m *awaitModel) happened(ended ...string) {
	for _, ref := range ended {
		delete(m.steps, ref)
	}
	m.fresh = true
	m.due = m.due || !m.underWay && (m.awaits == nil || m.holds())
}

// mustHear notes an event that has the run invoked whatever it awaits.
func (m *awaitModel) mustHear(seq int64) {
	m.fresh, m.must = true, seq
	m.due = m.due || !m.underWay
}

// forget makes all new events have the run invoked.
func (m *awaitModel) forget() { m.awaits, m.forgot = nil, true }

// awaitScenario is a run on two servers, beside its model.
type awaitScenario struct {
	*awaitModel

	t *testing.T
	// servers append to the run in turn, from their caches if they can. The second starts invocations inline.
	servers    [2]*server
	worker     *queue.Worker
	run        entities.Run
	invocation queue.Delivery
	made       int // steps, waits and hooks so far
	asked      bool
}

// TestARunIsInvokedWhenItsAwaitHolds lets two servers apply random answers, results and accidents of a run, and
// compares after each whether the run is due with a model. The sweeper finds the run stranded only if it has lost its
// invocation.
func TestARunIsInvokedWhenItsAwaitHolds(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	one, two := idleServer(t, dsn), idleServer(t, dsn)
	w := two.newWorker(t)
	two.onRecord(t, w.ProcessID())
	two.log = eventlog.New(two.pool, two.hub, dyingQueue{two.Queue}, time.Now)
	two.runs = New(one.Queue, two.log)
	two.Attach(w)
	rapid.Check(t, func(rt *rapid.T) {
		one.Exec(t, `DELETE FROM messages`)
		one.Exec(t, `DELETE FROM run_wakes`)
		one.Exec(t, `DELETE FROM runs`)
		s := &awaitScenario{
			awaitModel: &awaitModel{steps: map[string]bool{}, waits: map[string]bool{}, own: map[string]bool{}},
			t:          t, servers: [2]*server{one, two}, worker: w,
		}
		s.begin()
		for range rapid.IntRange(5, 40).Draw(rt, "actions") {
			s.act(rt)
			s.startInline(rt)
			if due := s.isDue(); !s.underWay && due != s.due {
				rt.Fatalf("due: %v, want %v; %+v", due, s.due, *s.awaitModel)
			}
		}
		one.Exec(t, `UPDATE runs SET updated_at = now() - interval '2 minutes'`)
		one.Exec(t, `UPDATE steps SET updated_at = now() - interval '2 minutes'`)
		explained := one.explain(t, s.run.ID)
		woken := s.sweep()
		if len(woken) > 0 && !s.forgot && !s.neglects() {
			rt.Fatalf("the run was stranded: %+v", woken)
		}
		if (explained.Verdict == why.VerdictStranded) != (len(woken) > 0) {
			rt.Fatalf("the sweeper repaired %+v, the run was explained as %+v", woken, explained)
		}
	})
}

// begin starts the run, and its first invocation, which opens a hook.
func (s *awaitScenario) begin() {
	id := s.servers[0].startRun(s.t, `null`)
	s.run.ID = id
	s.startInvocation(s.servers[0])
	if _, err := s.servers[0].runs.Command(s.t.Context(), callOf(id, s.invocation.Lease),
		[]byte(`{"commands":[{"type":"openHook","id":"h","token":"T"}]}`)); err != nil {
		s.t.Fatal(err)
	}
	s.measure()
}

// measure notes the length of the log.
func (s *awaitScenario) measure() {
	s.servers[0].Scan(s.t, `SELECT last_seq FROM runs`, nil, &s.length)
}

// last returns the position of the last event of the type.
func (s *awaitScenario) last(event entities.EventType) (seq int64) {
	s.servers[0].Scan(s.t, `SELECT max(seq) FROM events WHERE type = $1`, []any{event}, &seq)
	return seq
}

func (s *awaitScenario) startInvocation(on *server) {
	s.t.Helper()
	var err error
	s.invocation = on.claim(s.t, message.WorkRun, "")
	if s.run, _, err = on.runs.recordStart(s.t.Context(), s.invocation); err != nil {
		s.t.Fatal(err)
	}
	s.measure()
	s.start()
}

// startInline notes the invocation that the last transaction has started, if any.
func (s *awaitScenario) startInline(rt *rapid.T) {
	var lease string
	on := s.servers[0]
	on.Scan(s.t, `SELECT coalesce(max(lease), '') FROM messages WHERE work = 'run'`, nil, &lease)
	if s.underWay || lease == "" {
		return
	}
	if !s.due {
		rt.Fatalf("an invocation started, but the run was not due: %+v", *s.awaitModel)
	}
	run, err := store.RunByID(s.t.Context(), pg.NewPool(on.pool), project, s.run.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.run, s.length = run, run.LastSeq
	s.invocation = s.worker.Bind(queue.Delivery{
		Project: project, RunID: run.ID, Work: message.WorkRun, Lease: lease, Known: s.known,
	})
	s.start()
}

// isDue reports whether the run is being invoked, or will be within seconds.
func (s *awaitScenario) isDue() bool {
	return s.servers[0].Count(s.t, `
		SELECT count(*) FROM messages WHERE work = 'run' AND lease = '' AND due_at < clock_timestamp() + interval '1 minute'`,
	) > 0
}

// sweep lets the sweeper look at the run, whatever it has done before.
func (s *awaitScenario) sweep() []cluster.Stranded {
	on := s.servers[0]
	on.Exec(s.t, `UPDATE run_wakes SET repaired_at = now() - interval '1 day'`)
	return on.sweep(s.t, func(s *cluster.Sweeper) { s.Quiet = 0 })
}

// act is one random thing that happens to the run.
func (s *awaitScenario) act(rt *rapid.T) {
	on := s.servers[rapid.IntRange(0, 1).Draw(rt, "server")]
	actions := map[string]func(*rapid.T, *server){"receive": s.receive, "set attribute": s.setAttribute, "forget": s.lose}
	if !s.asked {
		actions["ask to cancel"] = s.askToCancel
	}
	if len(s.serverSteps()) > 0 {
		maps.Copy(actions, map[string]func(*rapid.T, *server){
			"end": s.end, "end 2": s.end, "end 3": s.end, "start step": s.startStep, "old server": s.oldServer,
		})
	}
	if len(s.paused()) > 0 {
		actions["resume"] = s.resume
	}
	if s.underWay {
		maps.Copy(actions, map[string]func(*rapid.T, *server){
			"answer": s.giveAnswer, "answer 2": s.giveAnswer, "answer 3": s.giveAnswer, "answer 4": s.giveAnswer,
			"command": s.command, "take over": s.takeOver, "fail": s.fail, "discard": s.discard,
		})
	} else if s.due {
		maps.Copy(actions, map[string]func(*rapid.T, *server){
			"start": s.begins, "start 2": s.begins, "start 3": s.begins, "start 4": s.begins, "discard": s.discard,
		})
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(actions))).Draw(rt, "action")
	actions[name](rt, on)
	s.measure()
}

func (s *awaitScenario) begins(_ *rapid.T, on *server) { s.startInvocation(on) }

// serverSteps returns the open steps that are not the function's own.
func (s *awaitScenario) serverSteps() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.steps)), func(ref string) bool {
		_, own := s.own[ref]
		return own
	})
}

// paused returns the steps of the function whose next attempt is still to come.
func (s *awaitScenario) paused() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.own)), func(ref string) bool { return !s.own[ref] })
}

// happens appends events.
func (s *awaitScenario) happens(on *server, requests ...eventlog.Request) {
	s.t.Helper()
	for i := range requests {
		requests[i].RunID, requests[i].SpecVersion = s.run.ID, entities.SpecDriven
	}
	if _, err := on.log.AppendAll(s.t.Context(), project, s.run.ID, requests, eventlog.AppendOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.measure()
}

func (s *awaitScenario) receive(_ *rapid.T, on *server) {
	s.happens(on, eventlog.Request{Type: entities.EventHookReceived, CorrelationID: "h", Payload: []byte(`1`)})
	s.mustHear(s.last("hook_received"))
}

func (s *awaitScenario) setAttribute(_ *rapid.T, on *server) {
	value := fmt.Sprint(s.length)
	r := eventlog.Request{Type: entities.EventAttrSet}
	r.Data.Changes = []entities.AttributeChange{{Key: "k", Value: &value}}
	s.happens(on, r)
}

func (s *awaitScenario) askToCancel(_ *rapid.T, on *server) {
	if _, _, err := on.log.Cancel(s.t.Context(), project, eventlog.Request{RunID: s.run.ID, Grace: time.Hour}); err != nil {
		s.t.Fatal(err)
	}
	s.asked = true
	s.mustHear(s.last("cancel_requested"))
}

// results returns the results of some steps of the server.
func (s *awaitScenario) results(rt *rapid.T) (refs []string, results []eventlog.Request) {
	open := s.serverSteps()
	refs = rapid.SliceOfNDistinct(rapid.SampledFrom(open), 1, min(2, len(open)), rapid.ID).Draw(rt, "steps")
	for _, ref := range refs {
		t := rapid.SampledFrom([]entities.EventType{entities.EventStepCompleted, entities.EventStepFailed}).Draw(rt, "result")
		results = append(results, eventlog.Request{Type: t, CorrelationID: ref[len("step:"):], Payload: []byte(`1`)})
	}
	return refs, results
}

func (s *awaitScenario) end(rt *rapid.T, on *server) {
	refs, results := s.results(rt)
	s.happens(on, results...)
	for _, ref := range refs {
		s.happened(ref)
	}
}

// startStep appends an attempt at a step, which wakes nobody.
func (s *awaitScenario) startStep(rt *rapid.T, on *server) {
	id := rapid.SampledFrom(s.serverSteps()).Draw(rt, "step")[len("step:"):]
	s.happens(on, eventlog.Request{Type: entities.EventStepStarted, CorrelationID: id},
		eventlog.Request{Type: entities.EventStepRetrying, CorrelationID: id, Payload: []byte(`1`)})
}

// lose makes the run's row lose what the run awaits, as a rebuild does.
func (s *awaitScenario) lose(_ *rapid.T, on *server) {
	on.Exec(s.t, `UPDATE runs SET await = NULL`)
	if s.awaits != nil {
		s.forget()
	}
}

// oldServer appends as a server does that does not know what runs await.
func (s *awaitScenario) oldServer(rt *rapid.T, on *server) {
	var await []byte
	on.Scan(s.t, `SELECT await FROM runs`, nil, &await)
	s.lose(rt, on)
	if rapid.Bool().Draw(rt, "old server ends a step") {
		s.end(rt, on)
	} else {
		s.startStep(rt, on)
	}
	on.Exec(s.t, `UPDATE runs SET await = $1`, await)
}

// resume begins the next attempt at a step that the function executes itself.
func (s *awaitScenario) resume(rt *rapid.T, on *server) {
	ref := rapid.SampledFrom(s.paused()).Draw(rt, "own step")
	work := s.worker.Bind(on.claim(s.t, message.WorkStep, ref[len("step:"):]))
	if err := on.runs.executeStep(s.t.Context(), work); err != nil {
		s.t.Fatal(err)
	}
	s.own[ref] = false
	s.mustHear(s.last("step_started"))
}

// neglects reports whether the function was invoked for an attempt at its own step, and said nothing about it.
func (s *awaitScenario) neglects() bool { return len(s.own) > len(s.paused()) }

// takeOver lets another server make the call again, because the lease is over. The first answer comes too late.
func (s *awaitScenario) takeOver(rt *rapid.T, on *server) {
	late, run := s.invocation, s.run
	s.startInvocation(on)
	if err := on.runs.answer(s.t.Context(), late, run, []byte(`{"await":{"any":[]}}`)); !errors.Is(err, message.ErrStale) {
		rt.Fatalf("a late answer: got %v, want %v", err, message.ErrStale)
	}
}

// fail lets the call fail, and sometimes an operator repeat it at once.
func (s *awaitScenario) fail(rt *rapid.T, on *server) {
	on.runs.nack(s.t, s.invocation, &queue.Failure{Reason: "failed", Reached: true, After: time.Second})
	s.underWay, s.due = false, true
	if !rapid.Bool().Draw(rt, "operator repeats") {
		return
	}
	if _, err := on.Retry(s.t.Context(), project, s.message()); err != nil {
		s.t.Fatal(err)
	}
}

// message returns the ID of the message that has the run invoked.
func (s *awaitScenario) message() (id string) {
	s.servers[0].Scan(s.t, `SELECT id FROM messages WHERE work = 'run'`, nil, &id)
	return id
}

// discard lets an operator discard the invocation, which the sweeper makes up for.
func (s *awaitScenario) discard(rt *rapid.T, on *server) {
	if err := on.Discard(s.t.Context(), project, s.message()); err != nil {
		s.t.Fatal(err)
	}
	s.underWay, s.due = false, true
	if len(s.serverSteps()) > 0 && rapid.Bool().Draw(rt, "a step ends") {
		s.end(rt, on) // whatever the run awaits
	} else if woken := s.sweep(); len(woken) != 1 {
		rt.Fatalf("the sweeper woke %+v, want the run", woken)
	}
}

// giveAnswer ends the invocation with random commands, and mostly with something to await.
func (s *awaitScenario) giveAnswer(rt *rapid.T, on *server) {
	var body struct {
		Commands []object  `json:"commands"`
		Await    *awaitSet `json:"await,omitempty"`
		Seen     int64     `json:"seen,omitempty"`
	}
	var over []string
	var results, conflict bool
	seen := slices.DeleteFunc([]int64{0, s.called - 1, s.called, s.length}, func(position int64) bool {
		return position > 0 && position < s.followed // the server takes this for another copy of the call
	})
	body.Seen = rapid.SampledFrom(seen).Draw(rt, "seen")
	body.Commands, over, results, conflict = s.commands(rt)
	refs := []string{"step:unknown"}
	for i := 1; i <= s.made; i++ {
		refs = append(refs, fmt.Sprint("step:", i), fmt.Sprint("wait:", i))
	}
	// Most references are to open items: else nearly everything would hold.
	open := slices.Concat(slices.Sorted(maps.Keys(s.steps)), slices.Sorted(maps.Keys(s.waits)), over)
	ref := rapid.SampledFrom(slices.Concat(refs, slices.Repeat(open, 8)))
	list := rapid.SliceOfN(ref, 1, 4)
	if rapid.IntRange(0, 4).Draw(rt, "awaits") > 0 {
		body.Await = &awaitSet{
			Any: rapid.SliceOfN(ref, 0, 1).Draw(rt, "any"), All: rapid.SliceOfN(list, 0, 2).Draw(rt, "all"),
		}
	}
	text, err := json.Marshal(body)
	if err == nil {
		err = on.runs.answer(s.t.Context(), s.invocation, s.run, text)
	}
	if err != nil {
		rt.Fatalf("answer %s: %v", text, err)
	}
	s.measure()
	if conflict {
		s.must = s.last("hook_conflict")
	}
	s.fresh = s.fresh || results || conflict
	s.answer(body.Await, body.Seen)
}
