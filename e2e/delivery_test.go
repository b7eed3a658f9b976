package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// roughRoad is an app whose requests for delay are noted, and whose run_created, or the answer to it, is
// lost when a case says so.
type roughRoad struct {
	*app
	mu   sync.Mutex
	hops []string // what Vqs-Delay-Seconds said

	losing, answerOnly atomic.Bool
	lost               atomic.Int64
}

func newRoughRoad(t *testing.T, s *server, l *line) *roughRoad {
	r := &roughRoad{}
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, forward) }
	})
	r.app = newApp(t, appOptions{
		line: l, stepwell: between.URL, deployment: l.named("rough"),
		env: []string{"VERCEL_QUEUE_MAX_DELAY_SECONDS=1", "WORKFLOW_WAIT_CONTINUATION_MAX_DELAY_SECONDS=1"},
	})
	s.register(t, l.named("rough"), r.url())
	return r
}

func (r *roughRoad) serve(w http.ResponseWriter, req *http.Request, forward http.Handler) {
	if delay := req.Header.Get("Vqs-Delay-Seconds"); delay != "" {
		r.mu.Lock()
		r.hops = append(r.hops, delay)
		r.mu.Unlock()
	}
	if r.losing.Load() && strings.HasSuffix(req.URL.Path, "/events/run_created") {
		if r.answerOnly.Load() {
			forward.ServeHTTP(httptest.NewRecorder(), req)
		}
		r.lost.Add(1)
		if r.line == beta35 { // its start() gives up at a broken connection, but forgives an overloaded server
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		hangUp(w)
	}
	forward.ServeHTTP(w, req)
}

// roughRoads is two cases on one app, one after the other.
func roughRoads(t *testing.T, s *server, l *line) {
	r := newRoughRoad(t, s, l)
	t.Run("sleep beyond the longest hop", func(t *testing.T) { longSleep(t, s, r) })
	t.Run("run_created or its answer lost", func(t *testing.T) { runCreatedLost(t, s, r) })
}

// longSleep: the SDK sleeps in hops of at most 23 hours, or what its environment says.
func longSleep(t *testing.T, s *server, r *roughRoad) {
	id := r.run(t, "sleepLong", 5000)
	r.want(t, id, "awake")
	s.wantLog(t, id, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hops) < 2 || slices.ContainsFunc(r.hops, func(s string) bool { return s != "1" }) {
		t.Errorf("slept in hops of %v seconds; want several of 1", r.hops)
	}
}

// runCreatedLost: start() sends run_created beside the first message, which is enough to begin with.
func runCreatedLost(t *testing.T, s *server, r *roughRoad) {
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

// deliveredTwice: each message comes twice at the same time, to two processes of the app. Steps may then be
// tried twice, but nothing ends twice, and nothing else happens twice.
func deliveredTwice(t *testing.T, s *server, l *line) {
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

// wantOneOwner expects that no step was started for two messages: either one owns it, and runs it inline, or
// none does, and it has a message of its own.
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

// deliverTwice sends the request to all of the processes at once and answers with the answer to the first.
func deliverTwice(w http.ResponseWriter, r *http.Request, apps ...*app) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp(w)
	}
	answers := make([]*http.Response, len(apps))
	var sending sync.WaitGroup
	for i, app := range apps {
		sending.Go(func() {
			again := r.Clone(r.Context())
			again.RequestURI = ""
			again.URL.Scheme, again.URL.Host = "http", "127.0.0.1:"+app.port
			again.Body = io.NopCloser(bytes.NewReader(body))
			if answer, err := http.DefaultTransport.RoundTrip(again); err == nil {
				answers[i] = answer
				_ = answer.Body.Close()
			}
		})
	}
	sending.Wait()
	if answers[0] == nil {
		hangUp(w)
	}
	w.WriteHeader(answers[0].StatusCode)
}

// firstAttempts is the log without the starts of steps that had been started.
func (l log) firstAttempts() log {
	started := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(l), func(e event) bool {
		again := e.Type == "step_started" && started[e.CorrelationID]
		started[e.CorrelationID] = started[e.CorrelationID] || e.Type == "step_started"
		return again
	})
}
