package e2e

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestStepsSurviveServerCrash kills a server that is delivering steps. The other server delivers them again, and each
// step completes once.
func TestStepsSurviveServerCrash(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const runs, work = 12, 4 * time.Second
	dsn := testdb.New(t)
	survivor, victim := newReplica(t, dsn), newReplica(t, dsn)
	a := survivor.app(t, stable, "crash")
	var ids []string
	for range runs {
		ids = append(ids, a.run(t, "slowStep", work.Milliseconds()))
	}
	for _, id := range ids {
		eventually(t, "the step is running", func() bool { return a.counts(t, id)["takesTime"] == 1 })
	}
	victim.Kill()
	killed := time.Now()
	again := 0
	for _, id := range ids {
		a.want(t, id, work.Milliseconds())
		if n := a.counts(t, id)["takesTime"]; n > 1 {
			again++
		}
		if l := log(survivor.events(t, id)); len(l.of("step_completed")) != 1 || len(l.of("run_completed")) != 1 {
			t.Errorf("log of %s: %q, want one step_completed and one run_completed", id, l.lines())
		}
	}
	took := time.Since(killed)
	t.Logf("%d of %d steps were executed again; all runs ended within %s", again, runs, took)
	// Takeover needs five seconds, then the step runs again; the rest is tolerance for a busy machine.
	if most := 5*time.Second + work + 15*time.Second; took > most {
		t.Errorf("the runs ended %s after the kill, want at most %s", took, most)
	}
}

// TestRunsContinueAfterLostMessages drops the message that would continue a run, as if the client had died before
// sending it. The server notices and continues the run.
func TestRunsContinueAfterLostMessages(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	var lose atomic.Pointer[string] // the topic prefix whose next message is dropped; empty for none
	none := ""
	lose.Store(&none)
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			kind := lose.Load()
			sends := r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/topic/") && !strings.Contains(r.URL.Path, "/consumer/")
			if *kind == "" || !sends || !strings.Contains(r.URL.Path, *kind) || !lose.CompareAndSwap(kind, &none) {
				forward.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"messageId":"msg_lost"}`)
		}
	})
	a := newApp(t, appOptions{line: stable, stepwell: between.URL, deployment: "lossy", client: harness.OfficialClient})
	s.register(t, "lossy", a.url())
	loseNext := func(kind string) { lose.Store(&kind) }
	lost := func() {
		t.Helper()
		eventually(t, "a message is dropped", func() bool { return *lose.Load() == "" })
	}

	holder := a.run(t, "hookHold", "lossy")
	a.hook(t, holder)
	loseNext("/__wkf_workflow_")
	created := a.run(t, "sequential", 1)
	lost()
	loseNext("/__wkf_workflow_")
	a.resume(t, "lossy", "hello")
	lost()
	loseNext("/__wkf_step_")
	stepping := a.run(t, "sequential", 2)
	lost()

	a.want(t, created, 4)
	a.want(t, holder, map[string]any{"payload": "hello"})
	a.want(t, stepping, 5)
	for _, id := range []string{created, stepping} {
		a.wantCounts(t, id, map[string]int{"add": 3})
	}
}

// TestRunIsWokenBeforeItsBackstop: an app of the 5.x line dies between step_retrying, which says that the step is due in
// a second, and the message for it. Left is the message that the client sends as a backstop, due in 15 minutes. The
// server notices that it is too late, and continues the run. To leave the same behind, the test turns the message for
// the retry into the backstop.
func TestRunIsWokenBeforeItsBackstop(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	var replaced atomic.Bool
	between := newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Vqs-Delay-Seconds") != "" && replaced.CompareAndSwap(false, true) {
				r.Header.Set("Vqs-Delay-Seconds", "900")
				r.Header.Set("Vqs-Idempotency-Key", r.Header.Get("Vqs-Idempotency-Key")+":backstop")
			}
			forward.ServeHTTP(w, r)
		}
	})
	a := newApp(t, appOptions{line: beta55, stepwell: between.URL, deployment: "backstop", client: harness.OfficialClient})
	s.register(t, "backstop", a.url())

	id := a.run(t, "retryable")
	s.waitFor(t, id, "step_retrying")
	a.want(t, id, 3)
	if !replaced.Load() {
		t.Error("the client sent no delayed message")
	}
	a.wantCounts(t, id, map[string]int{"retriesTwice": 3})
}
