package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// newSignal returns a signal of the test project; the options set what matters to the test.
func newSignal(data string, options ...func(*store.Signal)) store.Signal {
	s := store.Signal{Project: project, Name: "paid", Data: []byte(data)}
	for _, o := range options {
		o(&s)
	}
	return s
}

func withKey(key string) func(*store.Signal) { return func(s *store.Signal) { s.Key = key } }

func named(name string) func(*store.Signal) { return func(s *store.Signal) { s.Name = name } }

// engine returns the replica's engine.
func (r *replica) engine() *Engine {
	return New(r.Queue, eventlog.New(r.pool, r.hub, r.Queue, time.Now))
}

func (r *replica) postSignal(t testing.TB, keep time.Duration, s store.Signal) store.Signal {
	t.Helper()
	stored, first, err := r.engine().PostSignal(t.Context(), s, keep)
	if err != nil || !first {
		t.Fatalf("post %s: %v, %v", s.Data, first, err)
	}
	return stored
}

// hook describes a hook of a run.
type hook struct {
	id, signal, condition string
	lookBack              time.Duration
}

func (h hook) request() eventlog.Request {
	return eventlog.Request{
		Type: entities.EventHookCreated, CorrelationID: h.id, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{
			Token: "rh_" + ulid.Make().String(), Signal: h.signal, Condition: h.condition, LookBackMS: h.lookBack.Milliseconds(),
		},
	}
}

// startWithHooks starts a run that has the hooks.
func (d *server) startWithHooks(t testing.TB, in entities.Project, hooks ...hook) entities.RunID {
	t.Helper()
	id := entities.NewRunID(time.Now())
	requests := []eventlog.Request{{
		Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte("null"),
		Data: entities.EventData{
			DeploymentID: deployment, WorkflowName: "order", Driver: entities.DriverServer,
			Attributes: map[string]string{"order": "7"},
		},
	}}
	for _, h := range hooks {
		requests = append(requests, h.request())
	}
	if _, err := d.log.AppendAll(t.Context(), in, id, requests, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	return id
}

// received returns the payloads that each hook of a run received, in order.
func (d *server) received(t testing.TB, in entities.Project, id entities.RunID) map[string][]string {
	t.Helper()
	page, err := d.log.Events(t.Context(), in, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, e := range page.Events {
		if e.Type == entities.EventHookReceived {
			got[e.CorrelationID] = append(got[e.CorrelationID], string(e.Payload))
		}
	}
	return got
}

func (d *server) wantReceived(t testing.TB, in entities.Project, id entities.RunID, want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, d.received(t, in, id)); diff != "" {
		t.Errorf("run %s received (-want +got):\n%s", id, diff)
	}
}

// claim claims the work with the subject, even if it is leased.
func (d *server) claim(t testing.TB, work message.Work, subject string) queue.Delivery {
	t.Helper()
	ticket := tickets.Ticket{}
	d.Scan(t, `UPDATE messages SET lease = '', holder = '', ticket = greatest(ticket, 1) WHERE work = $1 AND subject = $2 RETURNING id, ticket`,
		[]any{work, subject}, &ticket.MessageID, &ticket.Number)
	taken, ok, err := d.Claim(t.Context(), ticket, "rh_"+ulid.Make().String(), "", 5*time.Minute)
	if err != nil || !ok {
		t.Fatalf("claim of %s %s: %v, %v", work, subject, ok, err)
	}
	return taken
}

// claimFrom claims the work on another server, for this one to perform.
func (d *server) claimFrom(t testing.TB, home *server, work message.Work, subject string) queue.Delivery {
	t.Helper()
	return d.newWorker(t).Bind(home.claim(t, work, subject))
}

func (d *server) dispatchSignal(t testing.TB, s store.Signal) {
	t.Helper()
	if err := newSignalDispatch(d.runs).dispatch(t.Context(), d.claimFrom(t, d, message.WorkSignal, string(s.ID))); err != nil {
		t.Fatalf("dispatch signal: %v", err)
	}
}

func (d *server) replaySignals(t testing.TB, hook string) {
	t.Helper()
	if err := newSignalDispatch(d.runs).replay(t.Context(), d.claimFrom(t, d, message.WorkLookBack, hook)); err != nil {
		t.Fatalf("replay signals: %v", err)
	}
}

// countSignalWork returns the number of messages with work for signals or, of idle servers, their dispatch alone.
func (d *server) countSignalWork(t testing.TB, works ...message.Work) int {
	t.Helper()
	if works == nil {
		works = []message.Work{message.WorkSignal, message.WorkLookBack}
	}
	return d.Count(t, `SELECT count(*) FROM messages WHERE work = ANY ($1)`, works)
}

// TestSignalEndsARun whose hook was created by a command and has a condition. One of the signals came before its hook.
func TestSignalEndsARun(t *testing.T) {
	t.Parallel()
	f := serve(t, func(c *functionCall) {
		switch payload, ok := c.log["hook_received payment"]; {
		case ok:
			c.reply(map[string]any{"type": "complete", "output": payload})
		default:
			c.reply(map[string]any{"type": "openHook", "id": "payment", "signal": map[string]any{
				"name": "paid", "condition": "data.order == run.attributes.order", "lookBack": "10m",
			}})
		}
	})
	d := startServer(t, f)
	of := func(order string) func(*eventlog.Request) {
		return func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"order": order} }
	}
	early := d.postSignal(t, time.Hour, newSignal(`{"order": "a"}`))
	a, b := d.startRun(t, "null", of("a")), d.startRun(t, "null", of("b"))
	wantEnd := func(id entities.RunID, payload string) {
		t.Helper()
		if status, _ := d.waitForEnd(t, id); status != entities.RunCompleted {
			t.Errorf("run ended %s; its log is\n%s", status, d.describe(t, id))
		}
		d.wantReceived(t, project, id, map[string][]string{"payment": {payload}})
	}
	wantEnd(a, fmt.Sprintf(`{"signal":"paid","id":%q,"data":{"order": "a"}}`, early.ID))
	testdb.Eventually(t, "the hook is open", func() bool {
		return d.Count(t, `SELECT count(*) FROM hooks WHERE run_id = $1`, b) == 1
	})
	d.postSignal(t, 0, newSignal(`{"order": "c"}`))
	late := d.postSignal(t, 0, newSignal(`{ "order":"b","x":"<é>\u0000" }`))
	wantEnd(b, fmt.Sprintf(`{"signal":"paid","id":%q,"data":{ "order":"b","x":"<é>\u0000" }}`, late.ID))
	testdb.Eventually(t, "no work is left", func() bool { return d.countSignalWork(t) == 0 })
	list, next, err := New(d.Queue, d.log).Signals(t.Context(), project, "", pg.Page{Limit: 10})
	if err != nil || next != "" || len(list) != 3 || list[0].ID != early.ID {
		t.Errorf("got %v, %q, %v; want the one that is kept and two that are remembered", list, next, err)
	}
}

