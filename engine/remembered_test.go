package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// openHooks opens hooks of a run in one transaction, and shows them the signals before them.
func (d *server) openHooks(t *testing.T, run entities.RunID, hooks ...hook) {
	t.Helper()
	var requests []eventlog.Request
	for _, h := range hooks {
		requests = append(requests, h.request())
	}
	if _, err := d.log.AppendAll(t.Context(), project, run, requests, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks {
		d.replaySignals(t, h.id)
	}
}

// TestRunReceivesWhatItHasMissed: signals that were sent after its start, but before it listened, in the last minute. A
// hook that is opened later does not receive them again, nor does a run that started later.
func TestRunReceivesWhatItHasMissed(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	send := func(data string, keep time.Duration) string {
		s := d.postSignal(t, keep, newSignal(data))
		d.dispatchSignal(t, s)
		return string(signalPayload(s))
	}
	send(`"before"`, 0)
	run := d.startWithHooks(t, project)
	d.dispatchSignal(t, d.postSignal(t, 0, newSignal(`"old"`)))
	d.Exec(t, `UPDATE signals SET created_at = created_at - interval '61 s', keep_until = keep_until - interval '61 s'`)
	one, two := send(`1`, 0), send(`2`, 0)
	d.openHooks(t, run, hook{id: "a", signal: "paid"}, hook{id: "b", signal: "paid", condition: `data == 2`},
		hook{id: "other", signal: "shipped"})
	want := map[string][]string{"a": {one, two}, "b": {two}}
	d.wantReceived(t, project, run, want)
	d.openHooks(t, run, hook{id: "c", signal: "paid"}, hook{id: "back", signal: "paid", lookBack: time.Hour})
	d.wantReceived(t, project, run, want)

	later := d.startWithHooks(t, project)
	d.openHooks(t, later, hook{id: "d", signal: "paid"}, hook{id: "e", signal: "paid", lookBack: time.Hour})
	d.wantReceived(t, project, later, map[string][]string{})
	kept := send(`"kept"`, time.Hour)
	latest := d.startWithHooks(t, project)
	d.openHooks(t, latest, hook{id: "f", signal: "paid"}, hook{id: "g", signal: "paid", lookBack: time.Hour})
	d.wantReceived(t, project, latest, map[string][]string{"g": {kept}})
}

// TestDispatchLeavesOutThoseThatListenAgain: a run has received a signal and opened another hook before its dispatch
// has ended.
func TestDispatchLeavesOutThoseThatListenAgain(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	run := d.startWithHooks(t, project, hook{id: "a", signal: "paid"}, hook{id: "b", signal: "paid"})
	s := d.postSignal(t, 0, newSignal(`1`))
	if _, err := d.log.AppendAll(t.Context(), project, run, []eventlog.Request{
		{
			Type: entities.EventHookReceived, CorrelationID: "a", SpecVersion: entities.SpecDriven, Payload: signalPayload(s),
			Data: entities.EventData{ResumeID: string(s.ID) + ":a", Via: webhook.ViaSignal},
		},
		{Type: entities.EventHookDisposed, CorrelationID: "a"},
		hook{id: "again", signal: "paid"}.request(),
	}, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	d.dispatchSignal(t, s)
	want := string(signalPayload(s))
	d.wantReceived(t, project, run, map[string][]string{"a": {want}, "b": {want}})
}

// TestRunListensAfterTheSignal: a function and a flow begin to wait when the signal has long been dispatched. They
// receive it once, although they listen again.
func TestRunListensAfterTheSignal(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		<-sent
		wait := func(id string) map[string]any {
			return map[string]any{"type": "openHook", "id": id, "signal": map[string]any{"name": "paid"}}
		}
		switch {
		case c.Step != nil:
			c.reply()
		case !c.has("hook_received", "first"):
			c.reply(wait("first"))
		case !c.has("hook_received", "second"):
			c.reply(map[string]any{"type": "closeHook", "id": "first"}, wait("second"))
		default:
			c.reply(map[string]any{"type": "complete"})
		}
	}))
	d.knowFlow(t, `
flow: listening
deployment: dpl_test
steps:
  work: {call: work}
  first: {needs: work, signal: paid}
  second: {needs: first, signal: paid}
`, "listening@1")
	runs := []entities.RunID{d.startRun(t, "null"), d.startFlow(t, "listening", "null")}
	first := d.postSignal(t, 0, newSignal(`1`))
	testdb.Eventually(t, "the signal is dispatched", func() bool { return d.countSignalWork(t) == 0 })
	close(sent)
	testdb.Eventually(t, "the runs listen again, and have looked back", func() bool {
		return d.Count(t, `SELECT count(*) FROM hooks WHERE id = 'second'`) == 2 && d.countSignalWork(t) == 0
	})
	second := d.postSignal(t, 0, newSignal(`2`))
	for _, run := range runs {
		d.waitForEnd(t, run)
		d.wantReceived(t, project, run, map[string][]string{
			"first": {string(signalPayload(first))}, "second": {string(signalPayload(second))},
		})
	}
}

