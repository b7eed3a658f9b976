package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// eachExample runs a test on each of the examples, with a server and a database of its own.
func eachExample(t *testing.T, test func(t *testing.T, s *server, f *function)) {
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

// What happens to the parts of an order of a teapot, by entity.
var approvedThreads = []string{
	"charge: created started retrying started completed", "hook: created received", "reserve: created started completed",
	"run: created started completed", "ship: created started completed", "wait: created completed",
}

// TestFunctions: orders that are approved, rejected, and not in stock.
func TestFunctions(t *testing.T) {
	t.Parallel()
	eachExample(t, func(t *testing.T, s *server, f *function) {
		yes, no := f.order(t, s, teapot("yes")), f.order(t, s, teapot("no"))
		none := f.order(t, s, map[string]any{"id": "none", "item": "unicorn", "amount": 25})
		s.decide(t, "no", false)
		s.decide(t, "yes", true)
		s.wantOutput(t, yes, shipped(yes))
		s.wantThreads(t, yes, approvedThreads...)
		s.wantOutput(t, no, rejected("it was not approved"))
		s.wantThreads(t, no, "charge: created started retrying started completed", "hook: created received",
			"refund: created started completed", "reserve: created started completed", "run: created started completed",
			"wait: created completed")
		s.wantOutput(t, none, rejected("reserve: there are no unicorns"))
		s.wantThreads(t, none, "charge: created started retrying started completed", "refund: created started completed",
			"reserve: created started failed", "run: created started completed")
		s.verify(t)
	})
}

// TestFunctionsCalledTwice: the function gets each call twice at once, and nothing else happens twice.
func TestFunctionsCalledTwice(t *testing.T) {
	t.Parallel()
	eachExample(t, func(t *testing.T, s *server, f *function) {
		f.twice = true // before anything is called
		id := f.order(t, s, teapot("twice"))
		s.decide(t, "twice", true)
		s.wantOutput(t, id, shipped(id))
		s.wantThreads(t, id, approvedThreads...)
		s.verify(t)
	})
}

// TestStaleInvocationsOfFunctions: commands that come by the names of invocations that are over change nothing.
func TestStaleInvocationsOfFunctions(t *testing.T) {
	t.Parallel()
	eachExample(t, func(t *testing.T, s *server, f *function) {
		id := f.order(t, s, teapot("stale"))
		forged := []byte(`{"commands": [{"type": "recordStep", "id": "ship", "output": "forged"},
			{"type": "complete", "output": "stale"}]}`)
		s.waitFor(t, id, "hook_created")
		old := f.invocations(id)
		if len(old) < 3 {
			t.Fatalf("the run asks for approval after %d invocations", len(old))
		}
		for _, invocation := range old {
			s.command(t, id, invocation, forged).want(t, http.StatusConflict)
		}
		last := f.holdAnswer(func(c functionCall) bool { return c.Type == "workflow" && c.has("hook_received", "approval") })
		s.decide(t, "stale", true)
		<-last.held
		for _, invocation := range old { // also while another one lives
			s.command(t, id, invocation, forged).want(t, http.StatusConflict)
		}
		last.then <- true
		s.wantOutput(t, id, shipped(id))
		for _, invocation := range f.invocations(id) {
			s.command(t, id, invocation, forged).want(t, http.StatusGone)
		}
		s.wantThreads(t, id, approvedThreads...)
		s.verify(t)
	})
}

// command gives commands by the name of an invocation.
func (s *server) command(t *testing.T, runID, invocation string, body []byte) response {
	t.Helper()
	return requestWith(t, http.MethodPost, s.url()+"/v1/runs/"+runID+"/commands", body, "Stepwell-Invocation", invocation)
}

// amid are the moments at which something is killed. Reach waits for the moment, and returns what is to be called when
// the killing is done; it says whether the function's answer was lost with it.
var amid = []struct {
	name  string
	reach func(t *testing.T, s *server, f *function) (after func(lost bool))
}{
	{"a step", func(t *testing.T, s *server, f *function) func(bool) {
		t.Helper()
		eventually(t, "the step is at work", func() bool { return strings.Contains(f.Said(), "step reserve attempt 1") })
		return func(bool) { s.decide(t, "killed", true) }
	}},
	{"an invocation", func(t *testing.T, s *server, f *function) func(bool) {
		t.Helper()
		next := f.holdAnswer(func(c functionCall) bool { return c.Type == "workflow" && c.has("hook_received", "approval") })
		s.decide(t, "killed", true)
		<-next.held
		return func(lost bool) { next.then <- !lost }
	}},
}

// TestFunctionsKilled: the function is killed amid a step, and amid an invocation, and comes back.
func TestFunctionsKilled(t *testing.T) {
	t.Parallel()
	killed(t, func(t *testing.T, _ *server, f *function, after func(bool)) {
		t.Helper()
		f.Kill()
		f.start(t)
		after(true)
	})
}

// TestServerKilledAmidFunctions: the server is killed while it waits for the answer to a step or an invocation, and
// comes back.
func TestServerKilledAmidFunctions(t *testing.T) {
	t.Parallel()
	killed(t, func(t *testing.T, s *server, _ *function, after func(bool)) {
		t.Helper()
		s.Kill()
		s.start(t)
		after(false)
	})
}

func killed(t *testing.T, kill func(t *testing.T, s *server, f *function, after func(bool))) {
	t.Helper()
	for _, moment := range amid {
		t.Run("amid "+moment.name, func(t *testing.T) {
			t.Parallel()
			eachExample(t, func(t *testing.T, s *server, f *function) {
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
