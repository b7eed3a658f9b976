package e2e

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// faultyLink is an app behind a proxy that records requested delays, and that can drop run_created or its answer.
type faultyLink struct {
	*app
	mu     sync.Mutex
	delays []string // values of Vqs-Delay-Seconds

	losing, answerOnly atomic.Bool
	lost               atomic.Int64
}

func newFaultyLink(t *testing.T, s *server, l *sdkLine) *faultyLink {
	r := &faultyLink{}
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, forward) }
	})
	r.app = newApp(t, appOptions{
		line: l, stepwell: between.URL, deployment: l.named("faulty-link"), client: harness.OfficialClient,
		env: []string{"VERCEL_QUEUE_MAX_DELAY_SECONDS=1", "WORKFLOW_WAIT_CONTINUATION_MAX_DELAY_SECONDS=1"},
	})
	s.register(t, l.named("faulty-link"), r.url())
	return r
}

func (r *faultyLink) serve(w http.ResponseWriter, req *http.Request, forward http.Handler) {
	if delay := req.Header.Get("Vqs-Delay-Seconds"); delay != "" {
		r.mu.Lock()
		r.delays = append(r.delays, delay)
		r.mu.Unlock()
	}
	if r.losing.Load() && strings.HasSuffix(req.URL.Path, "/events/run_created") {
		if r.answerOnly.Load() {
			forward.ServeHTTP(httptest.NewRecorder(), req)
		}
		r.lost.Add(1)
		if r.sdkLine == beta35 { // its start() does not retry broken connections, but retries 429
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		hangUp(w)
	}
	forward.ServeHTTP(w, req)
}

// faultyLinks runs two cases on one app, one after the other.
func faultyLinks(t *testing.T, s *server, l *sdkLine) {
	r := newFaultyLink(t, s, l)
	t.Run("sleep longer than the maximum delay", func(t *testing.T) { longSleep(t, s, r) })
	t.Run("run_created or its answer lost", func(t *testing.T) { runCreatedLost(t, s, r) })
}

// longSleep checks a sleep that the SDK divides into several delayed messages, because it is longer than the maximum
// delay: 23 hours by default, one second here.
func longSleep(t *testing.T, s *server, r *faultyLink) {
	id := r.run(t, "sleepLong", 5000)
	r.want(t, id, "awake")
	s.wantLog(t, id, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.delays) < 2 || slices.ContainsFunc(r.delays, func(s string) bool { return s != "1" }) {
		t.Errorf("slept with delays of %v seconds; want several of 1", r.delays)
	}
}

// runCreatedLost checks that a run starts without run_created: start() also puts the run's input into the first
// message.
func runCreatedLost(t *testing.T, s *server, r *faultyLink) {
	r.losing.Store(true)
	for _, only := range []bool{false, true} {
		r.answerOnly.Store(only)
		r.lost.Store(0)
		id := r.run(t, "sequential", 1)
		r.want(t, id, 4)
		s.wantLog(t, id,
			sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
		r.wantCounts(t, id, map[string]int{"add": 3})
		if r.lost.Load() == 0 {
			t.Error("nothing was lost")
		}
	}
}

// lostAnswers drops the answer to every third commit of the own client, which then sends the commit again. Nothing must
// be written twice.
func lostAnswers(t *testing.T, s *server, l *sdkLine) {
	var commits, lost atomic.Int64
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/world/v1/commit") && commits.Add(1)%3 == 0 {
				lost.Add(1)
				forward.ServeHTTP(httptest.NewRecorder(), r)
				hangUp(w)
			}
			forward.ServeHTTP(w, r)
		}
	})
	deployment := l.named("lost-answers")
	a := newApp(t, appOptions{line: l, stepwell: between.URL, deployment: deployment, client: harness.OwnClient})
	s.register(t, deployment, a.url())
	var runs []string
	for range 5 {
		runs = append(runs, a.run(t, "sequential", 1))
	}
	token := l.named("lost-answers")
	hooked := a.run(t, "hookMany", token, 4)
	a.hook(t, hooked)
	for i := range 4 {
		a.resume(t, token, i)
	}
	for _, id := range runs {
		a.want(t, id, 4)
		s.wantLog(t, id,
			sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
		a.wantCounts(t, id, map[string]int{"add": 3})
	}
	a.want(t, hooked, []int{0, 1, 2, 3})
	s.wantThreads(t, hooked, "hook: created received received received received disposed",
		"run: created started completed", "tick: created started completed")
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
}

