package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// limits returns the change that has a run need the limits.
func limits(uses ...entities.LimitUse) func(*eventlog.Request) {
	return func(r *eventlog.Request) { r.Data.Limits = uses }
}

func slot(name, key string) entities.LimitUse { return entities.LimitUse{Name: name, Key: key} }

func (d *server) putLimit(t testing.TB, name string, spec limit.Spec) {
	t.Helper()
	if _, err := limit.NewStore(d.pool, time.Now).Put(t.Context(), project, name, spec); err != nil {
		t.Fatal(err)
	}
}

// putPolicy limits the workflow order, or another one.
func (d *server) putPolicy(t testing.TB, p limit.Policy) {
	t.Helper()
	p.Project, p.Workflow = project, cmp.Or(p.Workflow, "order")
	if _, err := limit.NewStore(d.pool, time.Now).PutPolicy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// counter counts how many calls are under way with each key.
type counter struct {
	mu   sync.Mutex
	now  map[string]int
	most map[string]int
}

func (c *counter) enter(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		c.now, c.most = map[string]int{}, map[string]int{}
	}
	c.now[key]++
	c.most[key] = max(c.most[key], c.now[key])
}

func (c *counter) leave(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[key]--
}

// TestLimitedRunsAreNeverMoreThanAllowed starts runs at two servers, with limits that overlap. The function itself
// counts how many there are at a time. In the end, no permit is left.
func TestLimitedRunsAreNeverMoreThanAllowed(t *testing.T) {
	t.Parallel()
	const runs = 120
	var c counter
	f := serve(t, func(call *functionCall) {
		keys := []string{"all", fmt.Sprintf("%.1s", string(call.log["run_created "])[1:])}
		for _, k := range keys {
			c.enter(k)
		}
		defer func() {
			for _, k := range keys {
				c.leave(k)
			}
		}()
		time.Sleep(5 * time.Millisecond) // the work of the function: without any, too few runs would meet
		call.reply(map[string]any{"type": "complete", "output": "done"})
	})
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].register(t, deployment, f.URL)
	servers[0].putLimit(t, "users", limit.Spec{PerKey: 2})
	servers[0].putLimit(t, "all", limit.Spec{Total: 5, Fair: true})
	for _, d := range servers {
		d.worker(t, d.works)
	}
	ids := make([]entities.RunID, runs)
	startMany(runs, func(i int) {
		user := string(rune('a' + i%4))
		ids[i] = servers[i%2].startRun(t, `"`+user+`"`, limits(slot("users", user), slot("all", user)))
	})
	for _, id := range ids {
		servers[0].wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
	c.wantWithin(t, 5, 2)
	servers[0].wantNoPermits(t)
}

// startMany calls start for each number below n, eight at a time.
func startMany(n int, start func(i int)) {
	var starters errgroup.Group
	starters.SetLimit(8)
	for i := range n {
		starters.Go(func() error {
			start(i)
			return nil
		})
	}
	_ = starters.Wait()
}

// wantWithin checks that at least two were under way at a time, and no more than there may be: of all, and of each key.
func (c *counter) wantWithin(t *testing.T, all, each int) {
	t.Helper()
	if c.most["all"] < 2 {
		t.Error("no two were ever under way at a time: the test shows nothing")
	}
	for key, most := range c.most {
		if key == "all" && most > all || key != "all" && most > each {
			t.Errorf("%d of %s were under way at a time", most, key)
		}
	}
}

// wantNoPermits checks that no permit is left.
func (d *server) wantNoPermits(t *testing.T) {
	t.Helper()
	d.Want(t, "permits are left", 0, `SELECT count(*) FROM permits`)
}

