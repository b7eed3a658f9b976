package engine

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/contract"
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

// TestCompressedPayloadsInCallsAreLimited: a call whose payloads are much larger than the log needs more memory, and has
// fewer events.
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
	d, e := queue.Delivery{Inline: start}, &Engine{}
	stored := events * int64(zipped.Len())
	if _, err := e.newCall(t.Context(), d, *start.Run, stored+freeGrowth); !errors.Is(err, errCallGrows) {
		t.Errorf("with the size of the log: got %v, want %v", err, errCallGrows)
	}
	c, err := e.newCall(t.Context(), d, *start.Run, largestCall)
	if err != nil {
		t.Fatal(err)
	}
	if want := callBytes / decoded; len(c.Events) != want || c.After == nil || *c.After != int64(want) {
		t.Errorf("the call has %d events and continues after %v, want %d", len(c.Events), c.After, want)
	}
}