// TestBadConditionIsRefused when its hook is created. The error has the position in the condition.
func TestBadConditionIsRefused(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	id := d.startWithHooks(t, project)
	work := d.claim(t, message.WorkRun, "")
	for condition, ok := range map[string]bool{`data.n >`: false, `data.n > 1`: true} {
		body := fmt.Sprintf(`{"commands":[{"type":"openHook","id":"h","signal":{"name":"paid","condition":%q}}]}`, condition)
		_, err := d.runs.Command(t.Context(), callOf(id, work.Lease), []byte(body))
		if ok != (err == nil) || !ok && !strings.Contains(err.Error(), "command 0: openHook: condition: line 1, column") {
			t.Errorf("%s: got error %v", condition, err)
		}
	}
}

func TestSignalsResumeMatchingHooks(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	id := d.startWithHooks(t, project,
		hook{id: "all", signal: "paid"},
		hook{id: "much", signal: "paid", condition: `data.n > 100`},
		hook{id: "mine", signal: "paid", condition: `data.order == run.attributes.order && run.id != ""`},
		hook{id: "odd", signal: "paid", condition: `data.no.such.field == 1`},
		hook{id: "other", signal: "shipped"},
		hook{id: "none"})
	ended := d.startWithHooks(t, project, hook{id: "gone", signal: "paid"})
	closed := d.startWithHooks(t, project, hook{id: "closed", signal: "paid"})
	for run, r := range map[entities.RunID]eventlog.Request{
		ended:  {Type: entities.EventRunCancelled},
		closed: {Type: entities.EventHookDisposed, CorrelationID: "closed"},
	} {
		r.RunID = run
		if _, err := d.log.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
	}
	payload := func(s store.Signal) string {
		return fmt.Sprintf(`{"signal":"paid","id":%q,"data":%s}`, s.ID, s.Data)
	}
	large := d.postSignal(t, 0, newSignal(`{"n":101,"order":"7"}`))
	d.dispatchSignal(t, large)
	small := d.postSignal(t, 0, newSignal(`{"n":100}`))
	d.dispatchSignal(t, small)
	d.dispatchSignal(t, d.postSignal(t, 0, newSignal(`1`, named("nobody's"))))
	d.wantReceived(t, project, id, map[string][]string{
		"all": {payload(large), payload(small)}, "much": {payload(large)}, "mine": {payload(large)},
	})
	d.wantReceived(t, project, ended, map[string][]string{})
	d.wantReceived(t, project, closed, map[string][]string{})
	if n := d.countSignalWork(t, message.WorkSignal); n != 0 {
		t.Errorf("%d work messages are left", n)
	}
}

