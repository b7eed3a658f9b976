package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/health"
	"github.com/stepwell-dev/stepwell/queue/prober"
	"github.com/stepwell-dev/stepwell/why"
)

// probedApp is an app with a function that completes its runs, and with /healthz.
type probedApp struct {
	*httptest.Server

	sick          atomic.Bool
	calls, probes atomic.Int64
	// underWay and most count the probes that are made at a time.
	underWay, most atomic.Int64
}

func serveProbed(t *testing.T) *probedApp {
	t.Helper()
	a := &probedApp{}
	function := serve(t, func(c *functionCall) {
		a.calls.Add(1)
		c.reply(object{"type": "complete"})
	})
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			function.Config.Handler.ServeHTTP(w, r)
			return
		}
		a.probes.Add(1)
		a.most.Store(max(a.most.Load(), a.underWay.Add(1)))
		defer a.underWay.Add(-1)
		if a.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// probing starts a server that also probes.
func probing(t *testing.T, dsn string) (*server, *queue.Worker) {
	t.Helper()
	d := newServer(t, dsn)
	return d, d.worker(t, d.probes)
}

func (d *server) probes(o *queue.WorkerOptions) {
	o.Handlers = d.runs.Handlers()
	o.Handlers[message.WorkProbe] = prober.New(d.Queue).Handler()
}

// registerProbed registers the app below its host.
func (d *server) registerProbed(t *testing.T, a *probedApp, s health.Settings) {
	t.Helper()
	s.Path = "/healthz"
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: deployment, URL: a.URL + "/functions", Health: &s})
	if err != nil {
		t.Fatal(err)
	}
}