// clientChanged restarts an app with the other client, in both directions. The server notices at the first answer.
func clientChanged(t *testing.T, s *server, l *sdkLine) {
	deployment := l.named("changed")
	a := newApp(t, appOptions{line: l, stepwell: s.url(), deployment: deployment, client: harness.OwnClient})
	s.register(t, deployment, a.url())
	for _, client := range []string{harness.OwnClient, harness.OfficialClient, harness.OwnClient} {
		if client != a.options.client {
			a.Stop(t)
			a.options.client = client
			a.start(t)
		}
		for n := range 2 {
			id := a.run(t, "sequential", n)
			a.want(t, id, n+3)
			a.wantCounts(t, id, map[string]int{"add": 3})
		}
	}
}

// deliveredTwice delivers each message twice at the same time, to two processes of the app. Step attempts may then be
// duplicated, but all other events, including the ends of steps, are not.
func deliveredTwice(t *testing.T, s *server, l *sdkLine) {
	a := newApp(t, appOptions{line: l, stepwell: s.url(), deployment: l.named("twice")})
	twin := newApp(t, a.options)
	token := l.named("twice")
	var delivered atomic.Int64
	twice := newProxy(t, a.url(), func(http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			delivered.Add(1)
			deliverTwice(w, r, a, twin)
		}
	})
	s.register(t, l.named("twice"), twice.URL)

	steps, fan := a.run(t, "sequential", 1), a.run(t, "fanout", 10)
	sleeper, hooked := a.run(t, "sleepShort"), a.run(t, "hookMany", token, 5)
	a.hook(t, hooked)
	for i := range 5 {
		a.resume(t, token, i)
	}
	const run, tick = "run: created started completed", "tick: created started completed"
	for _, want := range []struct {
		id      string
		value   any
		threads []string
	}{
		{steps, 4, []string{"3 × add: created started completed", run}},
		{fan, 45, []string{"10 × add: created started completed", run}},
		{sleeper, 2, []string{run, "2 × " + tick, "wait: created completed"}},
		{hooked, []int{0, 1, 2, 3, 4}, []string{
			"hook: created received received received received received disposed", run, tick,
		}},
	} {
		a.want(t, want.id, want.value)
		got := s.log(t, want.id).firstAttempts().threads()
		if !slices.Equal(got, want.threads) {
			t.Errorf("log of %s by entity: got %q, want %q", want.id, got, want.threads)
		}
		s.log(t, want.id).wantOneOwner(t)
	}
	t.Logf("%d messages were delivered twice", delivered.Load())
}

// wantOneOwner checks that no step was started for two messages. A step either belongs to one message, which runs it
// inline, or has its own message and no owner.
func (l log) wantOneOwner(t *testing.T) {
	t.Helper()
	owners := map[string]any{}
	for _, e := range l.of("step_started") {
		owner := e.Data["ownerMessageId"]
		if first, again := owners[e.CorrelationID]; again && first != owner {
			t.Errorf("step %s was started for messages %v and %v", e.CorrelationID, first, owner)
		}
		owners[e.CorrelationID] = owner
	}
}

// deliverTwice sends the request to all processes at once, and returns the first one's answer.
func deliverTwice(w http.ResponseWriter, r *http.Request, apps ...*app) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp(w)
	}
	answers, bodies := make([]*http.Response, len(apps)), make([][]byte, len(apps))
	var sending sync.WaitGroup
	for i, app := range apps {
		sending.Go(func() {
			again := r.Clone(r.Context())
			again.RequestURI = ""
			again.URL.Scheme, again.URL.Host = "http", "127.0.0.1:"+app.port
			again.Body = io.NopCloser(bytes.NewReader(body))
			if answer, err := http.DefaultTransport.RoundTrip(again); err == nil {
				defer func() { _ = answer.Body.Close() }()
				bodies[i], err = io.ReadAll(answer.Body)
				if err == nil {
					answers[i] = answer
				}
			}
		})
	}
	sending.Wait()
	if answers[0] == nil {
		hangUp(w)
	}
	maps.Copy(w.Header(), answers[0].Header)
	w.WriteHeader(answers[0].StatusCode)
	_, _ = w.Write(bodies[0])
}

// firstAttempts returns the log without the second and later step_started of each step.
func (l log) firstAttempts() log {
	started := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(l), func(e event) bool {
		again := e.Type == "step_started" && started[e.CorrelationID]
		started[e.CorrelationID] = started[e.CorrelationID] || e.Type == "step_started"
		return again
	})
}
