package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/why"
)

func TestStrandedRuns(t *testing.T) {
	t.Parallel()
	const (
		flow = "__wkf_workflow_x"
		step = "__wkf_step_x"
	)
	type runSetup func(t *testing.T, r *replica) testRun
	started := func(arrange func(t *testing.T, run testRun)) runSetup {
		return func(t *testing.T, r *replica) testRun {
			run := r.started(t)
			arrange(t, run)
			return run
		}
	}
	stepped := func(events ...entities.EventType) runSetup {
		return started(func(t *testing.T, run testRun) {
			for _, e := range events {
				run.happens(t, e, "step_1")
			}
		})
	}
	retried := func(d time.Duration) runSetup {
		return started(func(t *testing.T, run testRun) {
			run.happens(t, entities.EventStepCreated, "step_1")
			run.happens(t, entities.EventStepStarted, "step_1")
			run.happens(t, entities.EventStepRetrying, "step_1", in(d))
		})
	}
	// backstopped adds a message that is due in a quarter of an hour, as clients of the 5.x line send.
	backstopped := func(setup runSetup) runSetup {
		return func(t *testing.T, r *replica) testRun {
			run := setup(t, r)
			run.send(t, about(run), delayed(15*time.Minute))
			return run
		}
	}
	slept := func(d time.Duration) runSetup {
		return started(func(t *testing.T, run testRun) { run.happens(t, entities.EventWaitCreated, "wait_1", in(d)) })
	}
	hooked := func(arrange func(t *testing.T, run testRun, receive func())) runSetup {
		return started(func(t *testing.T, run testRun) {
			run.happens(t, entities.EventHookCreated, "hook_1")
			arrange(t, run, func() { run.happens(t, entities.EventHookReceived, "hook_1") })
		})
	}
	for name, tt := range map[string]struct {
		setup  runSetup
		reason string // empty if the run is not stranded
	}{
		"created, and its message was never sent": {
			func(t *testing.T, r *replica) testRun { return r.created(t) }, "no message starts it",
		},
		"message pending": {started(func(t *testing.T, run testRun) { run.send(t, about(run)) }), ""},
		"message leased": {started(func(t *testing.T, run testRun) {
			run.send(t, about(run))
			run.Exec(t, `UPDATE messages SET lease = 'rh_1'`)
		}), ""},
		"message parked":         {started(func(t *testing.T, run testRun) { run.park(t, run.send(t, about(run))) }), ""},
		"message of another run": {started(func(t *testing.T, run testRun) { run.send(t) }), "waits for nothing"},
		"nothing to wait for":    {started(func(*testing.T, testRun) {}), "waits for nothing"},
		"something happened just now": {started(func(t *testing.T, run testRun) {
			run.Exec(t, `UPDATE runs SET updated_at = now()`)
		}), ""},
		"ended":                 {started(func(t *testing.T, run testRun) { run.happens(t, entities.EventRunCompleted, "") }), ""},
		"step pending":          {stepped(entities.EventStepCreated), "step step_1 is pending"},
		"step running":          {stepped(entities.EventStepCreated, entities.EventStepStarted), "step step_1 is running"},
		"step retries":          {retried(time.Hour), ""},
		"step retried":          {retried(-2 * time.Minute), "step step_1 is pending"},
		"step completed":        {stepped(entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted), "waits for nothing"},
		"wait":                  {slept(time.Hour), ""},
		"wait just over":        {slept(-time.Second), ""},
		"wait over":             {slept(-time.Minute), "wait wait_1 is over"},
		"hook":                  {hooked(func(*testing.T, testRun, func()) {}), ""},
		"hook, never delivered": {hooked(func(_ *testing.T, _ testRun, receive func()) { receive() }), "event 4, hook_received"},
		"hook, delivered": {hooked(func(t *testing.T, run testRun, receive func()) {
			receive()
			run.delivered(t, flow)
		}), ""},
		"hook, received while delivered": {hooked(func(t *testing.T, run testRun, receive func()) {
			run.delivered(t, flow, receive)
		}), "event 4, hook_received"},
		"hook, received again": {hooked(func(t *testing.T, run testRun, receive func()) {
			receive()
			run.delivered(t, flow)
			receive()
		}), "event 5, hook_received"},
		"hook, deliveries acknowledged in another order": {hooked(func(t *testing.T, run testRun, receive func()) {
			run.delivered(t, flow, func() {
				receive()
				run.delivered(t, flow)
			})
		}), ""},
		"hook, only a step was delivered": {hooked(func(t *testing.T, run testRun, receive func()) {
			receive()
			run.delivered(t, step)
		}), "event 4, hook_received"},
		"hook, delivered to another project's message": {hooked(func(t *testing.T, run testRun, receive func()) {
			receive()
			id := run.send(t, about(run), func(m *message.Message) { m.Project = "other" })
			m, err := run.Receive(t.Context(), "other", topic, id, time.Minute)
			if err == nil {
				err = run.Acknowledge(t.Context(), "other", topic, m.Lease)
			}
			if err != nil {
				t.Fatal(err)
			}
		}), "event 4, hook_received"},
		"hook, and a step that nobody heard of": {hooked(func(t *testing.T, run testRun, _ func()) {
			for _, e := range []entities.EventType{
				entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted,
			} {
				run.happens(t, e, "step_1")
			}
		}), "event 6, step_completed"},
		"hook after a step, in one delivery": {started(func(t *testing.T, run testRun) {
			run.delivered(t, flow, func() {
				for _, e := range []entities.EventType{
					entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted,
				} {
					run.happens(t, e, "step_1")
				}
				run.happens(t, entities.EventHookCreated, "hook_1")
			})
		}), ""},
		"hook, and a step": {hooked(func(t *testing.T, run testRun, _ func()) {
			run.happens(t, entities.EventStepCreated, "step_1")
		}), "step step_1 is pending"},

		"late, step pending": {backstopped(stepped(entities.EventStepCreated)), "step step_1 is pending"},
		"late, step running": {
			backstopped(stepped(entities.EventStepCreated, entities.EventStepStarted)), "step step_1 is running",
		},
		"late, step retried":      {backstopped(retried(-2 * time.Minute)), "step step_1 is pending"},
		"late, step just retried": {backstopped(retried(-time.Second)), ""},
		"late, wait over":         {backstopped(slept(-time.Minute)), "wait wait_1 is over"},
		"late, hook received": {
			backstopped(hooked(func(_ *testing.T, _ testRun, receive func()) { receive() })), "event 4, hook_received",
		},
		"late, step completed": {backstopped(stepped(
			entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted)), "waits for nothing"},
		"late, one step of two": {backstopped(started(func(t *testing.T, run testRun) {
			for id, retry := range map[string]time.Duration{"step_1": time.Hour, "step_2": -time.Minute} {
				run.happens(t, entities.EventStepCreated, id)
				run.happens(t, entities.EventStepStarted, id)
				run.happens(t, entities.EventStepRetrying, id, in(retry))
			}
		})), "step step_2 is pending"},
		"in time, start delayed": {backstopped(func(t *testing.T, r *replica) testRun { return r.created(t) }), ""},
		"in time, step retries":  {backstopped(retried(15 * time.Minute)), ""},
		"in time, sleep":         {backstopped(slept(30 * 24 * time.Hour)), ""},
		"in time, hook":          {backstopped(hooked(func(*testing.T, testRun, func()) {})), ""},
		"in time, delay just over": {started(func(t *testing.T, run testRun) {
			run.Exec(t, `UPDATE messages SET due_at = now() WHERE id = $1`, run.send(t, about(run), delayed(time.Hour)))
		}), ""},
		"late, but one is leased": {backstopped(started(func(t *testing.T, run testRun) {
			id := run.send(t, about(run))
			run.Exec(t, `UPDATE messages SET lease = 'rh_1', due_at = now() + interval '1 h' WHERE id = $1`, id)
		})), ""},
		"late, but one is retried by the queue": {backstopped(started(func(t *testing.T, run testRun) {
			id := run.send(t, about(run))
			run.Exec(t, `UPDATE messages SET delivery_count = 9, due_at = now() + interval '5 min' WHERE id = $1`, id)
		})), ""},
		"late, but one is parked": {backstopped(started(func(t *testing.T, run testRun) {
			run.park(t, run.send(t, about(run)))
		})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			run := tt.setup(t, r)
			before := r.Count(t, `SELECT count(*) FROM messages WHERE project = $1`, project)
			e := run.explain(t)
			if (e.Verdict == why.VerdictStranded) != (tt.reason != "") || len(e.Reasons) == 0 && e.Verdict != why.VerdictEnded {
				t.Errorf("got verdict %s and reasons %+v, want the sweeper's opinion", e.Verdict, e.Reasons)
			}
			woken := r.sweep(t)
			g, err := r.Gauges(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sent := r.Count(t, `SELECT count(*) FROM messages WHERE project = $1`, project) - before
			if tt.reason == "" {
				if len(woken) != 0 || sent != 0 || g.StrandedRuns != 0 {
					t.Errorf("got %+v, want it left alone", woken)
				}
				return
			}
			if len(woken) != 1 || woken[0].ID != run.RunID || !strings.Contains(woken[0].Reason, tt.reason) || sent != 1 {
				t.Errorf("got %+v and %d messages, want it woken because %s", woken, sent, tt.reason)
			}
			if g.StrandedRuns != 1 {
				t.Errorf("got a gauge of %d, want 1", g.StrandedRuns)
			}
			if woken = r.sweep(t); len(woken) != 0 {
				t.Errorf("got %+v at the next pass, want nothing", woken)
			}
			if g, err = r.Gauges(t.Context()); err != nil || g.StrandedRuns != 0 {
				t.Errorf("got a gauge of %d (%v) with a message on its way, want 0", g.StrandedRuns, err)
			}
		})
	}
}
