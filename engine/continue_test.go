package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// notes is the hook of the inbox that the runs of these tests have.
var notes = string(inbox.HookID("notes"))

func openNotes() eventlog.Request {
	return eventlog.Request{
		Type: entities.EventHookCreated, CorrelationID: notes, SpecVersion: entities.SpecDriven, FreshToken: true,
		Data: entities.EventData{Token: inbox.NewToken()},
	}
}

func note(id string) eventlog.Request {
	return eventlog.Request{
		Type: entities.EventHookReceived, CorrelationID: notes, SpecVersion: entities.SpecDriven, Payload: []byte(`"` + id + `"`),
		Data: entities.EventData{MessageID: id, ResumeID: inbox.ResumeID("notes", id), ResumeDigest: id},
	}
}

// startWithNotes starts a run with the inbox, and messages to it.
func (d *server) startWithNotes(t *testing.T, input string, data entities.EventData, messages ...string) entities.RunID {
	t.Helper()
	data.DeploymentID, data.WorkflowName = deployment, "order"
	then := []eventlog.Request{openNotes()}
	for _, id := range messages {
		then = append(then, note(id))
	}
	run, _, err := d.log.Start(t.Context(), project, eventlog.NewRun(d.log.Now(), []byte(input), data), then...)
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// received returns the payloads that a hook has received, and the positions of their events.
func (c *functionCall) received(t *testing.T, hook string) (payloads []string, seqs []int64) {
	for _, text := range c.Events {
		var e struct {
			Seq                 int64
			Type, CorrelationID string
			Payload             json.RawMessage
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Error(err)
		}
		if e.Type == "hook_received" && e.CorrelationID == hook {
			payloads, seqs = append(payloads, string(e.Payload)), append(seqs, e.Seq)
		}
	}
	return payloads, seqs
}

// chain returns the runs as which a run has continued, itself the first.
func (d *server) chain(t *testing.T, id entities.RunID) (runs []entities.Run) {
	t.Helper()
	for id != "" {
		run, err := store.RunByID(t.Context(), d.pool, project, id)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(runs); n > 0 && run.ContinuedFrom != runs[n-1].ID {
			t.Errorf("run %s continues %q, want %s", id, run.ContinuedFrom, runs[n-1].ID)
		}
		runs, id = append(runs, run), run.ContinuedAs
	}
	return runs
}

// waitForLast waits for the end of the last run of a chain.
func (d *server) waitForLast(t *testing.T, id entities.RunID) entities.Run {
	t.Helper()
	var last entities.Run
	testdb.Eventually(t, "the last run has ended", func() bool {
		runs := d.chain(t, id)
		last = runs[len(runs)-1]
		return last.Status.Ended() && last.ContinuedAs == ""
	})
	return last
}

// TestRunContinuesWithWhatItHas: the next run has the key, attributes, store, deadline and inbox of the run, and the
// messages that it has not read.
func TestRunContinuesWithWhatItHas(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		messages, seqs := c.received(t, notes)
		if string(c.Run.Input) == `1` {
			c.reply(
				object{"type": "setStore", "id": "s", "values": object{"balance": 7, "gone": 1}},
				object{"type": "setStore", "id": "t", "values": object{"gone": nil}},
				object{"type": "setAttributes", "attributes": object{"stage": "two"}},
				object{"type": "openHook", "id": "other", "token": "other"},
				object{"type": "startChild", "id": "kid", "workflow": "kid"},
				object{"type": "continueAs", "input": 2, "read": object{"notes": seqs[0]}},
			)
			return
		}
		if c.Run.Workflow == "kid" {
			c.reply(object{"type": "wait", "id": "w", "for": "1h"})
			return
		}
		c.reply(object{"type": "complete", "output": []any{
			c.Run.Input, c.Run.Key, c.Run.Attributes, c.Run.Store, c.Run.Deadline, messages,
		}})
	}))
	deadline := d.log.Now().Add(1e12).UTC().Truncate(1e6)
	id := d.startWithNotes(t, `1`, entities.EventData{
		UniqueKey: "k", Attributes: map[string]string{"stage": "one"}, Deadline: &deadline,
	}, "m1", "m2", "m3")
	last := d.waitForLast(t, id)
	at, _ := deadline.MarshalText()
	d.wantEnd(t, last.ID, entities.RunCompleted,
		`[2,"k",{"stage":"two"},{"balance":7},"`+string(at)+`",["\"m2\"","\"m3\""]]`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	d.waitForEmptyQueue(t)
	if n := d.Count(t, `SELECT count(*) FROM hooks`) + d.Count(t, `SELECT count(*) FROM runs WHERE completed_at IS NULL`); n > 0 {
		t.Errorf("%d hooks or runs are open", n)
	}
	for _, run := range d.chain(t, id) {
		d.wantFold(t, run.ID)
	}
}

