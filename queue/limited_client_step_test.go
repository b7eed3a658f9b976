package queue

import (
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const limitedTopic = "__wkf_step_step----a--charge"

// limitedRun adds a run of an app of the Workflow SDK, whose policy limits the step charge, and the limit.
func (r *replica) limitedRun(t *testing.T, id string, limits ...entities.LimitUse) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at, limits, step_limits)
		VALUES ($1, $2, $3, 'w', 'running', 3, '{}', 1, now(), now(), $4,
			'[{"step": "step//./a//charge", "limits": [{"name": "stripe", "key": "c7"}]}]')`, id, project, deployment, limits)
	_, err := limit.NewStore(r.pool, time.Now).Put(t.Context(), project, "stripe", limit.Spec{PerKey: 2, OnFull: limit.Reject})
	if err != nil {
		t.Fatal(err)
	}
}

func ofStep(run string) func(*message.Message) {
	return func(m *message.Message) { m.Topic, m.RunID = limitedTopic, entities.RunID(run) }
}

// TestStepsOfAppsWaitForTheirSlots: of ten messages for a step that a policy limits to two at once, no more are
// delivered at once, at two servers. One whose delivery fails gives its slot back during the pause.
func TestStepsOfAppsWaitForTheirSlots(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := open(t, dsn)
	full := make(chan struct{})
	a, now, most := countedApp(t, &r, full)
	r.register(t, deployment, a.URL)
	r.limitedRun(t, "wrun_1")
	r.worker(t)
	open(t, dsn).worker(t)
	race(10, func(int) string { return r.send(t, ofStep("wrun_1")) })
	testdb.Eventually(t, "two are called", func() bool { return now.Load() == 2 })
	testdb.Eventually(t, "the others wait", func() bool {
		return r.Count(t, `SELECT count(*) FROM permits WHERE granted_at IS NULL`) == 8
	})
	close(full)
	testdb.Eventually(t, "all are gone", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
	if most.Load() != 2 {
		t.Errorf("%d calls at once, want 2", most.Load())
	}
	r.Want(t, "permits are left", 0, `SELECT count(*) FROM permits`)
}

// TestAFailedStepOfAnAppWaitsAgain: another one has its slot during the pause. What refuses the body of steps that the
// server calls leaves that of the app alone.
func TestAFailedStepOfAnAppWaitsAgain(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if c.count() == "1" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.ack(t, c)
	})
	r.register(t, deployment, a.URL)
	r.limitedRun(t, "wrun_1")
	r.worker(t)
	for range 4 {
		r.send(t, ofStep("wrun_1"), body("the app's"))
	}
	for range 8 {
		if c := a.next(t); string(c.Body) != "the app's" {
			t.Errorf("got body %s", c.Body)
		}
	}
	testdb.Eventually(t, "all are gone", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
}

// TestWhichMessagesAreHeldBack: those of steps that the policy names, unless their run holds the slot.
func TestWhichMessagesAreHeldBack(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, deployment, "http://127.0.0.1:1")
	r.limitedRun(t, "wrun_1")
	r.limitedRun(t, "wrun_shares", entities.LimitUse{Name: "stripe", Key: "c7"})
	r.limitedRun(t, "wrun_other", entities.LimitUse{Name: "stripe", Key: "c8"})
	other := func(topic string) func(*message.Message) { return func(m *message.Message) { m.Topic = topic } }
	for name, tt := range map[string]struct {
		change []func(*message.Message)
		held   bool
	}{
		"the step":              {[]func(*message.Message){ofStep("wrun_1")}, true},
		"in a namespace":        {[]func(*message.Message){ofStep("wrun_1"), other("__ns_wkf_step_step----a--charge")}, true},
		"its run's slot":        {[]func(*message.Message){ofStep("wrun_shares")}, false},
		"another key":           {[]func(*message.Message){ofStep("wrun_other")}, true},
		"another step":          {[]func(*message.Message){ofStep("wrun_1"), other("__wkf_step_step----a--refund")}, false},
		"the run":               {[]func(*message.Message){ofStep("wrun_1"), other("__wkf_workflow_step----a--charge")}, false},
		"no run":                {[]func(*message.Message){other(limitedTopic)}, false},
		"a run that is gone":    {[]func(*message.Message){ofStep("wrun_2")}, false},
		"with a key of its own": {[]func(*message.Message){ofStep("wrun_1"), keyed("step_1")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			id := r.send(t, tt.change...)
			_, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Project: project, Number: firstTicket}, "rh_"+id, "",
				leaseTime)
			held := r.Count(t, `SELECT count(*) FROM permits WHERE message_id = $1 AND granted_at IS NULL`, id) == 1
			if err != nil || ok == tt.held || held != tt.held {
				t.Errorf("claimed %v, held back %v, error %v; want held back %v", ok, held, err, tt.held)
			}
		})
	}
}

// TestAParkedStepOfAnAppHoldsNoSlot.
func TestAParkedStepOfAnAppHoldsNoSlot(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.limitedRun(t, "wrun_1")
	id := r.send(t, ofStep("wrun_1"))
	r.Exec(t, `
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at, granted_at)
		VALUES ($1, $1, 'wrun_1', $2, 'stripe', 'c7', 'c7', 1, now(), now(), now())`, id, project)
	r.Exec(t, `UPDATE messages SET delivery_count = 1000, first_failed_at = now() - interval '10 days', due_at = now(),
		last_error = 'x' WHERE id = $1`, id)
	if _, err := r.newWorker(t).issue(t.Context(), []ration{{project, 1}}); err != nil {
		t.Fatal(err)
	}
	if s := r.stored(t, id); !s.Parked || r.Count(t, `SELECT count(*) FROM permits`) != 0 {
		t.Errorf("parked %v, with %d permits; want it parked with none", s.Parked, r.Count(t, `SELECT count(*) FROM permits`))
	}
}
