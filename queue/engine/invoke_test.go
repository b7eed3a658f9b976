package engine

import (
	"fmt"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
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
