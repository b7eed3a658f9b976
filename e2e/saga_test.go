package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// sagaFlows are a diamond with a map on one side and a child on the other, what undoes that child, and a child that is
// open when its parent fails.
var sagaFlows = []string{`
flow: saga
deployment: ledger
defaults: {attemptTimeout: 1s, retry: {maxAttempts: 3, backoff: 10ms}}
steps:
  a: {call: do, undo: {call: undo}}
  b: {needs: a, call: do, undo: {call: undo}}
  c: {needs: a, call: do, undo: {call: undo}}
  m:
    needs: b
    map: "[0, 1]"
    do:
      steps:
        p: {call: do, input: "${input}", undo: {call: undo}}
        q: {needs: p, call: do, input: "${input}", undo: {call: undo}}
  k: {needs: c, flow: kid, input: {saga: "${input.saga}", at: "k.", of: "${run.id}"}, undo: {flow: unkid}}
  d: {needs: [m, k], call: do, undo: {call: undo}}
  e: {needs: d, call: do, undo: {call: undo}}
  o: {needs: a, flow: endless, input: {saga: "${input.saga}", at: "o.", of: "${run.id}"}}
`, `
flow: kid
deployment: ledger
defaults: {attemptTimeout: 1s, retry: {maxAttempts: 3, backoff: 10ms}}
steps:
  x: {call: do, undo: {call: undo}}
  y: {needs: x, call: do, undo: {call: undo}}
`, `
flow: unkid
deployment: ledger
defaults: {attemptTimeout: 1s, retry: {maxAttempts: 3, backoff: 10ms}}
steps:
  y: {call: undo}
  x: {needs: y, call: undo}
`, `
flow: endless
deployment: ledger
defaults: {attemptTimeout: 1s, retry: {maxAttempts: 3, backoff: 10ms}}
steps:
  x: {call: do, undo: {call: undo}}
  w: {needs: x, signal: never}
`}

// sagaNeeds are the effects on which each effect depends.
var sagaNeeds = map[string][]string{
	"a": nil, "b": {"a"}, "c": {"a"}, "m[0].p": {"b"}, "m[1].p": {"b"}, "m[0].q": {"m[0].p"}, "m[1].q": {"m[1].p"},
	"k.x": {"c"}, "k.y": {"k.x"}, "d": {"m[0].q", "m[1].q", "k.y"}, "e": {"d"}, "o.x": {"a"},
}

// saga is a run in which something goes wrong at one step.
type saga struct {
	step, mode string
	stuck      []string          // effects that cannot be undone
	cancel     func(root string) // asks the run to cancel

	mu     sync.Mutex
	calls  map[string]int
	ledger map[string]bool // the effects that were applied; false once they are undone
	wrong  []string
}

// What goes wrong at the step of a saga.
const (
	sagaFails  = "fails"            // for good, before it takes effect
	sagaLate   = "is late"          // with its answer, after it took effect
	sagaCut    = "is cut off"       // after it took effect
	sagaDoubt  = "fails in doubt"   // for good, after an attempt that took effect and was cut off
	sagaCancel = "is under way"     // when the run is asked to cancel
	sagaStuck  = "cannot be undone" // what others did; it fails for good
)

// do is the function that takes effect, and undo the one that undoes it.
func (s *saga) do(w http.ResponseWriter, r *http.Request, root, effect string) {
	s.mu.Lock()
	s.calls[effect]++
	fails := effect == s.step &&
		(s.mode == sagaFails || s.mode == sagaStuck || s.mode == sagaDoubt && s.calls[effect] > 1)
	if !fails {
		s.ledger[effect] = true
		for _, needed := range sagaNeeds[effect] {
			if !s.ledger[needed] {
				s.wrong = append(s.wrong, effect+" took effect without "+needed)
			}
		}
	}
	s.mu.Unlock()
	switch {
	case effect != s.step:
	case fails:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"error": {"message": "no", "code": "no"}}`))
		return
	case s.mode == sagaLate:
		<-r.Context().Done()
	case s.mode == sagaCut, s.mode == sagaDoubt:
		panic(http.ErrAbortHandler)
	case s.mode == sagaCancel:
		s.cancel(root)
	}
	_, _ = w.Write([]byte(`null`))
}

func (s *saga) undo(w http.ResponseWriter, effect string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.stuck, effect) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"error": {"message": "it is stuck", "code": "stuck"}}`))
		return
	}
	for other, needed := range sagaNeeds {
		if s.ledger[other] && slices.Contains(needed, effect) && !slices.Contains(s.stuck, other) {
			s.wrong = append(s.wrong, effect+" is undone before "+other)
		}
	}
	if _, took := s.ledger[effect]; took {
		s.ledger[effect] = false
	}
	_, _ = w.Write([]byte(`null`))
}

