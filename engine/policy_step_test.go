package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/why"
)

// TestChangedStepsOfAPolicyCount for a process that remembers the policy, although its limits of runs are the same.
func TestChangedStepsOfAPolicyCount(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, object{"name": "charge"})
	for _, name := range []string{"one", "two"} {
		d.putLimit(t, name, limit.Spec{PerKey: 10})
	}
	for _, steps := range []map[string][]limit.PolicyUse{
		nil, {"charge": {{Name: "two"}}}, {"charge": {{Name: "one"}}}, nil,
	} {
		d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "one"}}, Steps: steps})
		want := ""
		if steps != nil {
			want = steps["charge"][0].Name
		}
		id := d.startRun(t, `"x"`)
		var got string
		d.Scan(t, `SELECT coalesce(step_limits->0->'limits'->0->>'name', '') FROM runs WHERE id = $1`, []any{id}, &got)
		if got != want {
			t.Errorf("the run has the limit %q for its steps, want %q", got, want)
		}
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
}

// TestAfterwardsComesWhenTheOutcomeIsStored: a look at the limits then finds the slots free.
func TestAfterwardsComesWhenTheOutcomeIsStored(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, serve(t, func(call *functionCall) {
		call.reply(object{"type": "runStep", "id": "x"})
	}).URL)
	leased := make(chan int, 10)
	d.worker(t, func(o *queue.WorkerOptions) {
		o.Handlers = d.runs.Handlers()
		o.Handlers[message.WorkStep] = func(ctx context.Context, work queue.Delivery) error {
			work.Afterwards(func() {
				var n int
				if err := d.pool.QueryRow(context.WithoutCancel(ctx), `SELECT count(*) FROM messages WHERE lease = $1`, work.Lease).
					Scan(&n); err != nil {
					n = -1
				}
				select {
				case leased <- n:
				default:
				}
			})
			return &queue.Failure{Reason: "away", After: time.Hour}
		}
	})
	d.startRun(t, `"x"`)
	if n := <-leased; n != 0 {
		t.Errorf("the lease is there %d times, want that it has ended", n)
	}
}

// TestStepThatNeverFitsIsRefused: its policy's limit has become too small for it, and it goes on when that is mended.
func TestStepThatNeverFitsIsRefused(t *testing.T) {
	t.Parallel()
	d, _ := oneStep(t, object{"name": "charge"})
	d.putLimit(t, "one", limit.Spec{PerKey: 3})
	store := limit.NewStore(d.pool, time.Now)
	policy := func(cost int) error {
		_, err := store.PutPolicy(t.Context(), limit.Policy{
			Project: project, Workflow: "order", Steps: map[string][]limit.PolicyUse{"charge": {{Name: "one", Cost: cost}}},
		})
		return err
	}
	if err := policy(4); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("a cost of 4 of 3 slots: got %v", err)
	}
	if err := policy(3); err != nil {
		t.Fatal(err)
	}
	d.putLimit(t, "one", limit.Spec{PerKey: 2})
	id := d.startRun(t, `"x"`)
	r := d.reason(t, id, why.AnswerRefused)
	if r.Error == nil || !strings.Contains(r.Error.Message, "limit one: a cost of 3 is more than its 2 slots") {
		t.Errorf("got %+v", r.Error)
	}
	d.putLimit(t, "one", limit.Spec{PerKey: 3})
	d.retry(t, r)
	d.wantEnd(t, id, entities.RunCompleted, `"done"`)
}

// TestStepHasTooManyLimits, its own and those of the policy together.
func TestStepHasTooManyLimits(t *testing.T) {
	t.Parallel()
	var own []object
	var uses []limit.PolicyUse
	for i := range 5 {
		own, uses = append(own, object{"name": fmt.Sprint("own", i)}), append(uses, limit.PolicyUse{Name: fmt.Sprint("p", i)})
	}
	d, _ := oneStep(t, object{"name": "charge", "limits": own})
	for i := range 5 {
		d.putLimit(t, fmt.Sprint("own", i), limit.Spec{PerKey: 1})
		d.putLimit(t, fmt.Sprint("p", i), limit.Spec{PerKey: 1})
	}
	d.putPolicy(t, limit.Policy{Steps: map[string][]limit.PolicyUse{"charge": uses}})
	r := d.reason(t, d.startRun(t, `"x"`), why.AnswerRefused)
	if r.Error == nil || !strings.Contains(r.Error.Message, "10 limits are named; the most is 8") {
		t.Errorf("got %+v", r.Error)
	}
}

// TestAcceptedStepKeepsItsSlot until its result is sent.
func TestAcceptedStepKeepsItsSlot(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			call.w.WriteHeader(http.StatusAccepted)
		case call.has("step_completed", "x"):
			call.reply(object{"type": "complete", "output": "done"})
		default:
			call.reply(object{
				"type": "runStep", "id": "x", "async": true, "timeout": "1h", "limits": []object{{"name": "one", "key": "k"}},
			})
		}
	}))
	d.putLimit(t, "one", limit.Spec{PerKey: 1})
	first := d.startRun(t, `null`)
	d.waitForEvent(t, first, "step_retrying x")
	second := d.startRun(t, `null`)
	if r := d.reason(t, second, why.LimitFull); len(r.Holders) != 1 || r.Holders[0].RunID != first {
		t.Errorf("the slot is held by %+v, want the accepted step", r.Holders)
	}
	for _, id := range []entities.RunID{first, second} {
		d.waitForEvent(t, id, "step_retrying x")
		if err := d.runs.EndStep(t.Context(), project, id, "x", StepResult{Output: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
	d.wantNoPermits(t)
}