// TestHookReceivesEarlierSignals within its look-back time, if they are still kept, in the order they were posted.
func TestHookReceivesEarlierSignals(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	ago := func(s store.Signal, at, kept time.Duration) store.Signal {
		d.dispatchSignal(t, s)
		d.Exec(t, `UPDATE signals SET created_at = now() - $2::interval, keep_until = now() - $3::interval,
			expires_at = now() + interval '2 h' WHERE id = $1`, s.ID, at, kept)
		return s
	}
	hour := func(data string, options ...func(*store.Signal)) store.Signal {
		return d.postSignal(t, time.Hour, newSignal(data, options...))
	}
	ago(hour(`"before its time"`), 11*time.Minute, -time.Hour)
	second := ago(hour(`"second"`), 2*time.Minute, -time.Hour)
	first := ago(hour(`"first"`), 9*time.Minute, -time.Minute)
	ago(hour(`"not kept until now"`), 9*time.Minute, time.Minute)
	ago(hour(`"another name"`, named("shipped")), time.Minute, -time.Hour)
	d.dispatchSignal(t, d.postSignal(t, 0, newSignal(`"not kept"`)))
	want := []string{}
	for _, s := range []store.Signal{first, second} {
		want = append(want, fmt.Sprintf(`{"signal":"paid","id":%q,"data":%s}`, s.ID, s.Data))
	}
	for range signalsPage {
		s := hour(`"many"`)
		d.dispatchSignal(t, s)
		want = append(want, fmt.Sprintf(`{"signal":"paid","id":%q,"data":"many"}`, s.ID))
	}
	id := d.startWithHooks(t, project,
		hook{id: "back", signal: "paid", lookBack: 10 * time.Minute},
		hook{id: "picky", signal: "paid", lookBack: 10 * time.Minute, condition: `data == "second"`},
		hook{id: "ahead", signal: "paid"})
	for _, hook := range []string{"back", "picky", "ahead"} {
		d.replaySignals(t, hook)
	}
	d.wantReceived(t, project, id, map[string][]string{"back": want, "picky": want[1:2]})
	if d.countSignalWork(t) != 0 {
		t.Errorf("%d work messages are left", d.countSignalWork(t))
	}
}

func TestRacersPostOneSignal(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	replicas := []*replica{newReplica(t, dsn), newReplica(t, dsn)}
	const racers = 16
	var all sync.WaitGroup
	var mu sync.Mutex
	ids, firsts := map[store.SignalID]int{}, 0
	for i := range racers {
		all.Go(func() {
			s, first, err := replicas[i%2].engine().PostSignal(t.Context(), newSignal(`{"n":1}`, withKey("key")), 0)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[s.ID]++
			if first {
				firsts++
			}
		})
	}
	all.Wait()
	r := replicas[0]
	if messages := r.Count(t, `SELECT count(*) FROM messages`); len(ids) != 1 || firsts != 1 || messages != 1 {
		t.Errorf("got IDs %v, %d first and %d messages, want one of each", ids, firsts, messages)
	}
	_, _, err := r.engine().PostSignal(t.Context(), newSignal(`{"n":2}`, withKey("key")), 0)
	testdb.WantError(t, "other data", err, entities.ErrKeyReused)
	r.Want(t, "signals are stored", 1, `SELECT count(*) FROM signals`)
	r.postSignal(t, 0, newSignal(`{"n":2}`, withKey("key"), named("shipped")))
	r.postSignal(t, 0, newSignal(`{"n":2}`, withKey("other-key")))
	r.postSignal(t, 0, newSignal(`{"n":2}`))
	r.postSignal(t, 0, newSignal(`{"n":2}`))
}

// TestSignalKeyOutlivesItsDispatch for a day.
func TestSignalKeyOutlivesItsDispatch(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	first := d.postSignal(t, 0, newSignal(`1`, withKey("key")))
	id := d.startWithHooks(t, project, hook{id: "h", signal: "paid"})
	d.dispatchSignal(t, first)
	again, fresh, err := New(d.Queue, d.log).PostSignal(t.Context(), newSignal(`1`, withKey("key")), 0)
	if n := d.countSignalWork(t, message.WorkSignal); err != nil || fresh || again.ID != first.ID || n != 0 {
		t.Errorf("repeated: got %v, %v, %v and %d pieces of work; want the first", again.ID, fresh, err, n)
	}
	if wait := time.Until(first.ExpiresAt); wait < 23*time.Hour || wait > 25*time.Hour {
		t.Errorf("expires in %s", wait)
	}
	if got := d.received(t, project, id)["h"]; len(got) != 1 {
		t.Errorf("received %q", got)
	}
}

