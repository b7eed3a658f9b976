package memserver

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a function that gives one answer after the other to calls of the workflow, and an empty one in the end.
// Steps whose name begins with "bad" fail.
type script struct {
	answers []string
	calls   []string // IDs of the steps, and "workflow"
}

// ServeHTTP implements http.Handler.
func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // it is in memory
	var call struct {
		Type string
		Step struct{ ID, Name string }
	}
	_ = json.Unmarshal(body, &call) // the server made it
	if call.Type == "step" {
		s.calls = append(s.calls, call.Step.ID)
		if strings.HasPrefix(call.Step.Name, "bad") {
			w.WriteHeader(http.StatusInternalServerError)
		} else {
			_, _ = io.WriteString(w, `1`)
		}
		return
	}
	s.calls = append(s.calls, "workflow")
	if len(s.answers) > 0 {
		_, _ = io.WriteString(w, s.answers[0])
		s.answers = s.answers[1:]
	}
}

// run runs a workflow with these answers.
func run(answers ...string) (*Server, *Run, *script) {
	s := New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	fn := &script{answers: answers}
	s.Function = fn
	return s, s.Start("test", nil), fn
}

// types returns the types and IDs of the events after the first two.
func types(r *Run) (events []string) {
	for _, e := range r.Log[2:] {
		events = append(events, strings.TrimSpace(e.Type+" "+e.ID))
	}
	return events
}

func TestAwaitSets(t *testing.T) {
	t.Parallel()
	const hook = `{"type":"openHook","id":"h","token":"t"}`
	for name, c := range map[string]struct {
		answer string
		want   int // calls of the workflow
	}{
		"without": {`{"commands":[{"type":"runStep","id":"a"},{"type":"runStep","id":"b"},` + hook + `]}`, 2},
		"any": {`{"commands":[{"type":"runStep","id":"a"},{"type":"wait","id":"w","for":"1h"},` + hook + `],
			"await":{"any":["wait:w"],"all":[]}}`, 2},
		"all": {`{"commands":[{"type":"runStep","id":"a"},{"type":"wait","id":"w","for":"1h"},` + hook + `],
			"await":{"any":[],"all":[["step:a","wait:w"]]}}`, 2},
		"only hooks":       {`{"commands":[{"type":"runStep","id":"a"},` + hook + `],"await":{"any":[],"all":[]}}`, 1},
		"what is not open": {`{"commands":[` + hook + `],"await":{"any":["step:x"],"all":[]}}`, 2},
		"a result of its own": {`{"commands":[{"type":"recordStep","id":"a","output":1},` + hook + `],
			"await":{"any":[],"all":[]}}`, 1},
		"a result of its own, without": {`{"commands":[{"type":"recordStep","id":"a","output":1},` + hook + `]}`, 2},
		"what is cancelled": {`{"commands":[{"type":"wait","id":"w","for":"1h"},{"type":"cancelWait","id":"w"},` + hook + `],
			"await":{"any":["wait:w"],"all":[]}}`, 2},
		"what is cancelled, without": {`{"commands":[{"type":"runStep","id":"a"},{"type":"cancelStep","id":"a"},` + hook + `]}`, 1},
	} {
		s, r, fn := run(c.answer)
		s.RunUntilDone()
		count := 0
		for _, call := range fn.calls {
			if call == "workflow" {
				count++
			}
		}
		if count != c.want || r.LastError != "" {
			t.Errorf("%s: the workflow was called %d times, want %d; error %q", name, count, c.want, r.LastError)
		}
		if err := s.Resume("t", nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.RunUntilDone()
		if fn.calls[len(fn.calls)-1] != "workflow" {
			t.Errorf("%s: a payload has not woken the run", name)
		}
	}
}

func TestAttemptsOfTheFunction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		want    []string
		passed  time.Duration
	}{
		"a first attempt": {
			[]string{`{"commands":[{"type":"runStep","id":"a","retry":{"backoff":"10s"},"firstAttempt":{"error":{"message":"no"}}}]}`,
				`{"commands":[{"type":"complete"}]}`},
			[]string{"step_created a", "step_started a", "step_retrying a", "step_completed a", "run_completed"}, 10 * time.Second,
		},
		"the only attempt": {
			[]string{`{"commands":[{"type":"runStep","id":"a","retry":{"maxAttempts":1},"firstAttempt":{"error":{"message":"no"}}}]}`,
				`{"commands":[{"type":"complete"}]}`},
			[]string{"step_created a", "step_started a", "step_failed a", "run_completed"}, 0,
		},
		"a later one": {
			[]string{`{"commands":[{"type":"recordStep","id":"a","error":{"message":"no"},"retryAfter":"30s"}]}`,
				`{"commands":[{"type":"recordStep","id":"a","output":1},{"type":"complete"}]}`},
			[]string{"step_created a", "step_started a", "step_retrying a", "step_started a", "step_completed a", "run_completed"}, 30 * time.Second,
		},
		"one that is cancelled": {
			[]string{`{"commands":[{"type":"recordStep","id":"a","error":{"message":"no"},"retryAfter":"30s"},{"type":"wait","id":"w","for":"1s"}]}`,
				`{"commands":[{"type":"cancelStep","id":"a"},{"type":"complete"}]}`},
			[]string{
				"step_created a", "step_started a", "step_retrying a", "wait_created w", "wait_completed w", "step_failed a", "run_completed",
			}, time.Second,
		},
	} {
		s, r, _ := run(c.answers...)
		before := s.Now()
		s.RunUntilDone()
		if got := types(r); !slices.Equal(got, c.want) || s.Now().Sub(before) != c.passed {
			t.Errorf("%s: after %s got %q, want %q; error %q", name, s.Now().Sub(before), got, c.want, r.LastError)
		}
	}
}