// holding starts a server whose function answers runs with the input "hold" only when it is released.
func holding(t *testing.T) (d *server, release func()) {
	t.Helper()
	released := make(chan struct{})
	f := serve(t, func(call *functionCall) {
		if string(call.log["run_created "]) == `"hold"` {
			select {
			case <-released:
			case <-call.r.Context().Done():
				return
			}
		}
		call.reply(map[string]any{"type": "complete", "output": "done"})
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	d = startServer(t, f)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	return d, release
}

func (d *server) status(t *testing.T, id entities.RunID) (s entities.RunStatus) {
	t.Helper()
	d.Scan(t, `SELECT status FROM runs WHERE id = $1`, []any{id}, &s)
	return s
}

func TestRunWaitsForItsLimit(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	first := d.startRun(t, `"hold"`, limits(slot("one", "k")))
	d.waitForEvent(t, first, "run_started")
	second := d.startRun(t, `"x"`, limits(slot("one", "k")))
	third := d.startRun(t, `"x"`, limits(slot("one", "k")), func(r *eventlog.Request) { r.Data.PriorityMS = 60_000 })
	other := d.startRun(t, `"x"`, limits(slot("one", "other")))
	d.wantEnd(t, other, entities.RunCompleted, `"done"`)
	_, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: second, Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven,
	})
	testdb.WantError(t, "starting a run that waits", err, entities.ErrNotYet)
	if s := d.status(t, second); s != entities.RunPending {
		t.Errorf("the second run is %s while the first one holds the slot", s)
	}
	awaited, err := limit.AwaitedBy(t.Context(), d.pool, project, []string{string(second)}, 10, 10)
	if err != nil || len(awaited) != 1 || awaited[0].Ahead != 1 || awaited[0].Held != 1 {
		t.Errorf("got %+v, error %v; want one slot that is taken, and the urgent run ahead", awaited, err)
	}
	release()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
	d.wantEnd(t, third, entities.RunCompleted, `"done"`)
	var urgentFirst bool
	d.Scan(t, `SELECT (SELECT started_at FROM runs WHERE id = $1) < (SELECT started_at FROM runs WHERE id = $2)`,
		[]any{third, second}, &urgentFirst)
	if !urgentFirst {
		t.Error("the run with a priority started after the one before it")
	}
	d.Want(t, "permits are left", 0, `SELECT count(*) FROM permits`)
}

func TestCancelledRunLeavesTheQueue(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	first := d.startRun(t, `"hold"`, limits(slot("one", "k")))
	d.waitForEvent(t, first, "run_started")
	second := d.startRun(t, `"x"`, limits(slot("one", "k")))
	third := d.startRun(t, `"x"`, limits(slot("one", "k")))
	run, _, err := d.log.Cancel(t.Context(), project, eventlog.Request{RunID: second, Grace: time.Hour})
	if err != nil || run.Status != entities.RunCancelled {
		t.Fatalf("got status %s, error %v; a run that waits has nothing to undo", run.Status, err)
	}
	release()
	d.wantEnd(t, third, entities.RunCompleted, `"done"`)
}

func TestFullLimitRefusesOrCancels(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	defer release()
	request := func(name string) eventlog.Request { return newRun(`"hold"`, limits(slot(name, "k"))) }
	d.putLimit(t, "rejects", limit.Spec{PerKey: 1, OnFull: limit.Reject})
	first := d.startRun(t, `"hold"`, limits(slot("rejects", "k")))
	_, _, err := d.log.Start(t.Context(), project, request("rejects"))
	full, ok := errors.AsType[*limit.FullError](err)
	if !ok || full.Use.Name != "rejects" || full.Held != 1 || full.RetryAfter <= 0 {
		t.Errorf("got error %v, want a FullError that says when to try again", err)
	}
	d.Want(t, "runs after a refused start", 1, `SELECT count(*) FROM runs`)
	_, _, err = d.log.Start(t.Context(), project, request("unknown"))
	testdb.WantError(t, "a limit that does not exist", err, limit.ErrNotFound)

	d.putLimit(t, "newest", limit.Spec{PerKey: 1, OnFull: limit.ReplaceWaiting})
	d.waitForEvent(t, d.startRun(t, `"hold"`, limits(slot("newest", "k"))), "run_started")
	replaced := d.startRun(t, `"x"`, limits(slot("newest", "k")))
	newest := d.startRun(t, `"x"`, limits(slot("newest", "k")))
	if s, _ := d.waitForEnd(t, replaced); s != entities.RunCancelled || d.status(t, newest) != entities.RunPending {
		t.Errorf("the run that waited is %s, the newest %s; want it cancelled, and the newest to wait", s, d.status(t, newest))
	}

	d.putLimit(t, "oldest", limit.Spec{PerKey: 1, OnFull: limit.CancelOldest})
	oldest := d.startRun(t, `"hold"`, limits(slot("oldest", "k")))
	d.waitForEvent(t, oldest, "run_started")
	d.wantEnd(t, d.startRun(t, `"x"`, limits(slot("oldest", "k"))), entities.RunCompleted, `"done"`)
	if s := d.status(t, oldest); s != entities.RunCancelled {
		t.Errorf("the run that held the slot is %s, want cancelled", s)
	}
	d.Exec(t, `UPDATE limits SET paused = true WHERE name = 'oldest'`)
	older := d.startRun(t, `"x"`, limits(slot("oldest", "k")))
	last := d.startRun(t, `"x"`, limits(slot("oldest", "k")))
	if s, _ := d.waitForEnd(t, older); s != entities.RunCancelled || d.status(t, last) != entities.RunPending {
		t.Errorf("of two that wait, the first is %s, the last %s; want cancelled and pending", s, d.status(t, last))
	}
	if s := d.status(t, first); s.Ended() {
		t.Errorf("a run of another limit is %s", s)
	}
}

