package engine

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestLongLogsAreSentInPages: a call carries the first page and the cursor of the next.
func TestLongLogsAreSentInPages(t *testing.T) {
	t.Parallel()
	const steps = contract.InlineEvents / 2 // two events each, after two of the run
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.After == nil {
			var all []object
			for i := range steps {
				all = append(all, object{"type": "recordStep", "id": fmt.Sprint(i)})
			}
			c.reply(all...)
			return
		}
		c.reply(object{"type": "complete", "output": []int{len(c.Events), int(*c.After)}})
	}))
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf("[%d,%d]", contract.InlineEvents, contract.InlineEvents))
}

// TestCompressedPayloadsInCallsAreLimited: a call whose payloads are much larger than the log needs more memory, and
// has fewer events.
func TestCompressedPayloadsInCallsAreLimited(t *testing.T) {
	t.Parallel()
	const events, decoded = 40, 1 << 20
	var zipped bytes.Buffer
	zipped.WriteString("gzip")
	w := gzip.NewWriter(&zipped)
	if _, err := fmt.Fprintf(w, "%q", strings.Repeat("x", decoded-2)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	start := &eventlog.InlineStart{Run: &entities.Run{}}
	for i := range events {
		start.Log = append(start.Log, entities.Event{
			Seq: int64(i + 1), Type: entities.EventHookReceived, Payload: zipped.Bytes(),
		})
	}
	d, e := queue.Delivery{Inline: start}, idleServer(t, testdb.New(t)).runs
	stored := events * int64(zipped.Len())
	if _, err := e.newCall(t.Context(), d, start.Run, stored+freeGrowth); !errors.Is(err, errCallGrows) {
		t.Errorf("with the size of the log: got %v, want %v", err, errCallGrows)
	}
	c, err := e.newCall(t.Context(), d, start.Run, largestCall)
	if err != nil {
		t.Fatal(err)
	}
	if want := callBytes / decoded; len(c.Events) != want || c.After == nil || *c.After != int64(want) {
		t.Errorf("the call has %d events and continues after %v, want %d", len(c.Events), c.After, want)
	}
}

// TestCallsSayWhatTheFunctionKnows: a call has the length of the log in the last answered call, or what the answer
// said. A failed call does not count.
func TestCallsSayWhatTheFunctionKnows(t *testing.T) {
	t.Parallel()
	type known struct{ Known, Length int64 }
	var calls []known
	var mu sync.Mutex
	d := newServer(t, testdb.New(t))
	d.runs = d.runs.WithPublicURL("https://stepwell.test/base/")
	d.register(t, deployment, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			if c.Known != nil {
				t.Errorf("the call of a step says known %d", *c.Known)
			}
			_, _ = c.w.Write([]byte(`1`))
			return
		}
		if c.HooksURL != "https://stepwell.test/base/hooks/" || c.LogBytes < int64(len(`"input"`)) {
			t.Errorf("got hooksUrl %q and logBytes %d", c.HooksURL, c.LogBytes)
		}
		mu.Lock()
		calls = append(calls, known{*c.Known, int64(len(c.Events))})
		n := len(calls)
		mu.Unlock()
		answers := []string{
			1: `{"commands":[{"type":"recordStep","id":"a"}]}`, // invoked again in the answer's transaction
			2: "",
			3: `{"commands":[{"type":"runStep","id":"b"}],"seen":3}`,
			4: `{"commands":[{"type":"wait","id":"w","for":"1ms"}],"seen":8}`, // refused: the log has 7 events
			5: `{"commands":[{"type":"wait","id":"w","for":"1ms"}],"seen":7}`,
			6: `{"commands":[{"type":"complete"}]}`,
		}
		if n == 2 {
			c.w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = c.w.Write([]byte(answers[n]))
	}).URL)
	d.worker(t, d.works)
	id := d.startRun(t, `"input"`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	want := []known{{0, 2}, {2, 4}, {2, 4}, {3, 7}, {3, 7}, {7, 9}}
	if !slices.Equal(calls, want) {
		t.Errorf("got %v, want %v", calls, want)
	}
}