func (d *server) details(t *testing.T) queue.Deployment {
	t.Helper()
	found, err := d.DeploymentDetails(t.Context(), project, deployment)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (d *server) waitUntilUnhealthy(t *testing.T) {
	t.Helper()
	testdb.Eventually(t, "it is unhealthy", func() bool { return d.details(t).UnhealthySince != nil })
}

// TestUnhealthyDeploymentIsNotCalled until a probe succeeds, at two servers of which one is restarted. One of them
// makes each probe.
func TestUnhealthyDeploymentIsNotCalled(t *testing.T) {
	t.Parallel()
	a := serveProbed(t)
	dsn := testdb.New(t)
	d, first := probing(t, dsn)
	other, _ := probing(t, dsn)
	d.registerProbed(t, a, health.Settings{Every: health.Duration(time.Second), FailAfter: 2})
	testdb.Eventually(t, "it was probed", func() bool { return d.details(t).ProbedAt != nil })
	d.wantEnd(t, d.startRun(t, `null`), entities.RunCompleted, `null`)
	a.sick.Store(true)
	d.waitUntilUnhealthy(t)
	if got := d.details(t); got.Error != "GET /healthz: the answer is 503 Service Unavailable" || got.Failures < 2 {
		t.Errorf("got %+v", got.State)
	}
	calls := a.calls.Load()
	ids := []entities.RunID{d.startRun(t, `1`), other.startRun(t, `2`)}
	for _, id := range ids {
		r := d.reason(t, id, why.Unhealthy)
		if r.DeploymentID != deployment || r.Since == nil || r.Failures < 1 || r.At == nil {
			t.Errorf("got %+v", r)
		}
	}
	stopWorker(t, first)
	again := newServer(t, dsn)
	again.worker(t, again.probes)
	probes := a.probes.Load()
	testdb.Eventually(t, "it is probed after the restart", func() bool { return a.probes.Load() > probes+1 })
	if n := a.calls.Load(); n != calls {
		t.Errorf("it was called %d times", n-calls)
	}
	a.sick.Store(false)
	for _, id := range ids {
		again.wantEnd(t, id, entities.RunCompleted, `null`)
	}
	if got := d.details(t); got.UnhealthySince != nil || got.TrialAt != nil || got.Failures != 0 || got.Error != "" {
		t.Errorf("got %+v", got.State)
	}
	if n := a.most.Load(); n != 1 {
		t.Errorf("%d probes were made at a time", n)
	}
}

// TestOneTrialCallIsMade when it is due. If it succeeds, what waits is due, although no probe has succeeded.
func TestOneTrialCallIsMade(t *testing.T) {
	t.Parallel()
	a := serveProbed(t)
	a.sick.Store(true)
	d, _ := probing(t, testdb.New(t))
	d.registerProbed(t, a, health.Settings{
		Every: health.Duration(time.Hour), FailAfter: 1, TrialEvery: health.Duration(time.Hour),
	})
	d.waitUntilUnhealthy(t)
	ids := []entities.RunID{d.startRun(t, `1`), d.startRun(t, `2`), d.startRun(t, `3`)}
	for _, id := range ids {
		d.reason(t, id, why.Unhealthy)
	}
	if n := a.calls.Load(); n != 0 {
		t.Errorf("it was called %d times", n)
	}
	d.Exec(t, `UPDATE deployments SET trial_at = now()`)
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE work = 'run'`)
	d.WakeTimer(nil)
	for _, id := range ids {
		d.wantEnd(t, id, entities.RunCompleted, `null`)
	}
	if got := d.details(t).State; got != (health.State{}) { // it is unknown until the next probe
		t.Errorf("got %+v", got)
	}
}

// TestRacersForTheTrialCall: of those that ask for a trial call when one is due, one makes it.
func TestRacersForTheTrialCall(t *testing.T) {
	t.Parallel()
	a := serveProbed(t)
	d := idleServer(t, testdb.New(t))
	d.registerProbed(t, a, health.Settings{})
	d.Exec(t, `UPDATE deployments SET unhealthy_since = now(), trial_at = now()`)
	tried := make(chan bool)
	const racers = 16
	for range racers {
		go func() {
			ok, err := health.Try(t.Context(), d.pool, project, deployment)
			if err != nil {
				t.Error(err)
			}
			tried <- ok
		}()
	}
	n := 0
	for range racers {
		if <-tried {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d may try", n)
	}
	d.Want(t, "trial calls as much later", 1, `SELECT count(*) FROM deployments WHERE trial_at > now() + interval '9 minutes'`)
}

// TestOnlyANewDeployForgetsTheHealth: apps repeat their registration at every start. What forgets it has the deployment
// probed at once, and so has a registration of one that is unhealthy.
func TestOnlyANewDeployForgetsTheHealth(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	const url = "http://a.test"
	settings := health.Settings{Path: "/healthz", Every: health.Duration(time.Hour)}
	other := settings
	other.FailAfter = 7
	for name, test := range map[string]struct {
		again     queue.Deployment
		unhealthy bool
		forgotten bool
		probed    bool
	}{
		"the same, healthy":   {again: queue.Deployment{URL: url, Build: "1", Health: &settings}},
		"the same, unhealthy": {again: queue.Deployment{URL: url, Build: "1", Health: &settings}, unhealthy: true, probed: true},
		"without health":      {again: queue.Deployment{URL: url, Build: "1"}, unhealthy: true, probed: true},
		"other workflows": {
			again: queue.Deployment{URL: url, Build: "1", Workflows: []string{"order"}}, unhealthy: true, probed: true,
		},
		"another build":    {again: queue.Deployment{URL: url, Build: "2"}, unhealthy: true, forgotten: true, probed: true},
		"another URL":      {again: queue.Deployment{URL: url + "/b", Build: "1"}, unhealthy: true, forgotten: true, probed: true},
		"other settings":   {again: queue.Deployment{URL: url, Build: "1", Health: &other}, unhealthy: true, forgotten: true, probed: true},
		"without probes":   {again: queue.Deployment{URL: url, Build: "1", Health: &health.Settings{}}, unhealthy: true, forgotten: true},
		"healthy, rebuilt": {again: queue.Deployment{URL: url, Build: "2"}, forgotten: true, probed: true},
	} {
		put := func(again queue.Deployment) queue.Deployment {
			again.ID = deployment
			written, err := d.Register(t.Context(), project, again)
			if err != nil {
				t.Fatal(err)
			}
			return written
		}
		put(queue.Deployment{URL: url, Build: "1", Health: &settings})
		d.Exec(t, `UPDATE deployments SET probed_at = now(), probe_failures = 2, probe_error = '503',
			(unhealthy_since, trial_at) = (SELECT now(), now() + interval '1 h' WHERE $1)`, test.unhealthy)
		d.Exec(t, `UPDATE messages SET due_at = now() + interval '1 h' WHERE work = 'probe'`)
		before := d.details(t).State
		written := put(test.again)
		want := before
		if test.forgotten {
			want = health.State{}
		}
		if diff := cmp.Diff(want, d.details(t).State); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want, written.State); diff != "" {
			t.Errorf("%s: the answer (-want +got):\n%s", name, diff)
		}
		if n := d.Count(t, `SELECT count(*) FROM messages WHERE work = 'probe' AND due_at <= now()`); (n == 1) != test.probed {
			t.Errorf("%s: %d probes are due", name, n)
		}
	}
}

// TestRecoveryDuringTheReleaseOfADelivery: what is released after the recovery of its deployment does not wait.
func TestRecoveryDuringTheReleaseOfADelivery(t *testing.T) {
	t.Parallel()
	a := serveProbed(t)
	d := newServer(t, testdb.New(t))
	d.registerProbed(t, a, health.Settings{})
	d.Exec(t, `UPDATE deployments SET unhealthy_since = now(), trial_at = now() + interval '1 h'`)
	var withheld atomic.Int64
	d.worker(t, func(o *queue.WorkerOptions) {
		o.Handlers = d.runs.Handlers()
		invoke := o.Handlers[message.WorkRun]
		o.Handlers[message.WorkRun] = func(ctx context.Context, work queue.Delivery) error {
			if work.TrialAt != nil {
				withheld.Add(1)
				d.Exec(t, `UPDATE deployments SET unhealthy_since = NULL, trial_at = NULL`)
				if err := d.Recovered(ctx, project, deployment, work.ClaimedAt); err != nil {
					t.Error(err)
				}
			}
			return invoke(ctx, work)
		}
	})
	d.wantEnd(t, d.startRun(t, `1`), entities.RunCompleted, `null`)
	if n := withheld.Load(); n != 1 {
		t.Errorf("%d deliveries were withheld, want 1", n)
	}
}

// TestUnhealthyDeploymentHoldsNoSlots of limits for its steps, and neither does one that cannot be reached.
func TestUnhealthyDeploymentHoldsNoSlots(t *testing.T) {
	t.Parallel()
	for name, lastError := range map[string]string{"unhealthy": "is unhealthy", "away": "refused"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startServer(t, serve(t, completeWith("step_completed", "pay", object{
				"type": "runStep", "id": "pay", "deployment": "bank", "limits": []object{{"name": "one"}},
			})))
			d.putLimit(t, "one", limit.Spec{Total: 1})
			d.register(t, "bank", "http://127.0.0.1:1")
			if name == "unhealthy" {
				d.Exec(t, `UPDATE deployments SET health = '{"path": "/"}', unhealthy_since = now(),
					trial_at = now() + interval '1 h' WHERE id = 'bank'`)
			}
			id := d.startRun(t, `null`)
			testdb.Eventually(t, "the step waits, and holds no slot", func() bool {
				return d.Count(t, `SELECT count(*) FROM messages m JOIN permits p ON p.message_id = m.id
					WHERE m.last_error LIKE '%' || $1 || '%' AND p.granted_at IS NULL AND p.not_before > now()`, lastError) == 1
			})
			bank := serve(t, func(c *functionCall) { _, _ = fmt.Fprint(c.w, c.Attempt) })
			d.register(t, "bank", bank.URL)
			d.wantEnd(t, id, entities.RunCompleted, `1`)
		})
	}
}

// TestRegisteringAgainProbesAtOnce, and keeps the probes unless it says that there are none.
func TestRegisteringAgainProbesAtOnce(t *testing.T) {
	t.Parallel()
	a := serveProbed(t)
	a.sick.Store(true)
	d, _ := probing(t, testdb.New(t))
	d.registerProbed(t, a, health.Settings{Every: health.Duration(time.Hour), FailAfter: 1})
	d.waitUntilUnhealthy(t)
	id := d.startRun(t, `1`)
	d.reason(t, id, why.Unhealthy)
	a.sick.Store(false)
	d.register(t, deployment, a.URL+"/functions")
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	if got := d.details(t); got.Health == nil || got.Health.Path != "/healthz" || time.Duration(got.Health.Every) != time.Hour {
		t.Errorf("the probes are %+v", got.Health)
	}
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: deployment, URL: a.URL, Health: &health.Settings{}})
	if err != nil {
		t.Fatal(err)
	}
	testdb.Eventually(t, "there are no probes", func() bool {
		return d.details(t).Health == nil && d.Count(t, `SELECT count(*) FROM messages WHERE work = 'probe'`) == 0
	})
}

// TestProbeThatHangsDelaysNothing of other deployments: their runs complete while it hangs.
func TestProbeThatHangsDelaysNothing(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(release)
	a := serveProbed(t)
	d, _ := probing(t, testdb.New(t))
	d.registerProbed(t, a, health.Settings{})
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: "slow", URL: slow.URL, Health: &health.Settings{
		Path: "/healthz", Every: health.Duration(time.Hour), Timeout: health.Duration(29 * time.Second),
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	for range 3 { // while the probe takes its time
		d.wantEnd(t, d.startRun(t, `1`), entities.RunCompleted, `null`)
	}
	if d.Count(t, `SELECT count(*) FROM deployments WHERE id = 'slow' AND probed_at IS NULL`) != 1 {
		t.Error("the probe ended before the runs")
	}
}

// TestFailingRunsSayNothingAboutHealth: a deployment whose function fails stays healthy if its probes succeed.
func TestFailingRunsSayNothingAboutHealth(t *testing.T) {
	t.Parallel()
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer f.Close()
	d, _ := probing(t, testdb.New(t))
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: deployment, URL: f.URL, Health: &health.Settings{
		Path: "/healthz", Every: health.Duration(time.Second), FailAfter: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.reason(t, d.startRun(t, `1`), why.FunctionFails)
	testdb.Eventually(t, "it was probed twice", func() bool { return d.details(t).Successes >= 2 })
	if got := d.details(t); got.UnhealthySince != nil {
		t.Errorf("got %+v", got.State)
	}
}