// sagas are those of the test, by their names: all that can go wrong at each step in a long test, else one thing, drawn
// at random.
func sagas(cancel func(root string)) map[string]*saga {
	all, first := map[string]*saga{}, rand.IntN(100)
	add := func(step, mode string) {
		all[step+" "+mode] = &saga{
			step: step, mode: mode, cancel: cancel, calls: map[string]int{}, ledger: map[string]bool{},
		}
	}
	modes := []string{sagaFails, sagaLate, sagaCut, sagaDoubt, sagaCancel}
	for i, step := range slices.Sorted(maps.Keys(sagaNeeds)) {
		if !harness.IsLong() {
			add(step, modes[(i+first)%len(modes)])
			continue
		}
		for _, mode := range modes {
			add(step, mode)
		}
	}
	add("e", sagaStuck)
	all["e "+sagaStuck].stuck = []string{"c", "m[0].p"}
	return all
}

// TestSagasLeaveNothingBehind has each step of a flow fail, be late, be cut off, and be under way when its run is asked
// to cancel, while the server is killed twice. In the end nothing is left of what the steps did, each was undone after
// all that depended on it, and what could not be undone is named.
func TestSagasLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	api := s.url() + "/v1/runs/"
	all := sagas(func(root string) {
		for t.Context().Err() == nil { // the server may be away
			body := []byte(`{"reason": "twice", "grace": "1h"}`)
			if r := request(t, http.MethodPost, api+root+"/cancel", body); r.Status == http.StatusOK {
				return
			}
			time.Sleep(pollInterval)
		}
	})
	var applied, undone atomic.Int64
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type about struct{ Saga, At, Of string }
		var call struct {
			Run  struct{ ID string }
			Step struct {
				ID, Name string
				Input    struct {
					about
					Input about // of an undo
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			return // the server was killed while it sent the call
		}
		w.Header().Set("Content-Type", "application/json")
		if in := call.Step.Input.Input; call.Step.Name == "undo" {
			undone.Add(1)
			all[in.Saga].undo(w, in.At+strings.TrimSuffix(call.Step.ID, "~undo"))
			return
		}
		applied.Add(1)
		in := call.Step.Input.about
		all[in.Saga].do(w, r, cmp.Or(in.Of, call.Run.ID), in.At+call.Step.ID)
	}))
	t.Cleanup(f.Close)
	s.register(t, "ledger", f.URL)
	for _, document := range sagaFlows {
		s.putFlow(t, document)
	}
	began := time.Now()
	runs := map[string]string{}
	for name := range all {
		body := fmt.Sprintf(`{"workflow": "saga", "input": {"saga": %q, "at": ""}}`, name)
		runs[name] = decode[struct{ ID string }](t, request(t, http.MethodPost, s.url()+"/v1/runs", []byte(body)).
			Want(t, http.StatusCreated)).ID
	}
	for _, count := range []*atomic.Int64{&applied, &undone} {
		eventually(t, "the sagas are under way", func() bool { return count.Load() > int64(len(all)) })
		s.Kill()
		s.start(t)
	}
	for name, saga := range all {
		s.wantUndone(t, runs[name], name, saga)
	}
	t.Logf("%d sagas, %d effects, %d undone: %s", len(all), applied.Load(), undone.Load(), time.Since(began))
	s.verify(t)
}

// wantUndone checks how a saga has ended, and what is left of it.
func (s *server) wantUndone(t *testing.T, id, name string, saga *saga) {
	t.Helper()
	var run struct {
		Status string
		Error  struct {
			Code    string
			Details struct {
				Undo struct{ Done, Failed []string }
			}
		}
	}
	eventually(t, name+" ends", func() bool {
		r := request(t, http.MethodGet, s.url()+"/v1/runs/"+id+"/wait?timeout=10s", nil)
		run.Status = ""
		return r.Status == http.StatusOK && json.Unmarshal(r.Body, &run) == nil && run.Status != "running" && run.Status != ""
	})
	status, failed := "failed", []string(nil)
	switch saga.mode {
	case sagaCancel:
		status = "cancelled"
	case sagaStuck:
		done := []string{"a", "b", "k", "d"}
		failed = []string{"c", "m"}
		if s.beganAgain(t, id, "e") { // nobody knows what the call did that was under way when the server was killed
			done = append(done, "e")
		}
		if diff := gocmp.Diff(done, run.Error.Details.Undo.Done); diff != "" {
			t.Errorf("%s: undone (-want +got):\n%s", name, diff)
		}
	}
	if diff := gocmp.Diff(failed, run.Error.Details.Undo.Failed, cmpopts.EquateEmpty()); run.Status != status || diff != "" {
		t.Errorf("%s: the run is %s, want %s; what cannot be undone (-want +got):\n%s", name, run.Status, status, diff)
	}
	saga.mu.Lock()
	defer saga.mu.Unlock()
	maps.DeleteFunc(saga.ledger, func(_ string, applied bool) bool { return !applied })
	left := slices.Sorted(maps.Keys(saga.ledger))
	if diff := gocmp.Diff(saga.stuck, left); diff != "" || saga.wrong != nil {
		t.Errorf("%s: left (-want +got):\n%s\nwrong: %q", name, diff, saga.wrong)
	}
}

// beganAgain reports whether a step of a run was started more than once.
func (s *server) beganAgain(t *testing.T, runID, step string) bool {
	t.Helper()
	starts := 0
	for _, e := range s.events(t, runID) {
		if e.Type == "step_started" && e.CorrelationID == step {
			starts++
		}
	}
	return starts > 1
}