func TestARecordedResultEndsAStepOfTheServer(t *testing.T) {
	t.Parallel()
	s, r, fn := run(`{"commands":[{"type":"runStep","id":"bad","retry":{"backoff":"10s"}},{"type":"wait","id":"w","for":"1s"}]}`,
		`{"commands":[{"type":"recordStep","id":"bad","output":1},{"type":"complete"}]}`)
	s.RunUntilDone()
	want := "step_created bad wait_created w step_started bad step_retrying bad wait_completed w step_completed bad run_completed"
	if got := strings.Join(types(r), " "); got != want {
		t.Errorf("got %s, error %q", got, r.LastError)
	}
	if got := strings.Join(fn.calls, " "); got != "workflow bad workflow" {
		t.Errorf("the calls are %s", got)
	}
}

// TestTheFirstEndOfSeveralCancellationsCounts asks a run to cancel several times; its deadline is one of them.
func TestTheFirstEndOfSeveralCancellationsCounts(t *testing.T) {
	t.Parallel()
	type request struct{ after, grace time.Duration }
	for name, c := range map[string]struct {
		requests        []request
		timeout, grace  time.Duration
		status          string
		passed          time.Duration
		cancelRequested int
	}{
		"one":                    {[]request{{0, time.Hour}}, 0, 0, "cancelled", time.Hour, 1},
		"a later end":            {[]request{{0, time.Hour}, {time.Minute, time.Hour}}, 0, 0, "cancelled", time.Hour, 1},
		"an earlier end":         {[]request{{0, time.Hour}, {time.Minute, time.Minute}}, 0, 0, "cancelled", 2 * time.Minute, 2},
		"at once":                {[]request{{0, time.Hour}, {time.Minute, 0}}, 0, 0, "cancelled", time.Minute, 1},
		"a deadline that ends":   {[]request{{0, time.Hour}}, time.Minute, 0, "failed", time.Minute, 1},
		"a deadline with grace":  {nil, time.Minute, time.Minute, "failed", 2 * time.Minute, 1},
		"a deadline that is too": {[]request{{0, time.Hour}}, time.Minute, 2 * time.Hour, "cancelled", time.Hour, 1},
	} {
		s, r, _ := run(`{"commands":[{"type":"openHook","id":"h","token":"t"}]}`)
		began := s.Now()
		if c.timeout > 0 {
			s.Limit(r, c.timeout, c.grace)
		}
		s.RunUntilIdle()
		for _, request := range c.requests {
			s.Advance(request.after)
			s.Cancel(r, "", request.grace)
		}
		s.RunUntilDone()
		asked := strings.Count(strings.Join(types(r), " "), "cancel_requested")
		if passed := s.Now().Sub(began); r.Status != c.status || passed != c.passed || asked != c.cancelRequested {
			t.Errorf("%s: %s after %s, asked %d times", name, r.Status, passed, asked)
		}
	}
	s, r, fn := run()
	s.Cancel(r, "", time.Hour)
	s.RunUntilDone()
	if r.Status != "cancelled" || len(fn.calls) > 0 {
		t.Errorf("a run that was never called is %s after %q", r.Status, fn.calls)
	}
}

func TestCommandsDuringACall(t *testing.T) {
	t.Parallel()
	s, r, _ := run(`{"commands":[{"type":"openHook","id":"h","token":"t"}]}`)
	s.RunUntilIdle()
	events, err := s.Command(r, []byte(`{"commands":[{"type":"recordStep","id":"a","output":1}],"open":["b"]}`), 3)
	if err != nil || len(events) != 2 || events[1].Type != "step_completed" || events[0].Data["open"] == nil {
		t.Errorf("got %v, %v", events, err)
	}
	if calls := r.Invocations; s.act() || r.Invocations != calls {
		t.Error("the function is called for what it has recorded itself")
	}
	s.Cancel(r, "", 0)
	if _, err := s.Command(r, []byte(`{}`), 0); err != ErrCallOver { //nolint:errorlint // it is that one
		t.Errorf("got %v, want %v", err, ErrCallOver)
	}
}

// TestARunWithNothingToWaitForSaysSo: a server refuses such an answer.
func TestARunWithNothingToWaitForSaysSo(t *testing.T) {
	t.Parallel()
	s, r, _ := run(`{"commands":[{"type":"setStore","id":"s","values":{"key":1}}]}`)
	s.RunUntilDone()
	if got := r.WaitsFor(); !strings.Contains(got, "nothing to wait for") || r.Invocations != 1 {
		t.Errorf("after %d calls: %s", r.Invocations, got)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	r := &Run{ID: "wrun_1", attributes: map[string]string{"order": "7"}}
	data := map[string]any{"order": "7", "n": 5.0, "ok": true, "deep": map[string]any{"x": 1.0}}
	for condition, want := range map[string]bool{
		"":                                     true,
		`data.order == "7" && data.n > (4)`:    true,
		`data.order == run.attributes.order`:   true,
		`data.order != "7" || !data.ok`:        false,
		`data.deep.x <= 1 && data.n >= 5`:      true,
		`data.deep == data.deep`:               true,
		`data.missing == "7"`:                  false,
		`data.missing != "7"`:                  false,
		`data.order < 7`:                       false,
		`data.n > -1 && (data.ok == true)`:     true,
		`run.id == "wrun_1" && data.n < (5.5)`: true,
	} {
		if got, err := evaluateFor(r, condition, data); got != want || err != nil {
			t.Errorf("%q is %v, %v", condition, got, err)
		}
	}
	for _, condition := range []string{`has(data.x)`, `data.n + 1 == 6`, `data.`, `nothing == 1`} {
		if _, err := evaluateFor(r, condition, data); err == nil {
			t.Errorf("%q was evaluated", condition)
		}
	}
}