// TestParentHearsOfTheLast: a child that continues reports when the last run has ended.
func TestParentHearsOfTheLast(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		switch input := string(c.Run.Input); {
		case c.Run.Workflow == "order" && c.has("step_completed", "kid") && c.has("step_failed", "endless"):
			c.reply(object{"type": "complete", "output": []any{c.log["step_completed kid"], c.log["step_failed endless"]}})
		case c.Run.Workflow == "order":
			commands := []map[string]any{
				{"type": "startChild", "id": "kid", "workflow": "kid", "input": 1},
				{"type": "startChild", "id": "endless", "workflow": "kid", "input": 9},
			}
			if c.has("step_completed", "kid") {
				commands = append(commands, object{"type": "cancelStep", "id": "endless", "reason": "enough"})
			}
			c.reply(commands...)
		case input == `3`:
			c.reply(object{"type": "complete", "output": "three"})
		case input == `8`:
			c.reply(object{"type": "openHook", "id": "h"})
		default:
			var n int
			_ = json.Unmarshal(c.Run.Input, &n)
			step := map[bool]int{true: 1, false: -1}[n < 5]
			c.reply(object{"type": "continueAs", "input": n + step})
		}
	}))
	id := d.startRun(t, `null`)
	status, output := d.waitForEnd(t, id)
	var got []json.RawMessage
	if err := json.Unmarshal([]byte(output), &got); err != nil || status != entities.RunCompleted {
		t.Fatalf("the parent is %s with %s", status, output)
	}
	var failure struct{ Code, Message string }
	if err := json.Unmarshal(got[1], &failure); err != nil || failure.Code != CodeChildCancelled || string(got[0]) != `"three"` {
		t.Errorf("the parent got %s", got)
	}
}

// TestAskedRunEndsInsteadOfContinuing: what ends there has nothing to undo.
func TestAskedRunEndsInsteadOfContinuing(t *testing.T) {
	t.Parallel()
	called, answer := make(chan bool, 9), make(chan bool)
	d := startServer(t, serve(t, func(c *functionCall) {
		called <- true
		<-answer
		c.reply(object{"type": "continueAs", "input": 2})
	}))
	for grace, want := range map[string]entities.RunStatus{"1m": entities.RunCancelled, "": entities.RunFailed} {
		id := d.startRun(t, `1`)
		testdb.Receive(t, "the call", called)
		r := eventlog.Request{RunID: id, Type: entities.EventCancelRequested, SpecVersion: entities.SpecDriven, Grace: 1e11}
		if grace == "" {
			r.Data.Reason, r.Data.ErrorCode = "timeout", "timeout"
		}
		if _, err := d.log.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
		answer <- true
		if status, _ := d.waitForEnd(t, id); status != want || len(d.chain(t, id)) != 1 {
			t.Errorf("the run is %s, and continues as %d others", status, len(d.chain(t, id))-1)
		}
	}
}

