package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// each runs a test for each of the examples, on its own server and database.
func each(t *testing.T, examples []example, test func(t *testing.T, s *server, f *function)) {
	t.Helper()
	skipIfShort(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			test(t, s, newFunction(t, s, e))
		})
	}
}

// approvedThreads is the log of an approved order by entity.
var approvedThreads = []string{
	"charge: created started retrying started completed", "hook: created received", "reserve: created started completed",
	"run: created started completed", "ship: created started completed", "wait: created completed",
}

// TestFunctionExamples runs orders that are approved, rejected, or out of stock.
func TestFunctionExamples(t *testing.T) {
	t.Parallel()
	each(t, examples, func(t *testing.T, s *server, f *function) {
		yes, no := f.order(t, s, teapot("yes")), f.order(t, s, teapot("no"))
		none := f.order(t, s, map[string]any{"id": "none", "item": "unicorn", "amount": 25})
		s.decide(t, "no", false)
		s.decide(t, "yes", true)
		s.wantOutput(t, yes, shipped(yes))
		s.wantThreads(t, yes, f.threads(approvedThreads...)...)
		s.wantOutput(t, no, rejected("it was not approved"))
		s.wantThreads(t, no, f.threads("charge: created started retrying started completed", "hook: created received",
			"refund: created started completed", "reserve: created started completed", "run: created started completed",
			"wait: created completed")...)
		s.wantOutput(t, none, rejected("reserve: there are no unicorns"))
		s.wantThreads(t, none, f.threads("charge: created started retrying started completed",
			"refund: created started completed", "reserve: created started failed", "run: created started completed")...)
		s.verify(t)
	})
}

// TestDuplicateFunctionCallsTakeEffectOnce sends each call to the function twice at the same time.
func TestDuplicateFunctionCallsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	each(t, examples, func(t *testing.T, s *server, f *function) {
		f.twice = true // before the first call
		id := f.order(t, s, teapot("twice"))
		s.decide(t, "twice", true)
		s.wantOutput(t, id, shipped(id))
		s.wantThreads(t, id, f.threads(approvedThreads...)...)
		s.verify(t)
	})
}

// TestStaleFunctionInvocationsAreRejected sends commands for invocations that have ended. They must change nothing.
func TestStaleFunctionInvocationsAreRejected(t *testing.T) {
	t.Parallel()
	each(t, examples, func(t *testing.T, s *server, f *function) {
		id := f.order(t, s, teapot("stale"))
		forged := []byte(`{"commands": [{"type": "recordStep", "id": "ship", "output": "forged"},
			{"type": "complete", "output": "stale"}]}`)
		s.waitFor(t, id, "hook_created")
		old := f.invocations(id)
		if len(old) < 3 {
			t.Fatalf("the run waits for approval after only %d invocations", len(old))
		}
		for _, invocation := range old {
			s.command(t, id, invocation, forged).Want(t, http.StatusConflict)
		}
		last := f.holdAnswer(func(c functionCall) bool { return c.Type == "workflow" && c.has("hook_received", "approval") })
		s.decide(t, "stale", true)
		<-last.held
		for _, invocation := range old { // also while a newer one is active
			s.command(t, id, invocation, forged).Want(t, http.StatusConflict)
		}
		last.release <- true
		s.wantOutput(t, id, shipped(id))
		for _, invocation := range f.invocations(id) {
			s.command(t, id, invocation, forged).Want(t, http.StatusGone)
		}
		s.wantThreads(t, id, f.threads(approvedThreads...)...)
		s.verify(t)
	})
}

// command sends commands on behalf of an invocation.
func (s *server) command(t *testing.T, runID, invocation string, body []byte) response {
	t.Helper()
	return requestWith(t, http.MethodPost, s.url()+"/v1/runs/"+runID+"/commands", body, "Stepwell-Invocation", invocation)
}