func TestPolicyLimitsWorkflowsInCode(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "one", Key: "attributes.tenant"}}})
	tenant := func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"tenant": "t"} }
	first := d.startRun(t, `"hold"`, tenant)
	d.waitForEvent(t, first, "run_started")
	second := d.startRun(t, `"x"`, tenant)
	_, err := d.log.Append(t.Context(), project, newRun(`"x"`))
	testdb.WantError(t, "a start without the key", err, entities.ErrInvalid)

	// An app of the Workflow SDK whose run_created got lost starts its run: the run is there, and waits.
	lost := eventlog.Request{
		RunID: entities.NewRunID(time.Now()), Type: entities.EventRunStarted, SpecVersion: 5, Payload: []byte("input"),
		Data: entities.EventData{
			DeploymentID: deployment, WorkflowName: "order", Attributes: map[string]string{"tenant": "t"},
		},
	}
	_, err = d.log.Append(t.Context(), project, lost)
	testdb.WantError(t, "starting a run whose creation got lost", err, entities.ErrNotYet)
	if s := d.status(t, lost.RunID); s != entities.RunPending {
		t.Errorf("it is %s, want pending", s)
	}
	if s := d.status(t, second); s != entities.RunPending {
		t.Errorf("the second run is %s while the first one holds the slot", s)
	}
	release()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
	testdb.Eventually(t, "the app can start its run", func() bool {
		_, err := d.log.Append(t.Context(), project, lost)
		return err == nil
	})
}

// TestChangesOfPoliciesCountForTheNextStart changes what the process remembers of a policy, and its limit.
func TestChangesOfPoliciesCountForTheNextStart(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	store := limit.NewStore(d.pool, time.Now)
	put := func(key string) {
		t.Helper()
		d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "one", Key: key}}})
	}
	put("'first'")
	first := d.startRun(t, `"hold"`) // reads the policy
	d.waitForEvent(t, first, "run_started")
	second := d.startRun(t, `"x"`) // has the policy that is remembered
	put("'other'")
	third := d.startRun(t, `"hold"`)
	d.waitForEvent(t, third, "run_started")
	if s := d.status(t, second); s != entities.RunPending {
		t.Errorf("the second run is %s while the first one holds the slot", s)
	}
	d.putLimit(t, "one", limit.Spec{PerKey: 1, OnFull: limit.Reject})
	_, err := d.log.Append(t.Context(), project, newRun(`"x"`))
	testdb.WantError(t, "a start that finds no slot", err, limit.ErrFull)
	if err := store.DeletePolicy(t.Context(), project, "order"); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, d.startRun(t, `"x"`), entities.RunCompleted, `"done"`)
	release()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
	d.wantEnd(t, third, entities.RunCompleted, `"done"`)
	d.Want(t, "permits are left", 0, `SELECT count(*) FROM permits`)
}

