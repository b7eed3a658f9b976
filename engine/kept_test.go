package engine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// warmCall is what a test checks of a call.
type warmCall struct {
	Keep           string
	Since, Attempt int
	// First is the position of the first event, 0 without events, and N the number of events. Input is set if the run has
	// one.
	First, N int
	Input    bool
}

// warmFunction runs a workflow that records many steps, opens a hook, and ends with the second payload. Its process keeps
// the run after each answer, and answers warm calls with the status, or treats them as others if that is 0.
type warmFunction struct {
	mu     sync.Mutex
	calls  []warmCall
	status int
}

func (f *warmFunction) serve(t *testing.T, recorded int) func(*functionCall) {
	var steps []object
	for i := range recorded {
		steps = append(steps, object{"type": "recordStep", "id": fmt.Sprint(i)})
	}
	return func(c *functionCall) {
		f.mu.Lock()
		defer f.mu.Unlock()
		call := warmCall{Keep: c.Keep, Since: int(c.Since), Attempt: c.Attempt, N: len(c.Events), Input: len(c.Run.Input) > 0}
		last := c.Since
		for i, text := range c.Events {
			var e struct{ Seq int64 }
			if err := json.Unmarshal(text, &e); err != nil {
				t.Error(err)
			}
			if i == 0 {
				call.First = int(e.Seq)
			}
			last = e.Seq
		}
		f.calls = append(f.calls, call)
		switch {
		case c.Since > 0 && f.status != 0:
			c.w.WriteHeader(f.status)
		case c.Since == 0 && call.N < 3:
			f.answer(c, last, append(steps, object{"type": "openHook", "id": "h", "token": "T"}))
		case string(c.log["hook_received h"]) == `"end"`:
			f.answer(c, last, []object{{"type": "complete"}})
		default:
			f.answer(c, last, []object{})
		}
	}
}

func (*warmFunction) answer(c *functionCall, seq int64, commands []object) {
	_ = json.NewEncoder(c.w).Encode(object{
		"commands": commands, "await": object{"any": []string{}}, "keep": object{"seq": seq, "by": "process-7", "for": "60s"},
	})
}

// warmRun makes three calls of a run that has recorded a number of steps, and returns them.
func warmRun(t *testing.T, f *warmFunction, recorded int) []warmCall {
	t.Helper()
	d := startServer(t, serve(t, f.serve(t, recorded)))
	id := d.startRun(t, `{"order":1}`)
	idle := func() bool { return d.Count(t, `SELECT count(*) FROM messages`) == 0 }
	d.waitForEvent(t, id, "hook_created h")
	testdb.Eventually(t, "the run waits", idle)
	d.resume(t, id, "h", `"go on"`)
	testdb.Eventually(t, "the run waits again", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.calls) > 1 && idle()
	})
	d.resume(t, id, "h", `"end"`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	return f.calls
}

// TestWarmCallsCarryNewEventsOnly, whether the log is cached or not.
func TestWarmCallsCarryNewEventsOnly(t *testing.T) {
	t.Parallel()
	for _, recorded := range []int{0, 200} {
		t.Run(fmt.Sprint(recorded), func(t *testing.T) {
			t.Parallel()
			got := warmRun(t, &warmFunction{}, recorded)
			known := 2 + 2*recorded + 1 // run_created, run_started, the steps and the hook
			want := []warmCall{
				{Attempt: 1, First: 1, N: 2, Input: true},
				{Keep: "process-7", Since: 2, Attempt: 1, First: 3, N: known + 1 - 2},
				{Keep: "process-7", Since: known + 1, Attempt: 1, First: known + 2, N: 1},
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got calls %+v, want %+v", got, want)
			}
		})
	}
}

// TestAWrongKeepGetsTheWholeLog: the function has not kept the run. It is called again in the same delivery, which is no
// failure.
func TestAWrongKeepGetsTheWholeLog(t *testing.T) {
	t.Parallel()
	for _, recorded := range []int{0, 200} {
		t.Run(fmt.Sprint(recorded), func(t *testing.T) {
			t.Parallel()
			got := warmRun(t, &warmFunction{status: http.StatusPreconditionFailed}, recorded)
			known := 2 + 2*recorded + 1
			want := []warmCall{
				{Attempt: 1, First: 1, N: 2, Input: true},
				{Keep: "process-7", Since: 2, Attempt: 1, First: 3, N: known + 1 - 2},
				{Attempt: 1, First: 1, N: known + 1, Input: true},
				{Keep: "process-7", Since: known + 1, Attempt: 1, First: known + 2, N: 1},
				{Attempt: 1, First: 1, N: known + 2, Input: true},
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got calls %+v, want %+v", got, want)
			}
		})
	}
}

// TestAFailedWarmCallIsRepeatedCold: what the process keeps may be the cause of the failure.
func TestAFailedWarmCallIsRepeatedCold(t *testing.T) {
	t.Parallel()
	got := warmRun(t, &warmFunction{status: http.StatusInternalServerError}, 0)
	want := []warmCall{
		{Attempt: 1, First: 1, N: 2, Input: true},
		{Keep: "process-7", Since: 2, Attempt: 1, First: 3, N: 2},
		{Attempt: 2, First: 1, N: 4, Input: true},
		{Keep: "process-7", Since: 4, Attempt: 1, First: 5, N: 1},
		{Attempt: 2, First: 1, N: 5, Input: true},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got calls %+v, want %+v", got, want)
	}
}

func TestKeptRunsAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	run := entities.Run{ID: "wrun_1", LastSeq: 40}
	var keep contract.Keep
	if err := json.Unmarshal([]byte(`{"seq":40,"by":"p","for":"60s"}`), &keep); err != nil {
		t.Fatal(err)
	}
	said := func(id entities.RunID) queue.Delivery { return queue.Delivery{RunID: id, URL: "http://a"} }
	later := func(d time.Duration) func(keptRuns) int64 {
		return func(k keptRuns) int64 { return k.find(run, "http://a", now.Add(d)).seq }
	}
	for name, tt := range map[string]struct {
		find func(keptRuns) int64
		want int64
	}{
		"kept":               {later(59 * time.Second), 40},
		"too late":           {later(time.Minute), 0},
		"another URL":        {func(k keptRuns) int64 { return k.find(run, "http://b", now).seq }, 0},
		"the log is shorter": {func(k keptRuns) int64 { return k.find(entities.Run{ID: run.ID, LastSeq: 39}, "http://a", now).seq }, 0},
		"another answer": {func(k keptRuns) int64 {
			k.answered(said(run.ID), nil, now)
			return k.find(run, "http://a", now).seq
		}, 0},
		"many other runs": {func(k keptRuns) int64 {
			for i := range maxKept {
				k.answered(said(entities.RunID(fmt.Sprint(i))), &keep, now)
			}
			return k.find(run, "http://a", now).seq
		}, 0},
	} {
		k := newKeptRuns()
		k.answered(said(run.ID), &keep, now)
		if got := tt.find(k); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
		if tt.want == 0 && name != "many other runs" && k.seq(run.ID) != 0 {
			t.Errorf("%s: it is still remembered", name)
		}
	}
}
