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

// longSleep: the SDK sleeps in hops of at most 23 hours, or what VERCEL_QUEUE_MAX_DELAY_SECONDS says.
func longSleep(t *testing.T, s *server) {
	var mu sync.Mutex
	var hops []string
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if delay := r.Header.Get("Vqs-Delay-Seconds"); delay != "" {
				mu.Lock()
				hops = append(hops, delay)
				mu.Unlock()
			}
			forward.ServeHTTP(w, r)
		}
	})
	a := newApp(t, appOptions{
		stepwell: between.URL, deployment: "hops", env: []string{"VERCEL_QUEUE_MAX_DELAY_SECONDS=1"},
	})
	s.register(t, "hops", a.url())

	id := a.run(t, "sleepLong", 5000)
	a.want(t, id, "awake")
	s.wantLog(t, id, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	mu.Lock()
	defer mu.Unlock()
	if len(hops) < 2 || slices.ContainsFunc(hops, func(s string) bool { return s != "1" }) {
		t.Errorf("slept in hops of %v seconds; want several of 1", hops)
	}
}

// runCreatedLost: start() sends run_created beside the first message, which is enough to begin with.
func runCreatedLost(t *testing.T, s *server) {
	var answerOnly atomic.Bool
	var lost atomic.Int64
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events/run_created") {
				if answerOnly.Load() {
					forward.ServeHTTP(httptest.NewRecorder(), r)
				}
				lost.Add(1)
				hangUp(w)
			}
			forward.ServeHTTP(w, r)
		}
	})
	a := newApp(t, appOptions{stepwell: between.URL, deployment: "lossy"})
	s.register(t, "lossy", a.url())
	for _, only := range []bool{false, true} {
		answerOnly.Store(only)
		lost.Store(0)
		id := a.run(t, "sequential", 1)
		a.want(t, id, 4)
		s.wantLog(t, id,
			sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
		a.wantCounts(t, id, map[string]int{"add": 3})
		if lost.Load() == 0 {
			t.Error("nothing was lost")
		}
	}
}

// deliveredTwice: each message comes twice at the same time. Steps may then be tried twice, but nothing
// ends twice, and nothing else happens twice.
func deliveredTwice(t *testing.T, s *server) {
	a := newApp(t, appOptions{stepwell: s.url(), deployment: "twice"})
	var delivered atomic.Int64
	twice := newProxy(t, a.url(), func(http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			delivered.Add(1)
			deliverTwice(w, r, a.url())
		}
	})
	s.register(t, "twice", twice.URL)

	steps, fan := a.run(t, "sequential", 1), a.run(t, "fanout", 10)
	sleeper, hooked := a.run(t, "sleepShort"), a.run(t, "hookMany", "twice", 5)
	a.hook(t, hooked)
	for i := range 5 {
		a.resume(t, "twice", i)
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
	}
	t.Logf("%d messages were delivered twice", delivered.Load())
}

// deliverTwice sends the request to the app twice at once and answers with the answer to the first.
func deliverTwice(w http.ResponseWriter, r *http.Request, app string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp(w)
	}
	var answers [2]*http.Response
	var sending sync.WaitGroup
	for i := range answers {
		sending.Go(func() {
			again := r.Clone(r.Context())
			again.RequestURI = ""
			again.URL.Scheme, again.URL.Host = "http", strings.TrimPrefix(app, "http://")
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
