package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// executions counts the calls of a function by their idempotency keys, which name their steps.
type executions struct {
	all atomic.Int64

	mu   sync.Mutex
	byID map[string]int
}

// ServeHTTP implements [http.Handler]: the output of a step is its input.
func (e *executions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Step struct{ Input json.RawMessage }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	e.mu.Lock()
	e.byID[r.Header.Get("Idempotency-Key")]++
	e.mu.Unlock()
	e.all.Add(1)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(call.Step.Input)
}

// repeated returns how many steps were executed, and how many of them more than once.
func (e *executions) repeated() (steps, repeated int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.byID {
		if n > 1 {
			repeated++
		}
	}
	return len(e.byID), repeated
}

// TestCrashesRepeatFewSteps kills a server three times while flows map many items. What was called and is not recorded
// then is executed a second time: 2 % of the steps, or about as many for each kill as there are turns, if there are few
// steps. The server begins no calls while many answers wait to be recorded. FLOW_RUNS is the number of flows of 200 items:
// make flow-crashes has 100. Without it, beside other tests, only the outcome counts: how much is under way at a kill is a
// question of speed.
func TestCrashesRepeatFewSteps(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const items, kills, limit = 200, 3, 20 * time.Minute
	turns := 32 * runtime.GOMAXPROCS(0)
	runs, err := strconv.Atoi(os.Getenv("FLOW_RUNS"))
	counted := err == nil
	if !counted {
		runs = 3
	}
	var calls executions
	calls.byID = map[string]int{}
	f := httptest.NewServer(&calls)
	t.Cleanup(f.Close)
	s := newReplica(t, testdb.New(t))
	s.register(t, "items", f.URL)
	s.putFlow(t, fmt.Sprintf(`
flow: items
deployment: items
steps:
  m: {map: input, concurrency: %d, do: {call: echo}}
output: "${steps.m.output}"
`, items))
	input := make([]int, items)
	for i := range input {
		input[i] = i
	}
	body, err := json.Marshal(map[string]any{"workflow": "items", "input": input})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, runs)
	for i := range ids {
		ids[i] = decode[struct{ ID string }](t, request(t, http.MethodPost, s.url()+"/v1/runs", body).Want(t, http.StatusCreated)).ID
	}
	for kill := range int64(kills) {
		for calls.all.Load() < (kill+1)*int64(runs*items)/(kills+1) {
			pause(t, time.Millisecond)
		}
		s.Kill()
		s.start(t)
	}
	began := time.Now()
	for _, id := range ids {
		for status := 0; status != http.StatusOK; {
			if status = request(t, http.MethodGet, s.url()+"/v1/runs/"+id+"/wait?timeout=10s", nil).Status; time.Since(began) > limit {
				t.Fatalf("run %s has not ended: %d", id, status)
			}
		}
	}
	steps, repeated := calls.repeated()
	t.Logf("%d of %d steps were executed more than once, %d calls", repeated, steps, calls.all.Load())
	if steps != runs*items {
		t.Errorf("%d steps were executed, want %d", steps, runs*items)
	}
	if most := max(runs*items/50, kills*2*turns); counted && repeated > most {
		t.Errorf("%d of %d steps were executed more than once after %d kills, want at most %d", repeated, steps, kills, most)
	}
}