// TestMessageOfALimitedRunWaits checks the gate of the Workflow SDK's own messages.
func TestMessageOfALimitedRunWaits(t *testing.T) {
	t.Parallel()
	const topic = entities.WorkflowTopic + "order"
	calls := make(chan string, 10)
	var d *server
	f := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- string(body)
		if err := d.Acknowledge(r.Context(), project, topic, r.Header.Get("Ce-Vqsreceipthandle")); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(f.Close)
	d = newServer(t, testdb.New(t))
	d.register(t, deployment, f.URL)
	d.register(t, "other", f.URL)
	d.worker(t)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	start := func() entities.RunID {
		r := eventlog.Request{
			RunID: entities.NewRunID(time.Now()), Type: entities.EventRunCreated, SpecVersion: 5, Payload: []byte("input"),
			Data: entities.EventData{
				DeploymentID: deployment, WorkflowName: "order", Limits: []entities.LimitUse{slot("one", "k")},
			},
		}
		if _, err := d.log.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
		_, err := d.Send(t.Context(), message.Message{
			Project: project, Topic: topic, DeploymentID: deployment, RunID: r.RunID, Body: []byte(r.RunID),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.RunID
	}
	first := start()
	if got := testdb.Receive(t, "the first run's message", calls); got != string(first) {
		t.Fatalf("%s was called, want %s", got, first)
	}
	second := start()
	var ticket tickets.Ticket
	d.Scan(t, `SELECT id, ticket FROM messages WHERE run_id = $1`, []any{second}, &ticket.MessageID, &ticket.Number)
	if _, ok, err := d.Claim(t.Context(), ticket, "rh_early", "", time.Minute); ok || err != nil {
		t.Errorf("claimed %v, error %v; want no delivery while the slot is taken", ok, err)
	}
	_, err := d.Send(t.Context(), message.Message{
		Project: project, Topic: topic, DeploymentID: "other", RunID: second, Body: []byte("for another deployment"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := testdb.Receive(t, "a message for another deployment", calls); got != "for another deployment" {
		t.Errorf("%s was called, want the other deployment", got)
	}
	third := start()
	cancel := eventlog.Request{RunID: third, Type: entities.EventRunCancelled, SpecVersion: 5}
	if _, err := d.log.Append(t.Context(), project, cancel); err != nil {
		t.Fatal(err)
	}
	if got := testdb.Receive(t, "the message of a run that was cancelled while it waited", calls); got != string(third) {
		t.Errorf("%s was called, want %s", got, third)
	}
	end := eventlog.Request{RunID: first, Type: entities.EventRunCancelled, SpecVersion: 5}
	if _, err := d.log.Append(t.Context(), project, end); err != nil {
		t.Fatal(err)
	}
	if got := testdb.Receive(t, "the second run's message", calls); got != string(second) {
		t.Errorf("%s was called, want %s", got, second)
	}
}

// TestChildSharesTheSlotOfItsParent has a workflow that is limited to one run start itself.
func TestChildSharesTheSlotOfItsParent(t *testing.T) {
	t.Parallel()
	f := serve(t, func(call *functionCall) {
		switch {
		case string(call.log["run_created "]) == `"child"`:
			call.reply(map[string]any{"type": "complete", "output": "of the child"})
		case call.has("step_completed", "child"):
			call.reply(map[string]any{"type": "complete", "output": "done"})
		default:
			call.reply(map[string]any{"type": "startChild", "id": "child", "workflow": "order", "input": "child"})
		}
	})
	d := startServer(t, f)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "one"}}})
	d.wantEnd(t, d.startRun(t, `"parent"`), entities.RunCompleted, `"done"`)
}

// TestDeadServerLeavesNothingUngranted has a slot freed by a process that dies before it looks who waits.
func TestDeadServerLeavesNothingUngranted(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	first := d.startRun(t, `"hold"`, limits(slot("one", "k")))
	d.waitForEvent(t, first, "run_started")
	second := d.startRun(t, `"x"`, limits(slot("one", "k")))
	d.Exec(t, `DELETE FROM permits WHERE holder = $1`, first) // without a notification
	ctx, cancel := context.WithTimeout(t.Context(), testdb.Timeout)
	defer cancel()
	if run, err := d.log.WaitForEnd(ctx, ctx, project, second); err != nil || run.Status != entities.RunCompleted {
		t.Errorf("got status %s, error %v; want it completed after a heartbeat", run.Status, err)
	}
	release()
}

// TestChildWithAnUnknownLimitIsRefused, as a command of the answer: else the answer would be applied for ever.
func TestChildWithAnUnknownLimitIsRefused(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(call *functionCall) {
		call.reply(map[string]any{"type": "startChild", "id": "child", "workflow": "limited", "input": "x"})
	}))
	d.Exec(t, `
		INSERT INTO policies (project, workflow, limits, priority, created_at, updated_at)
		VALUES ($1, 'limited', '[{"name": "gone"}]', '0', now(), now())`, project)
	id := d.startRun(t, `"parent"`)
	testdb.Eventually(t, "the message says why", func() bool {
		return d.Count(t, `
			SELECT count(*) FROM messages WHERE run_id = $1 AND last_error LIKE '%refused: command 0: %limit gone%'`, id) == 1
	})
}

// TestChildSharesNoRate has a parent and its child start with the same key within the interval of a rate.
func TestChildSharesNoRate(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(call *functionCall) {
		call.reply(map[string]any{"type": "startChild", "id": "child", "workflow": "order", "input": "x"})
	}))
	d.putLimit(t, "hourly", limit.Spec{Rate: 1, Per: time.Hour})
	d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "hourly"}}})
	parent := d.startRun(t, `"parent"`)
	d.waitForEvent(t, parent, "step_created child")
	n := d.Count(t, `
		SELECT count(*) FROM permits p JOIN runs r ON r.id = p.run_id WHERE r.parent_id = $1 AND granted_at IS NULL`, parent)
	if n != 1 {
		t.Errorf("%d children wait for the rate, want 1", n)
	}
}