// TestRacersListenAndSend: each of many runs receives its signal once, however opening its hook and sending meet.
func TestRacersListenAndSend(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	d := servers[0]
	for _, s := range servers {
		s.worker(t, func(o *queue.WorkerOptions) {
			o.Handlers = s.runs.Handlers()
			delete(o.Handlers, message.WorkRun)
		})
	}
	const racers = 40
	var all sync.WaitGroup
	runs, want := make([]entities.RunID, racers), make([]string, racers)
	for i := range racers {
		runs[i] = d.startWithHooks(t, project)
		all.Go(func() {
			h := hook{id: fmt.Sprintf("h%d", i), signal: "paid", condition: fmt.Sprintf("data == %d", i)}
			if _, err := servers[i%2].log.AppendAll(
				t.Context(), project, runs[i], []eventlog.Request{h.request()}, eventlog.AppendOptions{},
			); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			s, _, err := servers[(i+1)%2].runs.PostSignal(t.Context(), newSignal(fmt.Sprint(i)), 0)
			if err != nil {
				t.Error(err)
			}
			want[i] = string(signalPayload(s))
		})
	}
	all.Wait()
	testdb.Eventually(t, "all have looked", func() bool { return d.countSignalWork(t) == 0 })
	for i, run := range runs {
		d.wantReceived(t, project, run, map[string][]string{fmt.Sprintf("h%d", i): {want[i]}})
	}
}

// TestRememberedSignalsAreBounded for each project. Beyond that, signals without an ID reach only hooks that are open.
func TestRememberedSignalsAreBounded(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	run := d.startWithHooks(t, project)
	now := d.log.Now()
	for _, size := range []int{MaxSignal, 0} {
		for range 1 + maxRemembered/(size+rememberedRow) {
			d.runs.remembering.fits(project, size, now)
		}
	}
	post := func(options ...func(*store.Signal)) store.Signal {
		s, _, err := d.runs.PostSignal(t.Context(), newSignal(`1`, options...), 0)
		if err != nil {
			t.Fatal(err)
		}
		d.dispatchSignal(t, s)
		return s
	}
	forgotten, keyed := post(), post(withKey("key"))
	other := post(func(s *store.Signal) { s.Project = "other" })
	for _, s := range []store.Signal{forgotten, keyed, other} {
		until := s.CreatedAt.Add(time.Minute)
		if s.ID == forgotten.ID {
			until = s.CreatedAt
		}
		if !s.RememberedUntil().Equal(until) {
			t.Errorf("%s of %s: remembered until %s, want %s", s.Key, s.Project, s.RememberedUntil(), until)
		}
	}
	d.openHooks(t, run, hook{id: "h", signal: "paid"})
	d.wantReceived(t, project, run, map[string][]string{"h": {string(signalPayload(keyed))}})
	if !d.runs.remembering.fits(project, 0, now.Add(time.Minute)) {
		t.Error("nothing fits a minute later")
	}
}