// TestCancellingTheFirstEndsTheLast: clients that race with an endless loop cancel it by the ID of its first run.
func TestCancellingTheFirstEndsTheLast(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) { c.reply(object{"type": "continueAs"}) }))
	id := d.startRun(t, `1`)
	testdb.Eventually(t, "it has continued often", func() bool { return len(d.chain(t, id)) > 20 })
	var all sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range 8 {
		all.Go(func() {
			run, did, err := d.log.Cancel(t.Context(), project, eventlog.Request{RunID: id})
			if err != nil || run.Status != entities.RunCancelled {
				t.Errorf("got run %s, %s, error %v", run.ID, run.Status, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if did {
				done++
			}
		})
	}
	all.Wait()
	d.waitForEmptyQueue(t)
	if last := d.waitForLast(t, id); last.Status != entities.RunCancelled || done != 1 {
		t.Errorf("the last run is %s; %d clients cancelled it", last.Status, done)
	}
}

// TestContinuationsCostStarts: a run that continues in a tight loop stops at the limit of its project, and goes on when
// that is raised.
func TestContinuationsCostStarts(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		var n int
		if _ = json.Unmarshal(c.Run.Input, &n); n == 7 {
			c.reply(object{"type": "complete", "output": n})
			return
		}
		c.reply(object{"type": "continueAs", "input": n + 1})
	}))
	d.Exec(t, `UPDATE projects SET daily_starts = 5`)
	id := d.startRun(t, `1`)
	testdb.Eventually(t, "the answer is refused", func() bool {
		list, _, err := d.Messages(t.Context(), project, queue.Filter{ErrorContains: "may start 5"}, pg.Page{Limit: 10})
		return err == nil && len(list) == 1
	})
	if n := len(d.chain(t, id)); n != 5 {
		t.Errorf("there are %d runs, want 5", n)
	}
	d.Exec(t, `UPDATE projects SET daily_starts = NULL`)
	testdb.Eventually(t, "it goes on", func() bool {
		d.Exec(t, `UPDATE messages SET due_at = now() WHERE lease = ''`)
		return len(d.chain(t, id)) == 7
	})
	d.wantEnd(t, d.waitForLast(t, id).ID, entities.RunCompleted, `7`)
}

// TestSlotGoesToTheNextRun: a run that waits for the slot does not come in between.
func TestSlotGoesToTheNextRun(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		switch string(c.Run.Input) {
		case `1`:
			c.reply(object{"type": "continueAs", "input": 2})
		case `2`:
			<-release
			c.reply(object{"type": "complete"})
		default:
			c.reply(object{"type": "complete"})
		}
	}))
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	first := d.startRun(t, `1`, limits(slot("one", "k")))
	other := d.startRun(t, `9`, limits(slot("one", "k")))
	var next entities.RunID
	testdb.Eventually(t, "the next run has begun", func() bool {
		runs := d.chain(t, first)
		next = runs[len(runs)-1].ID
		return len(runs) == 2 && d.status(t, next) == entities.RunRunning
	})
	d.Want(t, "slots of the next run", 1, `SELECT count(*) FROM permits WHERE run_id = $1 AND granted_at IS NOT NULL`, next)
	if s := d.status(t, other); s != entities.RunPending {
		t.Errorf("the run that waits is %s", s)
	}
	close(release)
	d.wantEnd(t, other, entities.RunCompleted, `null`)
	d.wantNoPermits(t)
}

// collected is the input of a run that collects messages, and goes on as another one when it has some.
type collected struct{ All []string }

// collects returns a function that collects what a hook receives, in runs that continue each other, until it has so
// much. It dies at times.
func collects(t *testing.T, hook string, want int, openHook ...map[string]any) func(*functionCall) {
	return func(c *functionCall) {
		var in collected
		if err := json.Unmarshal(c.Run.Input, &in); err != nil {
			t.Error(err)
		}
		messages, seqs := c.received(t, hook)
		if rand.IntN(20) == 0 {
			panic(http.ErrAbortHandler)
		}
		n := len(messages)
		if len(openHook) == 0 { // an inbox may be read in part
			n = min(n, 1+rand.IntN(5))
		}
		in.All = append(in.All, messages[:n]...)
		switch {
		case len(in.All) >= want:
			c.reply(object{"type": "complete", "output": in})
		case n > 0:
			read := object{}
			if len(openHook) == 0 {
				read["notes"] = seqs[n-1]
			}
			c.reply(object{"type": "continueAs", "input": in, "read": read})
		default:
			c.reply(openHook...)
		}
	}
}

