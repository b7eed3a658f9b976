package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/why"
)

// watchSlots looks at the database until the test ends, and fails it if more hold slots than the limits allow. It
// returns a function that ends the looks, and says what the most was.
func (d *server) watchSlots(t *testing.T, most map[limit.Bucket]int) (stop func() map[limit.Bucket]int) {
	t.Helper()
	seen, done := map[limit.Bucket]int{}, make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for p, allowed := range most {
				var held int
				err := d.pool.QueryRow(t.Context(), `
					SELECT coalesce(sum(cost), 0) FROM permits
					WHERE name = $1 AND ($2 = '*' OR key = $2) AND granted_at IS NOT NULL`, p.Name, p.Key).Scan(&held)
				if err == nil && held > allowed {
					t.Errorf("%d slots of %v are taken, which has %d", held, p, allowed)
				}
				seen[p] = max(seen[p], held)
			}
		}
	})
	return func() map[limit.Bucket]int {
		close(done)
		looks.Wait()
		return seen
	}
}

// limitedSteps serves a workflow that runs as many steps as its input says, each with the limits "all", and "users" with
// one of three keys. How a step ends depends on its number.
func limitedSteps(t *testing.T, c *counter, steps int) (commands []map[string]any, call func(*functionCall)) {
	t.Helper()
	for i := range steps {
		commands = append(commands, map[string]any{
			"type": "runStep", "id": fmt.Sprint(i), "name": "s", "input": i,
			"retry":  object{"backoff": "10ms", "maxAttempts": 2},
			"limits": []object{{"name": "all"}, {"name": "users", "key": fmt.Sprint(i % 3)}},
		})
	}
	return commands, func(call *functionCall) {
		var n int
		_, _ = fmt.Sscan(string(call.Step.ID), &n)
		for _, k := range []string{"all", fmt.Sprint(n % 3)} {
			c.enter(k)
			defer c.leave(k)
		}
		time.Sleep(5 * time.Millisecond) // the work of the step: without any, too few would meet
		switch n % 5 {
		case 3:
			call.replyAs(http.StatusServiceUnavailable, "")
		case 4:
			call.replyAs(http.StatusBadRequest, "")
		default:
			_, _ = call.w.Write([]byte(`"done"`))
		}
	}
}

// TestLimitedStepsAreNeverMoreThanAllowed has runs at two servers execute steps with limits that overlap. Some steps
// fail, and some are retried. Neither the function nor the database ever counts more than the limits allow, and in the
// end no permit is left.
func TestLimitedStepsAreNeverMoreThanAllowed(t *testing.T) {
	t.Parallel()
	const runs, steps = 20, 10
	var c counter
	commands, step := limitedSteps(t, &c, steps)
	f := serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			step(call)
		case call.ended() == steps:
			call.reply(map[string]any{"type": "complete", "output": "done"})
		default:
			call.reply(commands...)
		}
	})
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].register(t, deployment, f.URL)
	servers[0].putLimit(t, "users", limit.Spec{PerKey: 2})
	servers[0].putLimit(t, "all", limit.Spec{Total: 5, Fair: true})
	for _, d := range servers {
		d.worker(t, d.works)
	}
	stop := servers[0].watchSlots(t, map[limit.Bucket]int{
		{Name: "all", Key: "*"}: 5, {Name: "users", Key: "0"}: 2, {Name: "users", Key: "1"}: 2, {Name: "users", Key: "2"}: 2,
	})
	ids := make([]entities.RunID, runs)
	startMany(runs, func(i int) { ids[i] = servers[i%2].startRun(t, `null`) })
	for _, id := range ids {
		servers[0].wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
	seen := stop()
	if seen[limit.Bucket{Name: "all", Key: "*"}] < 2 {
		t.Error("the database never had two steps under way at a time: the test shows nothing")
	}
	c.wantWithin(t, 5, 2)
	servers[0].wantNoPermits(t)
}

// ended counts the steps that have a result.
func (c *functionCall) ended() (n int) {
	for key := range c.log {
		for _, event := range []string{"step_completed ", "step_failed "} {
			if len(key) > len(event) && key[:len(event)] == event {
				n++
			}
		}
	}
	return n
}

