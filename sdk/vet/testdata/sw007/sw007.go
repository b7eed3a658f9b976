package sw007

import (
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func send(string) {}

func workflow(w *stepwell.Context, in string) (out string, err error) {
	defer send(in) // want "SW007: deferred functions run whenever the workflow waits"
	defer func() {
		if err != nil {
			err = fmt.Errorf("order %s: %w", in, err)
		}
	}()
	defer func() {
		if v := recover(); v != nil { // want "SW007: recover hides bugs"
			send(in) // want "SW007: deferred functions run"
		}
	}()
	return in, nil
}
