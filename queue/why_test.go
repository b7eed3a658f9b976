package queue

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/why"
)

func (r testRun) explain(t testing.TB) why.Explanation {
	t.Helper()
	e, err := why.Of(t.Context(), r.pool, project, r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// reason waits until the run's first reason is of the kind, and returns it.
func (r testRun) reason(t testing.TB, kind why.Kind) (first why.Reason) {
	t.Helper()
	var e why.Explanation
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last explanation: %+v", e)
		}
	})
	testdb.Eventually(t, "the run has the reason "+string(kind), func() bool {
		e = r.explain(t)
		if len(e.Reasons) > 0 {
			first = e.Reasons[0]
		}
		return first.Kind == kind
	})
	return first
}

// TestRunsOfTheWorkflowSDKAreExplained follows the message of a run from its start to its acknowledgement.
func TestRunsOfTheWorkflowSDKAreExplained(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	release := make(chan struct{})
	var r *replica
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if !works.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		<-release
		r.ack(t, c)
	})
	r = open(t, testdb.New(t))
	run := r.created(t)
	id := r.send(t, about(run), delayed(time.Hour))
	if got := run.reason(t, why.StartDelay); got.At == nil || got.MessageID != id {
		t.Errorf("got %+v", got)
	}
	r.makeDue(t, id)
	run.reason(t, why.DeploymentMissing)
	r.register(t, deployment, a.URL)
	if got := run.reason(t, why.Client); got.Since == nil || got.DeploymentID != deployment {
		t.Errorf("got %+v", got)
	}
	r.worker(t)
	if got := run.reason(t, why.FunctionFails); !strings.Contains(got.Error.Message, "500") {
		t.Errorf("got %+v", got)
	}
	testdb.Eventually(t, "the message is parked", func() bool { // unless it is being delivered
		r.Exec(t, `UPDATE messages SET parked_at = now() WHERE lease = ''`)
		return r.stored(t, id).Parked
	})
	parked := run.reason(t, why.Parked)
	works.Store(true)
	if _, err := r.Retry(t.Context(), project, parked.MessageID); err != nil {
		t.Fatal(err)
	}
	if got := run.reason(t, why.Called); !strings.HasPrefix(got.Server, "proc_") || got.Until == nil {
		t.Errorf("got %+v", got)
	}
	run.happens(t, entities.EventRunStarted, "")
	run.happens(t, entities.EventStepCreated, "step_1")
	run.happens(t, entities.EventStepStarted, "step_1")
	run.happens(t, entities.EventHookCreated, "hook_1")
	want := []why.Kind{why.Called, why.StepRunning, why.Hook}
	var got []why.Kind
	for _, r := range run.explain(t).Reasons {
		got = append(got, r.Kind)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	run.happens(t, entities.EventStepCompleted, "step_1")
	close(release)
	r.gone(t, id)
	run.reason(t, why.Hook)
	run.happens(t, entities.EventWaitCreated, "wait_1", in(time.Hour))
	if next := run.explain(t).Next; next == nil || next.WaitID != "wait_1" {
		t.Errorf("got next %+v, want the wait", next)
	}
	run.happens(t, entities.EventRunCancelled, "")
	if e := run.explain(t); e.Verdict != why.VerdictEnded {
		t.Errorf("got %+v", e)
	}
}

// TestStrandedIsWhatTheSweeperFinds lets random things happen to runs of the Workflow SDK, sends random messages, and
// asks why just before the sweeper comes.
func TestStrandedIsWhatTheSweeperFinds(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	stranded, others := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r.Exec(t, `DELETE FROM messages`)
		r.Exec(t, `DELETE FROM runs`)
		run := r.created(t)
		run.happenRandomly(t, rt)
		for range rapid.IntRange(0, 2).Draw(rt, "messages") {
			delay := rapid.SampledFrom([]time.Duration{0, 15 * time.Minute}).Draw(rt, "delay")
			id := run.send(t, about(run), delayed(delay), func(m *message.Message) {
				m.Topic = rapid.SampledFrom([]string{"__wkf_workflow_x", "__wkf_step_x"}).Draw(rt, "topic")
			})
			if change := rapid.SampledFrom([]string{
				``, `DELETE FROM messages WHERE id = $1`, `UPDATE messages SET lease = 'rh_1' WHERE id = $1`,
				`UPDATE messages SET parked_at = now() WHERE id = $1`, `UPDATE messages SET last_error = 'x' WHERE id = $1`,
			}).Draw(rt, "state"); change != "" {
				r.Exec(t, `DELETE FROM messages WHERE lease = 'rh_1'`)
				r.Exec(t, change, id)
			}
		}
		e := run.explain(t)
		found := r.sweep(t)
		isFound := slices.ContainsFunc(found, func(s cluster.Stranded) bool { return s.ID == run.RunID })
		if (e.Verdict == why.VerdictStranded) != isFound {
			rt.Fatalf("the sweeper found %+v, but the verdict is %s for %+v", found, e.Verdict, e.Reasons)
		}
		if len(e.Reasons) == 0 {
			rt.Fatalf("no reason: %+v", e)
		}
		if isFound {
			stranded++
		} else {
			others++
		}
	})
	if !testing.Short() && (stranded < 10 || others < 10) { // rapid then checks a fifth
		t.Errorf("%d runs were stranded, %d others were not", stranded, others)
	}
}

// happenRandomly appends random events to a run that has just been created.
func (r testRun) happenRandomly(t *testing.T, rt *rapid.T) {
	t.Helper()
	if rapid.IntRange(0, 5).Draw(rt, "started") == 0 {
		return
	}
	r.happens(t, entities.EventRunStarted, "")
	later := func(what string) time.Duration {
		return rapid.SampledFrom([]time.Duration{-2 * time.Minute, -time.Second, time.Hour}).Draw(rt, what)
	}
	for _, id := range []string{"step_1", "step_2"} {
		for _, e := range [][]entities.EventType{
			nil, {entities.EventStepCreated}, {entities.EventStepCreated, entities.EventStepStarted},
			{entities.EventStepCreated, entities.EventStepStarted, entities.EventStepRetrying},
			{entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted},
		}[rapid.IntRange(0, 4).Draw(rt, id)] {
			r.happens(t, e, id, in(later("retry")))
		}
	}
	if rapid.Bool().Draw(rt, "sleeps") {
		r.happens(t, entities.EventWaitCreated, "wait_1", in(later("wait")))
	}
	if rapid.Bool().Draw(rt, "hook") {
		r.happens(t, entities.EventHookCreated, "hook_1")
		if rapid.Bool().Draw(rt, "received") {
			r.happens(t, entities.EventHookReceived, "hook_1")
		}
	}
}