// oneStep starts a server whose workflow runs one step with the fields, and completes with what it has become. Inputs
// "hold" hold the step until it is released.
func oneStep(t *testing.T, fields object) (d *server, release func()) {
	t.Helper()
	released := make(chan struct{})
	f := serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			if string(call.Step.Input) == `"hold"` {
				select {
				case <-released:
				case <-call.r.Context().Done():
					return
				}
			}
			_, _ = call.w.Write([]byte(`"done"`))
		case call.has("step_completed", "x"):
			call.reply(map[string]any{"type": "complete", "output": "done"})
		case call.has("step_failed", "x"):
			call.reply(map[string]any{"type": "complete", "output": call.log["step_failed x"]})
		default:
			command := object{"type": "runStep", "id": "x", "input": call.log["run_created "]}
			for k, v := range fields {
				command[k] = v
			}
			call.reply(command)
		}
	})
	release = sync.OnceFunc(func() { close(released) })
	d = startServer(t, f)
	t.Cleanup(release) // before the server ends, which waits for its calls
	return d, release
}

var needsOne = object{"limits": []object{{"name": "one", "key": "k"}}}

// TestStepWaitsForItsLimit, without a connection and without a delivery, and why says who holds the slot.
func TestStepWaitsForItsLimit(t *testing.T) {
	t.Parallel()
	d, release := oneStep(t, needsOne)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	first := d.startRun(t, `"hold"`)
	d.waitForEvent(t, first, "step_started x")
	second := d.startRun(t, `"x"`)
	r := d.reason(t, second, why.LimitFull)
	if len(r.Holders) != 1 || r.Holders[0].RunID != first || r.Holders[0].StepID != "x" || r.StepID != "x" || r.Since == nil ||
		r.Held != 1 || r.Slots != 1 || r.Ahead != 0 || !slices.Contains(r.Remedies, why.PutLimit) {
		t.Errorf("got %+v", r)
	}
	third := d.startRun(t, `"x"`)
	if r := d.reason(t, third, why.LimitFull); r.Ahead != 1 {
		t.Errorf("got %+v, want one ahead", r)
	}
	d.Want(t, "steps delivered or due", 1, `SELECT count(*) FROM messages WHERE work = 'step' AND (lease <> '' OR due_at < now() + interval '1 year')`)
	release()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
	d.wantEnd(t, third, entities.RunCompleted, `"done"`)
	d.wantEnd(t, first, entities.RunCompleted, `"done"`)
	d.wantNoPermits(t)
}

// TestMoreLetsAWaitingStepGo, which is what the reason names.
func TestMoreLetsAWaitingStepGo(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, needsOne)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	first := d.startRun(t, `"hold"`)
	d.waitForEvent(t, first, "step_started x")
	second := d.startRun(t, `"x"`)
	d.reason(t, second, why.LimitFull)
	d.putLimit(t, "one", limit.Spec{PerKey: 2})
	d.LimitsChanged()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
}

// TestFullLimitRefusesAStep: it fails with a code, and its function is not called.
func TestFullLimitRefusesAStep(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, needsOne)
	d.putLimit(t, "one", limit.Spec{PerKey: 1, OnFull: limit.Reject})
	first := d.startRun(t, `"hold"`)
	d.waitForEvent(t, first, "step_started x")
	second := d.startRun(t, `"x"`)
	d.wantEnd(t, second, entities.RunCompleted, `{"message":"limit one has no slot for key \"k\", of which 1 are taken: `+
		`try again later, or raise the limit","code":"limit_full"}`)
	if n := d.countEvents(t, second, "step_started x"); n != 0 {
		t.Errorf("the step was started %d times", n)
	}
}

// TestWaitingStepHasATimeout, which is over although nothing frees its slot.
func TestWaitingStepHasATimeout(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, object{"limits": []object{{"name": "one", "key": "k"}}, "timeout": "2s"})
	d.putLimit(t, "one", limit.Spec{PerKey: 1, Paused: true})
	id := d.startRun(t, `"x"`)
	d.reason(t, id, why.LimitPaused)
	d.wantEnd(t, id, entities.RunCompleted, `{"message":"the time of the step was over before its limits had a slot","code":"timeout"}`)
	d.wantNoPermits(t)
}