func TestI9SignalsStayInTheirProject(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	const stranger entities.Project = "stranger"
	theirs := func(s *store.Signal) { s.Project = stranger }
	kept := d.postSignal(t, time.Hour, newSignal(`1`, theirs, withKey("key")))
	here := d.startWithHooks(t, project, hook{id: "h", signal: "paid", lookBack: time.Hour})
	there := d.startWithHooks(t, stranger, hook{id: "h2", signal: "paid"})
	d.dispatchSignal(t, kept)
	d.replaySignals(t, "h")
	d.wantReceived(t, project, here, map[string][]string{})
	d.wantReceived(t, stranger, there, map[string][]string{"h2": {string(signalPayload(kept))}})
	d.postSignal(t, 0, newSignal(`2`, withKey("key"))) // the same key in another project is no repetition
	list, _, err := New(d.Queue, d.log).Signals(t.Context(), project, "", pg.Page{Limit: 10})
	if err != nil || len(list) != 1 || list[0].Project != project {
		t.Errorf("list: got %v, %v", list, err)
	}
	if _, err := store.SignalByID(t.Context(), d.pool, project, kept.ID); err == nil {
		t.Error("read another project's signal")
	}
}

func TestSignalsAreDeletedWhenTheyExpire(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	kept := d.postSignal(t, 2*time.Hour, newSignal(`"kept"`))
	over := d.postSignal(t, time.Minute, newSignal(`"over"`))
	late := d.postSignal(t, time.Minute, newSignal(`"just over"`))
	forgotten, remembered := d.postSignal(t, 0, newSignal(`"forgotten"`)), d.postSignal(t, 0, newSignal(`"remembered"`))
	for _, s := range []store.Signal{kept, over, late, forgotten, remembered} {
		d.dispatchSignal(t, s)
	}
	ahead := d.postSignal(t, 0, newSignal(`"not dispatched yet"`))
	d.Exec(t, `UPDATE signals SET created_at = now() - interval '1 d', keep_until = now() - interval '61 min',
		expires_at = now() - interval '61 min' WHERE id = ANY($1)`, []store.SignalID{over.ID, ahead.ID})
	d.Exec(t, `UPDATE signals SET expires_at = now() - interval '59 min',
		created_at = now() - interval '1 d', keep_until = now() - interval '1 h' WHERE id = $1`, late.ID)
	d.Exec(t, `UPDATE signals SET created_at = now() - interval '1 h', keep_until = now() - interval '1 h',
		expires_at = now() - CASE id WHEN $1 THEN interval '6 min' ELSE interval '4 min' END WHERE id IN ($1, $2)`,
		forgotten.ID, remembered.ID)
	if err := store.DeleteSpentSignals(t.Context(), d.pool); err != nil {
		t.Fatal(err)
	}
	list, _, err := New(d.Queue, d.log).Signals(t.Context(), project, "", pg.Page{Limit: 10})
	var got []store.SignalID
	for _, s := range list {
		got = append(got, s.ID)
	}
	if diff := cmp.Diff([]store.SignalID{kept.ID, late.ID, remembered.ID, ahead.ID}, got); diff != "" || err != nil {
		t.Errorf("left: %v (-want +got):\n%s", err, diff)
	}
	d.dispatchSignal(t, ahead)
	if _, err := store.SignalByID(t.Context(), d.pool, project, ahead.ID); err == nil {
		t.Error("a signal dispatched after it expired was not deleted")
	}
}

func TestInvalidSignalsAreRefused(t *testing.T) {
	t.Parallel()
	r := newReplica(t, testdb.New(t))
	runs := r.engine()
	for name, try := range map[string]struct {
		signal store.Signal
		keep   time.Duration
	}{
		"no name":    {signal: newSignal(`1`, named(""))},
		"odd name":   {signal: newSignal(`1`, named("a\x00"))},
		"no data":    {signal: newSignal(``)},
		"not JSON":   {signal: newSignal(`{`)},
		"two values": {signal: newSignal(`1 2`)},
		"odd id":     {signal: newSignal(`1`, withKey("a b"))},
		"too large":  {signal: newSignal(`"` + strings.Repeat("x", MaxSignal) + `"`)},
		"negative":   {signal: newSignal(`1`), keep: -time.Second},
		"too long":   {signal: newSignal(`1`), keep: MaxKeep + 1},
	} {
		_, _, err := runs.PostSignal(t.Context(), try.signal, try.keep)
		testdb.WantError(t, name, err, entities.ErrInvalid)
	}
	r.Want(t, "rows were written", 0, `SELECT (SELECT count(*) FROM signals) + (SELECT count(*) FROM messages)`)
}