// crashPoints are the moments at which tests kill a process. reach waits for the moment, and returns a function to be
// called after the kill, with whether the function's answer was lost.
var crashPoints = []struct {
	name  string
	reach func(t *testing.T, s *server, f *function) (after func(lost bool))
}{
	{"a step", func(t *testing.T, s *server, f *function) func(bool) {
		t.Helper()
		eventually(t, "the step is running", func() bool { return strings.Contains(f.Output(), "step reserve attempt 1") })
		return func(bool) { s.decide(t, "killed", true) }
	}},
	{"an invocation", func(t *testing.T, s *server, f *function) func(bool) {
		t.Helper()
		next := f.holdAnswer(func(c functionCall) bool { return c.Type == "workflow" && c.has("hook_received", "approval") })
		s.decide(t, "killed", true)
		<-next.held
		return func(lost bool) { next.release <- !lost }
	}},
}

// TestRunsSurviveFunctionCrash kills and restarts the function during a step, and during an invocation.
func TestRunsSurviveFunctionCrash(t *testing.T) {
	t.Parallel()
	surviveCrash(t, func(t *testing.T, _ *server, f *function, after func(bool)) {
		t.Helper()
		f.Kill()
		f.start(t)
		after(true)
	})
}

// TestRunsSurviveServerCrashDuringFunctionCall kills and restarts the server while it waits for the answer to a step or
// an invocation.
func TestRunsSurviveServerCrashDuringFunctionCall(t *testing.T) {
	t.Parallel()
	surviveCrash(t, func(t *testing.T, s *server, _ *function, after func(bool)) {
		t.Helper()
		s.Kill()
		s.start(t)
		after(false)
	})
}

func surviveCrash(t *testing.T, kill func(t *testing.T, s *server, f *function, after func(bool))) {
	t.Helper()
	for _, moment := range crashPoints {
		t.Run("during "+moment.name, func(t *testing.T) {
			t.Parallel()
			each(t, crashed, func(t *testing.T, s *server, f *function) {
				order := teapot("killed")
				order["seconds"] = 2
				id := f.order(t, s, order)
				kill(t, s, f, moment.reach(t, s, f))
				s.wantOutput(t, id, shipped(id))
				s.wantOnce(t, id)
			})
		})
	}
}

// pythonStep is the call of a step by a server that offers to take its answer by request.
const pythonStep = `{"type": "step", "attempt": 1, "token": "token", "server": {"features": ["answer"]},
	"run": {"id": "wrun_1"}, "step": {"id": "reserve", "name": "reserve", "input": {"item": "teapot"}}}`

// TestPythonStepOutlivesItsServer closes the connection of a step's call, as a server does that stops or dies. The
// example says to another one that the step works, and repeats its answer until that is taken.
func TestPythonStepOutlivesItsServer(t *testing.T) {
	t.Parallel()
	var kept atomic.Bool
	answers := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch call, ok := strings.CutPrefix(r.URL.Path, "/v1/runs/wrun_1/call/"); {
		case !ok || r.Header.Get("Authorization") != "Bearer token":
			t.Errorf("got %s %s with the credential %q", r.Method, r.URL, r.Header.Get("Authorization"))
		case call == "keep":
			kept.Store(true)
		case !kept.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		default:
			select {
			case answers <- string(body):
			default: // a repetition, because the machine is slow
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(other.Close)
	cmd := exec.Command("python3", "../examples/function-python/order.py")
	cmd.Env = cleanEnv("PORT=0", "STEPWELL_URL="+other.URL)
	f, port := harness.Start(t, "Python", cmd, harness.AppReady)
	t.Cleanup(f.Kill)

	_ = f.Signal(syscall.SIGSTOP) // it sees the call when the connection is closed already
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(pythonStep))
	connection, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(connection); err != nil {
		t.Fatal(err)
	}
	_ = connection.Close()
	_ = f.Signal(syscall.SIGCONT)
	select {
	case got := <-answers:
		if want := `{"status": 200, "body": {"reserved": "teapot"}}`; got != want {
			t.Errorf("the answer is %s, want %s", got, want)
		}
	case <-time.After(timeout):
		t.Fatalf("no answer within %s", timeout)
	}
}