// wantCollected checks that the last run has collected all messages once, those of each sender in order.
func (d *server) wantCollected(t *testing.T, id entities.RunID, senders, each int) {
	t.Helper()
	last := d.waitForLast(t, id)
	_, output := d.waitForEnd(t, last.ID)
	var got collected
	if err := json.Unmarshal([]byte(output), &got); err != nil {
		t.Fatal(err)
	}
	bySender := make([][]int, senders)
	for _, text := range got.All {
		var sender, n int
		if _, err := fmt.Sscanf(text, `"%d/%d"`, &sender, &n); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		bySender[sender] = append(bySender[sender], n)
	}
	want := make([]int, each)
	for i := range want {
		want[i] = i
	}
	for i, got := range bySender {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("messages of sender %d (-want +got):\n%s", i, diff)
		}
	}
	runs := d.chain(t, id)
	t.Logf("%d messages in %d runs", len(got.All), len(runs))
	for _, run := range runs {
		d.wantFold(t, run.ID)
	}
}

// TestUnreadMessagesMove: senders that know the first run only, and send each message twice, race with runs that
// continue each other on two servers, whose function dies at times. Each message is read once, in order.
func TestUnreadMessagesMove(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 25
	f := serve(t, collects(t, notes, senders*each))
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	for _, d := range servers {
		d.serveWith(t, f)
	}
	id := servers[0].startWithNotes(t, `{}`, entities.EventData{})
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			for i := range each {
				r := note(fmt.Sprintf("%d/%d", sender, i))
				r.RunID = id
				var twice sync.WaitGroup
				for _, d := range servers {
					twice.Go(func() {
						if _, err := d.log.Send(t.Context(), project, r); err != nil && !isOver(t, servers[0], id) {
							t.Errorf("message %d of %d: %v", i, sender, err)
						}
					})
				}
				twice.Wait()
			}
		})
	}
	all.Wait()
	servers[0].wantCollected(t, id, senders, each)
}

// isOver reports whether all of the runs have ended.
func isOver(t *testing.T, d *server, id entities.RunID) bool {
	runs := d.chain(t, id)
	return runs[len(runs)-1].Status.Ended()
}

// TestSignalsReachTheNextRun: each signal reaches one of the runs that continue each other, whose hooks are closed in
// between.
func TestSignalsReachTheNextRun(t *testing.T) {
	t.Parallel()
	const each = 30
	open := object{"type": "openHook", "id": "s", "signal": object{"name": "paid"}}
	f := serve(t, func(c *functionCall) {
		var in struct{ All []json.RawMessage }
		_ = json.Unmarshal(c.Run.Input, &in)
		payloads, _ := c.received(t, "s")
		for _, p := range payloads {
			var s struct{ Data json.RawMessage }
			if err := json.Unmarshal([]byte(p), &s); err != nil {
				t.Error(err)
			}
			in.All = append(in.All, s.Data)
		}
		switch {
		case len(in.All) >= each:
			c.reply(object{"type": "complete", "output": in.All})
		case len(payloads) > 0:
			c.reply(object{"type": "continueAs", "input": in})
		default:
			c.reply(open)
		}
	})
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	for _, d := range servers {
		d.serveWith(t, f)
	}
	d := servers[0]
	id := d.startRun(t, `{}`)
	for i := range each {
		if _, _, err := servers[i%2].runs.PostSignal(t.Context(), newSignal(fmt.Sprint(i), named("paid")), 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	_, output := d.waitForEnd(t, d.waitForLast(t, id).ID)
	if err := json.Unmarshal([]byte(output), &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs", len(d.chain(t, id)))
	slices.Sort(got)
	want := make([]int, each)
	for i := range want {
		want[i] = i
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
}

// TestTooMuchUnreadIsRefused: nothing is lost, and the run says why it does not go on.
func TestTooMuchUnreadIsRefused(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) { c.reply(object{"type": "continueAs"}) }))
	id := d.startWithNotes(t, `1`, entities.EventData{StartAt: new(d.log.Now().Add(1e12))})
	text := `"` + string(slices.Repeat([]byte("x"), eventlog.MaxMovedBytes/4)) + `"`
	for range 4 {
		r := note("")
		r.RunID, r.Payload, r.Data = id, []byte(text), entities.EventData{}
		if _, err := d.log.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
	}
	d.Exec(t, `UPDATE messages SET due_at = now()`)
	testdb.Eventually(t, "the answer is refused", func() bool {
		list, _, err := d.Messages(t.Context(), project, queue.Filter{ErrorContains: "too many unread"}, pg.Page{Limit: 10})
		return err == nil && len(list) == 1
	})
	if n := len(d.chain(t, id)); n != 1 {
		t.Errorf("it continues as %d others", n-1)
	}
}
