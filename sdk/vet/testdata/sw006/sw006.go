package sw006

import (
	"context"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type keeper struct{ w *stepwell.W }

var global *stepwell.W

func workflow(w *stepwell.W, ws chan *stepwell.W) (string, error) {
	global = w        // want "SW006: the W is kept beyond its function" "SW008: global is a variable of the process"
	k := keeper{w: w} // want "SW006: the W is kept beyond its function"
	k.w = w           // want "SW006: the W is kept beyond its function"
	ws <- w           // want "SW006: the W is sent to a channel" "SW002"
	local := w
	_ = local
	return stepwell.Do(w, "step", func(context.Context) (string, error) {
		return w.Info().ID, nil // want "SW006: w is used in a step"
	})
}
