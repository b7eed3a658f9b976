package engine

import (
	"fmt"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestLongLogsComeInParts: a call brings the beginning, and says where the rest begins.
func TestLongLogsComeInParts(t *testing.T) {
	t.Parallel()
	const steps = queue.InlineEvents / 2 // of two events each, behind two of the run
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
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf("[%d,%d]", queue.InlineEvents, queue.InlineEvents))
}