// TestStepWithAnUnknownLimitIsRefused: the message of the run says which command.
func TestStepWithAnUnknownLimitIsRefused(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, needsOne)
	id := d.startRun(t, `"x"`)
	r := d.reason(t, id, why.AnswerRefused)
	if r.Error == nil || r.Error.Message != "the answer was refused: command 0: limit one: limit not found" {
		t.Errorf("got %+v", r.Error)
	}
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.retry(t, r)
	d.wantEnd(t, id, entities.RunCompleted, `"done"`)
}

// TestPolicyLimitsSteps by their names, with keys of the run.
func TestPolicyLimitsSteps(t *testing.T) {
	t.Parallel()
	d, release := oneStep(t, object{"name": "charge"})
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.putPolicy(t, limit.Policy{Steps: map[string][]limit.PolicyUse{"charge": {{Name: "one", Key: "workflow"}}, "other": {{Name: "one"}}}})
	if err := limit.NewStore(d.pool, time.Now).Delete(t.Context(), project, "one", true); err == nil {
		t.Error("a limit was deleted that a policy names for a step")
	}
	first := d.startRun(t, `"hold"`)
	d.waitForEvent(t, first, "step_started x")
	second := d.startRun(t, `"x"`)
	if r := d.reason(t, second, why.LimitFull); r.Key != "order" {
		t.Errorf("got key %q, want the workflow", r.Key)
	}
	release()
	d.wantEnd(t, second, entities.RunCompleted, `"done"`)
}

// TestStepSharesTheSlotOfItsRun: a run and its step need the same slot of one.
func TestStepSharesTheSlotOfItsRun(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, needsOne)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.wantEnd(t, d.startRun(t, `"x"`, limits(slot("one", "k"))), entities.RunCompleted, `"done"`)
}

// TestDeadlockIsTold has two runs hold a slot of one limit each, and wait for the other's by a step.
func TestDeadlockIsTold(t *testing.T) {
	t.Parallel()
	var begun sync.WaitGroup
	begun.Add(2)
	d := startServer(t, serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			_, _ = call.w.Write([]byte(`"done"`))
		case call.has("step_completed", "x"):
			call.reply(map[string]any{"type": "complete", "output": "done"})
		default:
			begun.Done() // neither step gets a slot before both runs have theirs
			begun.Wait()
			call.reply(object{"type": "runStep", "id": "x", "limits": []object{{"name": call.log["run_created "]}}})
		}
	}))
	d.putLimit(t, "a", limit.Spec{PerKey: 1})
	d.putLimit(t, "b", limit.Spec{PerKey: 1})
	first := d.startRun(t, `"b"`, limits(slot("a", "")))
	second := d.startRun(t, `"a"`, limits(slot("b", "")))
	r, other := d.reason(t, first, why.LimitDeadlock), d.reason(t, second, why.LimitDeadlock)
	if !slices.Equal(r.Circle, []entities.RunID{second, first}) || r.StepID != "x" || r.Limit != "b" ||
		!slices.Contains(r.Remedies, why.CancelRun) {
		t.Errorf("got %+v", r)
	}
	if !slices.Equal(other.Circle, []entities.RunID{first, second}) {
		t.Errorf("got circle %v", other.Circle)
	}
	g, err := d.Gauges(t.Context())
	if err != nil || g.DeadlockedRuns != 2 {
		t.Errorf("the gauge says %d runs, error %v; want 2", g.DeadlockedRuns, err)
	}
	if _, _, err := d.log.Cancel(t.Context(), project, eventlog.Request{RunID: second}); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, first, entities.RunCompleted, `"done"`)
}

// The ways in which runs with limited steps end.
const (
	endsAll      = iota // when all steps have ended
	endsEarly           // while steps wait or are under way
	cancelsSteps        // after it has cancelled those that have not ended
	lateSteps           // when the time of all steps is over
	isCancelled         // by the API
	isDeleted           // as retention does
	waysToEnd
)

