package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/contract"
	"github.com/stepwell-dev/stepwell/queue/why"
)

// awaitSet is the JSON of what an answer awaits.
type awaitSet struct {
	Any []string   `json:"any"`
	All [][]string `json:"all"`
}

// awaitModel says when a run is invoked. It keeps what the function awaits as it was asked for.
type awaitModel struct {
	// steps has the open steps, and waits those that are not over.
	steps, waits map[string]bool
	awaits       *awaitSet
	// underWay is set during an invocation. News and hook are set if something happened, or a hook received something,
	// since the start of the invocation.
	underWay, news, hook bool
	// due is set if the run must be invoked.
	due bool
}

func (m *awaitModel) ended(ref string) bool {
	return !m.steps[ref] && !m.waits[ref]
}

func (m *awaitModel) holds() bool {
	for _, ref := range m.awaits.Any {
		if m.ended(ref) {
			return true
		}
	}
	for _, list := range m.awaits.All {
		open := 0
		for _, ref := range list {
			if !m.ended(ref) {
				open++
			}
		}
		if open == 0 {
			return true
		}
	}
	return false
}

func (m *awaitModel) start() {
	m.due, m.underWay, m.news, m.hook = false, true, false, false
}

func (m *awaitModel) answer(a *awaitSet) {
	m.underWay, m.awaits = false, a
	if a == nil {
		m.due = m.news || m.hook
	} else {
		m.due = m.hook || m.holds()
	}
}

func (m *awaitModel) endStep(ref string) {
	delete(m.steps, ref)
	m.news = true
	m.due = m.due || !m.underWay && (m.awaits == nil || m.holds())
}

func (m *awaitModel) receive() {
	m.hook = true
	m.due = m.due || !m.underWay
}

// awaitScenario is a run on two servers, beside its model.
type awaitScenario struct {
	*awaitModel

	t *testing.T
	// servers append to the run in turn, from their caches if they can. The second starts invocations inline.
	servers    [2]*server
	run        entities.Run
	invocation queue.Delivery
	made       int // steps and waits so far
}

// TestARunIsInvokedWhenItsAwaitHolds lets two servers apply random answers and results of a run, and compares after each
// whether the run is due with a model. The sweeper never finds the run stranded.
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
		one.exec(t, `DELETE FROM messages`)
		one.exec(t, `DELETE FROM runs`)
		s := &awaitScenario{
			awaitModel: &awaitModel{steps: map[string]bool{}, waits: map[string]bool{}},
			t:          t, servers: [2]*server{one, two},
		}
		s.begin()
		for range rapid.IntRange(5, 30).Draw(rt, "actions") {
			s.act(rt)
			s.startInline()
			if due := s.isDue(); !s.underWay && due != s.due {
				rt.Fatalf("due: %v, want %v; %+v", due, s.due, *s.awaitModel)
			}
		}
		one.exec(t, `UPDATE runs SET updated_at = now() - interval '1 minute'`)
		if e := one.explain(t, s.run.ID); e.Verdict == why.VerdictStranded || len(e.Reasons) == 0 {
			rt.Fatalf("got the reasons %+v", e.Reasons)
		}
		if woken := one.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 }); len(woken) > 0 {
			rt.Fatalf("the run was stranded: %+v", woken)
		}
	})
}

