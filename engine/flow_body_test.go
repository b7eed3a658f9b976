package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/pg"
)

// bodiesFlow has a step of each kind with a body.
const bodiesFlow = `
flow: bodies
deployment: dpl_test
defaults: {retry: {maxAttempts: 2, backoff: 1ms}}
steps:
  rows:
    map: input.rows
    key: "'row_' + string(item)"
    concurrency: 3
    tolerate: 1
    do: {call: row, undo: {call: unrow}}
  poll:
    needs: [rows]
    loop:
      do:
        steps:
          ask: {call: ask, undo: {call: unask}}
          note: {needs: ask, set: "${iteration.index}"}
        output: "${steps.note.output}"
      until: iteration.last == 3
      delay: 5ms
  work:
    needs: [poll]
    plan: think
    allow: {calls: [row]}
  last: {needs: [work], call: last}
output: {rows: "${steps.rows.output}", failures: "${steps.rows.failures}", poll: "${steps.poll.output}", work: "${steps.work.output}"}
`

// rows is the function of the steps. The row in the run's attribute "bad" fails, and so does the last step if it is -1.
func rows(c *functionCall) {
	var input json.RawMessage
	_ = json.Unmarshal(c.Step.Input, &input)
	text := string(input)
	c.w.Header().Set("Content-Type", "application/json")
	switch bad := c.Run.Attributes["bad"]; {
	case c.Step.Name == "row" && text == bad, c.Step.Name == "last" && bad == "-1":
		c.w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(c.w, `{"error":{"message":"no","code":"bad"}}`)
	case c.Step.Name == "row":
		_, _ = fmt.Fprint(c.w, text)
	case c.Step.Name == "think" && !strings.Contains(text, "previous"):
		_, _ = fmt.Fprint(c.w, `{"steps":{"a":{"call":"delete"}}}`)
	case c.Step.Name == "think":
		_, _ = fmt.Fprint(c.w, `{"steps":{"a":{"call":"row","input":1,"undo":{"call":"row"}},"b":{"needs":"a","set":"${steps.a.output}"}}}`)
	default:
		_, _ = fmt.Fprint(c.w, `null`)
	}
}

// TestBodiesOfFlows runs maps, loops and plans in the server, and in a remote function: both logs begin and end the same
// steps with the same values.
func TestBodiesOfFlows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, bad string
		status    entities.RunStatus
		payload   string
	}{
		{"well", "", entities.RunCompleted, `{"rows":[1,2,3,4,5],"failures":[],"poll":3,"work":{"b":1}}`},
		{
			"one row fails", "2", entities.RunCompleted,
			`{"rows":[1,null,3,4,5],"failures":[{"index":1,"key":"row_2","error":{"message":"no","code":"bad"}}],"poll":3,"work":{"b":1}}`,
		},
		{
			"undone", "-1", entities.RunFailed,
			`{"message":"no","code":"bad","details":{"step":"last","undo":{"done":["rows","poll","work"],"failed":[]}}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := startServer(t, serve(t, rows))
			putFlow(t, d, bodiesFlow)
			d.register(t, "remote", remoteFlow(t, bodiesFlow).URL)
			var logs [][]string
			for _, deployment := range []string{"bodies@1", "remote"} {
				id := d.startRun(t, `{"rows":[1,2,3,4,5]}`, func(r *eventlog.Request) {
					r.Data.DeploymentID, r.Data.WorkflowName, r.Data.Attributes = deployment, "bodies", map[string]string{"bad": test.bad}
				})
				d.wantEnd(t, id, test.status, test.payload)
				logs = append(logs, d.values(t, id))
			}
			if diff := cmp.Diff(logs[0], logs[1]); diff != "" {
				t.Errorf("the log of the server (-) and of the remote function (+):\n%s", diff)
			}
		})
	}
}

func putFlow(t testing.TB, d *server, document string) {
	t.Helper()
	if _, err := registry.New(d.pool, time.Now).Put(t.Context(), project, []byte(document)); err != nil {
		t.Fatal(err)
	}
}

// remoteFlow serves the interpreter as an ordinary function.
func remoteFlow(t *testing.T, document string) *httptest.Server {
	t.Helper()
	p, err := flow.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call flow.Call
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		body, err := p.Answer(r.Context(), call)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

// values returns the events about steps and waits, with their values, sorted: independent ones may end in any order.
func (d *server) values(t *testing.T, id entities.RunID) (list []string) {
	t.Helper()
	page, err := d.log.Events(t.Context(), project, id, pg.Page{Limit: 1000}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if e.CorrelationID != "" && e.Type != entities.EventStepStarted {
			list = append(list, fmt.Sprintf("%s %s %s", e.CorrelationID, e.Type, e.Payload))
		}
	}
	slices.Sort(list)
	return list
}

const mapFlow = `
flow: items
deployment: dpl_test
steps:
  m: {map: input, concurrency: 200, do: {call: echo}}
output: "${size(steps.m.output)}"
`

// TestFlowsNeedNoState drops what the server keeps of a run again and again. The log is longer than a call, so that it is
// read page by page.
func TestFlowsNeedNoState(t *testing.T) {
	t.Parallel()
	var d atomic.Pointer[server]
	var calls atomic.Int64
	s := startServer(t, serve(t, func(c *functionCall) {
		if calls.Add(1)%50 == 0 {
			states := d.Load().runs.kept
			ids, _ := states.Contents()
			for _, id := range ids {
				states.Remove(id)
			}
		}
		_, _ = c.w.Write(c.Step.Input)
	}))
	d.Store(s)
	putFlow(t, s, mapFlow)
	const items = 600
	id := s.startItems(t, items)
	s.wantEnd(t, id, entities.RunCompleted, fmt.Sprint(items))
	if n := calls.Load(); n != items {
		t.Errorf("%d calls, want %d", n, items)
	}
	if _, n := s.runs.kept.Contents(); n < 0 || n > maxKeptBytes {
		t.Errorf("the states take %d bytes", n)
	}
}

// startItems starts a map of numbers.
func (d *server) startItems(t testing.TB, items int) entities.RunID {
	t.Helper()
	list := make([]int, items)
	for i := range list {
		list[i] = i
	}
	input, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return d.startRun(t, string(input), func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = "items@1", "items"
	})
}

// BenchmarkFlowMap measures the time for an item of a map, in maps of two sizes: it must not grow with the size. It also
// reports how much memory the process has at most beyond what it had before, after collecting garbage.
func BenchmarkFlowMap(b *testing.B) {
	for _, items := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(items), func(b *testing.B) {
			var most, calls atomic.Int64
			heap := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			d := startServer(b, serve(b, func(c *functionCall) {
				if calls.Add(1)%1000 == 0 {
					most.Store(max(most.Load(), heap()))
				}
				_, _ = c.w.Write(c.Step.Input)
			}))
			putFlow(b, d, mapFlow)
			before := heap()
			for b.Loop() {
				id := d.startItems(b, items)
				deadline, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
				run, err := d.log.WaitForEnd(b.Context(), deadline, project, id)
				cancel()
				if err != nil || run.Status != entities.RunCompleted {
					b.Fatalf("run is %s (%v)", run.Status, err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(items*b.N), "µs/item")
			b.ReportMetric(float64(most.Load()-before)/(1<<20), "MiB")
		})
	}
}