// TestNoPermitIsLeft after limited steps with every kind of end: their messages go, and the permits with them. Until
// then, those hold slots that are due or under way, and no others. STEPWELL_TEST_LIMITED_STEPS sets how many there are.
func TestNoPermitIsLeft(t *testing.T) {
	t.Parallel()
	const steps = 20
	n, err := strconv.Atoi(cmp.Or(os.Getenv("STEPWELL_TEST_LIMITED_STEPS"), "500"))
	if err != nil {
		t.Fatal(err)
	}
	var c counter
	commands, step := limitedSteps(t, &c, steps)
	d := startServer(t, serve(t, func(call *functionCall) {
		var way int
		_ = json.Unmarshal(call.log["run_created "], &way)
		switch ended := call.ended(); {
		case call.Type == contract.TypeStep:
			step(call)
		case ended == steps, way == endsEarly && ended > 0:
			call.reply(map[string]any{"type": "complete", "output": "done"})
		case way == cancelsSteps && ended > 0:
			var cancels []map[string]any
			for i := range steps {
				cancels = append(cancels, map[string]any{"type": "cancelStep", "id": fmt.Sprint(i)})
			}
			call.reply(append(cancels, map[string]any{"type": "complete", "output": "done"})...)
		case way == lateSteps:
			var late []map[string]any
			for _, c := range commands {
				c = maps.Clone(c)
				c["timeout"], c["limits"] = "1s", []object{{"name": "closed"}}
				late = append(late, c)
			}
			call.reply(late...)
		default:
			call.reply(commands...)
		}
	}))
	d.putLimit(t, "users", limit.Spec{PerKey: 20})
	d.putLimit(t, "all", limit.Spec{Total: 50})
	d.putLimit(t, "closed", limit.Spec{PerKey: 1, Paused: true})
	startMany(n/steps, func(i int) {
		way := i % waysToEnd
		id := d.startRun(t, fmt.Sprint(way))
		switch way {
		case isCancelled:
			d.waitForEvent(t, id, "step_created 0")
			if _, _, err := d.log.Cancel(t.Context(), project, eventlog.Request{RunID: id}); err != nil {
				t.Error(err)
			}
		case isDeleted:
			d.waitForEvent(t, id, "step_created 0")
			d.Exec(t, `DELETE FROM messages WHERE run_id = $1`, id)
			d.Exec(t, `DELETE FROM runs WHERE id = $1`, id)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for open := -1; open != 0; {
		var idle, without int
		err := d.pool.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM runs WHERE completed_at IS NULL),
				count(*) FILTER (WHERE granted_at IS NOT NULL AND lease = '' AND due_at > now() + interval '1 year'),
				count(*) FILTER (WHERE granted_at IS NULL AND lease <> '')
			FROM permits p JOIN messages m ON m.id = p.message_id`).Scan(&open, &idle, &without)
		if err != nil {
			t.Fatal(err)
		}
		if idle > 0 || without > 0 {
			t.Fatalf("%d permits are held by steps that wait, %d are waited for by steps under way", idle, without)
		}
	}
	testdb.Eventually(t, "all messages are gone", func() bool {
		return d.Count(t, `SELECT count(*) FROM messages WHERE work = 'step'`) == 0
	})
	for event, least := range map[string]int{"step_completed": n / 10, "step_failed": n / 10, "step_retrying": n / 100} {
		if found := d.Count(t, `SELECT count(*) FROM events WHERE type = $1`, event); found < least {
			t.Errorf("got %d %s, want at least %d: the test shows too little", found, event, least)
		}
	}
}

// TestLimitsOfAStepThatExistsAreNotChecked again: one may have been deleted since, and the request creates nothing.
func TestLimitsOfAStepThatExistsAreNotChecked(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, needsOne)
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	d.putLimit(t, "two", limit.Spec{PerKey: 1})
	id := d.startRun(t, `"hold"`)
	d.waitForEvent(t, id, "step_started x")
	d.Exec(t, `DELETE FROM limits WHERE name = 'one'`)
	step := func(step, limit string) eventlog.Request {
		return eventlog.Request{
			Type: entities.EventStepCreated, CorrelationID: step, SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
			Data: entities.EventData{StepName: step, Step: &entities.StepSpec{
				DeploymentID: deployment, Limits: []entities.LimitUse{slot(limit, "k")},
			}},
		}
	}
	_, err := d.log.AppendEach(t.Context(), project, id, []eventlog.Request{step("x", "one"), step("y", "two")},
		eventlog.AppendOptions{})
	if err != nil {
		t.Error(err)
	}
	if n := d.countEvents(t, id, "step_created y"); n != 1 {
		t.Errorf("the other step was created %d times, want once", n)
	}
}