// begin starts the run, and its first invocation, which opens a hook.
func (s *awaitScenario) begin() {
	id := s.servers[0].startRun(s.t, `null`)
	s.startInvocation(s.servers[0])
	if _, err := s.servers[0].runs.Command(s.t.Context(), project, id, s.invocation.Lease,
		[]byte(`{"commands":[{"type":"openHook","id":"h"}]}`)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *awaitScenario) startInvocation(on *server) {
	s.t.Helper()
	s.start()
	var err error
	s.invocation = on.claim(s.t, message.WorkRun, "")
	if s.run, _, err = on.runs.recordStart(s.t.Context(), s.invocation); err != nil {
		s.t.Fatal(err)
	}
}

// startInline notes the invocation that the last transaction has started, if any.
func (s *awaitScenario) startInline() {
	var lease string
	on := s.servers[0]
	on.scan(s.t, `SELECT coalesce(max(lease), '') FROM messages WHERE work = 'run'`, nil, &lease)
	if s.underWay || lease == "" {
		return
	}
	if !s.due {
		s.t.Fatalf("an invocation started, but the run was not due: %+v", *s.awaitModel)
	}
	s.start()
	s.invocation = queue.Delivery{Project: project, RunID: s.run.ID, Work: message.WorkRun, Lease: lease}
	run, err := store.RunByID(s.t.Context(), pg.NewPool(on.pool), project, s.run.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.run = run
}

// isDue reports whether the run is being invoked, or will be within seconds.
func (s *awaitScenario) isDue() bool {
	return s.servers[0].count(s.t, `
		SELECT count(*) FROM messages WHERE work = 'run' AND lease = '' AND due_at < clock_timestamp() + interval '1 minute'`,
	) > 0
}

// act is one random thing that happens to the run.
func (s *awaitScenario) act(rt *rapid.T) {
	on := s.servers[rapid.IntRange(0, 1).Draw(rt, "server")]
	actions := []string{"receive"}
	if open := slices.Sorted(maps.Keys(s.steps)); len(open) > 0 {
		actions = append(actions, "end", "end", "end")
	}
	if s.underWay {
		actions = append(actions, "answer", "answer", "record")
	} else if s.due {
		actions = append(actions, "start", "start", "start")
	}
	switch rapid.SampledFrom(actions).Draw(rt, "action") {
	case "receive":
		s.happens(on, eventlog.Request{Type: entities.EventHookReceived, CorrelationID: "h", Payload: []byte(`1`)})
		s.receive()
	case "end":
		ref := rapid.SampledFrom(slices.Sorted(maps.Keys(s.steps))).Draw(rt, "step")
		s.happens(on, eventlog.Request{
			Type: entities.EventStepCompleted, CorrelationID: ref[len("step:"):], Payload: []byte(`1`),
		})
		s.endStep(ref)
	case "record":
		s.made++
		if _, err := on.runs.Command(s.t.Context(), project, s.run.ID, s.invocation.Lease,
			fmt.Appendf(nil, `{"commands":[{"type":"recordStep","id":"%d"}]}`, s.made)); err != nil {
			s.t.Fatal(err)
		}
		s.news = true
	case "start":
		s.startInvocation(on)
	case "answer":
		s.giveAnswer(rt, on)
	}
}

// happens appends an event.
func (s *awaitScenario) happens(on *server, r eventlog.Request) {
	s.t.Helper()
	r.RunID, r.SpecVersion = s.run.ID, entities.SpecDriven
	if _, err := on.log.Append(s.t.Context(), project, r); err != nil {
		s.t.Fatal(err)
	}
}

// giveAnswer ends the invocation with random commands, and mostly with something to await.
func (s *awaitScenario) giveAnswer(rt *rapid.T, on *server) {
	var body struct {
		Commands []object  `json:"commands"`
		Await    *awaitSet `json:"await,omitempty"`
	}
	refs, over := []string{"step:unknown"}, []string(nil)
	for i := 1; i <= s.made; i++ {
		refs = append(refs, fmt.Sprint("step:", i), fmt.Sprint("wait:", i))
	}
	for range rapid.IntRange(0, 4).Draw(rt, "commands") {
		s.made++
		id := fmt.Sprint(s.made)
		refs = append(refs, "step:"+id, "wait:"+id)
		switch rapid.SampledFrom([]string{"run", "run", "run", "record", "over", "wait"}).Draw(rt, "command") {
		case "run":
			body.Commands = append(body.Commands, object{"type": "runStep", "id": id})
			s.steps["step:"+id] = true
		case "record":
			body.Commands = append(body.Commands, object{"type": "recordStep", "id": id})
			s.news = true
		case "over":
			body.Commands = append(body.Commands, object{"type": "wait", "id": id, "for": "0s"})
			s.news = true // it is over at once
			over = append(over, "wait:"+id)
		case "wait":
			body.Commands = append(body.Commands, object{"type": "wait", "id": id, "for": "1h"})
			s.waits["wait:"+id] = true
		}
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
	if err != nil {
		s.t.Fatal(err)
	}
	if err := on.runs.answer(s.t.Context(), s.invocation, s.run, text); err != nil {
		rt.Fatalf("answer %s: %v", text, err)
	}
	s.answer(body.Await)
}

// TestAwaitedStepsCostOneInvocation runs 50 steps at once on two servers, after three that the function records itself:
// the function is called to begin, and once all steps have ended.
func TestAwaitedStepsCostOneInvocation(t *testing.T) {
	t.Parallel()
	var commands []object
	for _, id := range []string{"r1", "r2", "r3"} {
		commands = append(commands, object{"type": "recordStep", "id": id})
	}
	var all []string
	for i := range 50 {
		commands = append(commands, object{"type": "runStep", "id": fmt.Sprint(i)})
		all = append(all, fmt.Sprint("step:", i))
	}
	var calls atomic.Int32
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
		case calls.Add(1) == 1:
			_ = json.NewEncoder(c.w).Encode(object{"commands": commands, "await": awaitSet{All: [][]string{all}}})
		default:
			for i := range 50 {
				if !c.has("step_completed", fmt.Sprint(i)) {
					t.Errorf("invoked before step %d has ended", i)
				}
			}
			c.reply(object{"type": "complete"})
		}
	})
	d := startServer(t, f)
	other := &server{replica: newReplica(t, d.pool.Config().ConnString())}
	other.log = eventlog.New(other.pool, other.hub, other.Queue, time.Now)
	other.runs = New(other.Queue, other.log)
	other.worker(t, func(o *queue.WorkerOptions) { o.Handlers = other.runs.Handlers() })
	d.wantEnd(t, d.startRun(t, `null`), entities.RunCompleted, `null`)
	if n := calls.Load(); n != 2 {
		t.Errorf("got %d invocations, want 2", n)
	}
}

