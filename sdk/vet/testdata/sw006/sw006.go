package sw006

import (
	"context"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type keeper struct{ w *stepwell.Context }

var global *stepwell.Context

func workflow(w *stepwell.Context, ws chan *stepwell.Context) (string, error) {
	global = w        // want "SW006: the Context is kept beyond its function" "SW008: global is a variable of the process"
	k := keeper{w: w} // want "SW006: the Context is kept beyond its function"
	k.w = w           // want "SW006: the Context is kept beyond its function"
	ws <- w           // want "SW006: the Context is sent to a channel" "SW002"
	local := w
	_ = local
	return stepwell.Do(w, "step", func(context.Context) (string, error) {
		return w.Info().ID, nil // want "SW006: w is used in a step"
	})
}