// awaiting starts a run on the server whose first answer has the commands and awaits something.
func (d *server) awaiting(t *testing.T, commands, await string) (entities.RunID, error) {
	t.Helper()
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	return id, d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+commands+`],"await":`+await+`}`))
}

// TestAwaitingNothingIsRefused: nothing but a hook would have the run invoked, and it has none.
func TestAwaitingNothingIsRefused(t *testing.T) {
	t.Parallel()
	for commands, refused := range map[string]bool{
		``:                                    true,
		`{"type":"runStep","id":"s"}`:         true,
		`{"type":"wait","id":"w","for":"1h"}`: true,
		`{"type":"openHook","id":"h"}`:        false,
	} {
		d := idleServer(t, testdb.New(t))
		if _, err := d.awaiting(t, commands, `{"any":[]}`); errors.Is(err, ErrNothingLeft) != refused {
			t.Errorf("%s: got error %v; refused: %v", commands, err, refused)
		}
	}
}

// TestAwaitingTheKnownIsNoBusyLoop: the function knew that what it awaits had ended.
func TestAwaitingTheKnownIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	if _, err := d.awaiting(t, ``, `{"any":["step:unknown"]}`); err != nil {
		t.Fatal(err)
	}
	var after time.Duration
	d.scan(t, `SELECT due_at - r.updated_at FROM messages m JOIN runs r ON r.id = m.run_id WHERE m.work = 'run'`, nil, &after)
	if after < idlePauseAtLeast {
		t.Errorf("the run is invoked after %s, want %s", after, idlePauseAtLeast)
	}
}

// idlePauseAtLeast is the least time between an answer and a call that says nothing new.
const idlePauseAtLeast = time.Second

// TestSweeperWakesRunsWhoseAwaitCannotHold damages runs that await something.
func TestSweeperWakesRunsWhoseAwaitCannotHold(t *testing.T) {
	t.Parallel()
	const step, hook = `{"type":"runStep","id":"s"}`, `{"type":"openHook","id":"h"}`
	const wait = `{"type":"wait","id":"w","for":"1h"}`
	for name, tt := range map[string]struct {
		commands, await, damage string
		reason                  string // empty if the run is not stranded
	}{
		"step":                       {step, `{"any":["step:s"]}`, ``, ``},
		"step, and another wait":     {step + "," + wait, `{"all":[["step:s"]]}`, ``, ``},
		"wait":                       {wait, `{"any":["wait:w"]}`, ``, ``},
		"only hooks":                 {hook + "," + step, `{"any":[]}`, ``, ``},
		"step that has ended":        {step, `{"any":["step:s"]}`, `UPDATE steps SET status = 'failed', completed_at = now()`, "it awaits step s"},
		"step that has ended, hook":  {hook + "," + step, `{"all":[["step:s"]]}`, `UPDATE steps SET status = 'failed', completed_at = now()`, "it awaits step s"},
		"step that is gone":          {step, `{"all":[["step:s"]]}`, `DELETE FROM steps`, "it awaits step s"},
		"wait without a message":     {wait, `{"any":["wait:w"]}`, `DELETE FROM messages`, "no message invokes it at"},
		"step without its work":      {step, `{"any":["step:s"]}`, `DELETE FROM messages`, "step s is pending"},
		"hook that is gone":          {hook + "," + step, `{"any":[]}`, `DELETE FROM hooks`, "it waits for nothing"},
		"older version has appended": {hook + "," + wait, `{"any":[]}`, `UPDATE runs SET last_seq = last_seq + 1`, "wait w is over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idleServer(t, testdb.New(t))
			id, err := d.awaiting(t, tt.commands, tt.await)
			if err != nil {
				t.Fatal(err)
			}
			if tt.damage != "" {
				d.exec(t, tt.damage)
			}
			woken := d.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 })
			if tt.reason == "" && len(woken) > 0 || tt.reason != "" && (len(woken) != 1 || !strings.HasPrefix(woken[0].Reason, tt.reason)) {
				t.Fatalf("woken: %+v, want %q", woken, tt.reason)
			}
			if n := d.count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run' AND due_at <= now()`, id); n != len(woken) {
				t.Errorf("got %d invocations, want %d", n, len(woken))
			}
		})
	}
}

// TestAwaitOfAnOlderVersionIsForgotten: a server that does not know await sets has appended to the run, and may have had
// it invoked. So all news has the run invoked until its next answer.
func TestAwaitOfAnOlderVersionIsForgotten(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id, err := d.awaiting(t, `{"type":"runStep","id":"a"},{"type":"runStep","id":"b"}`, `{"any":["step:a"]}`)
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `UPDATE runs SET await = jsonb_set(await, '{seq}', to_jsonb(last_seq - 1))`)
	d = serverOn(t, d.pool) // whose cache is empty
	if _, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventStepCompleted, CorrelationID: "b", SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
	}); err != nil {
		t.Fatal(err)
	}
	if n := d.count(t, `SELECT count(*) FROM messages WHERE work = 'run' AND due_at <= now()`); n != 1 {
		t.Errorf("got %d invocations, want 1", n)
	}
}
