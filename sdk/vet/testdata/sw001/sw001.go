package sw001

import (
	"context"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"

	"vettest/helper"
)

func workflow(w *stepwell.Context, in time.Time) (string, error) {
	start := time.Now() // want "SW001: time.Now is called; use w.Now"
	w.Sleep(time.Hour)
	_ = w.Now().Sub(in) + time.Hour
	if w.Now().After(in) {
		time.Sleep(1) // want "SW001: time.Sleep is called"
	}
	_ = context.Background() // want "SW001: context.Background is called"
	_ = helper.Pure(1)
	_ = helper.Embedded()
	_ = own()             // want "SW001: own calls Indirect, which calls Stamp, which is not deterministic: time.Now is called"
	_ = helper.Indirect() // want "SW001: Indirect calls Stamp"
	helper.Bank{}.Limit() // want "SW004: Limit is not deterministic: os.Getenv is called"
	w.Until(func() bool {
		return time.Since(start) > 0 // want "SW001: time.Since is called"
	})
	return stepwell.Do(w, "stamp", func(context.Context) (string, error) { return time.Now().String(), nil })
}

func own() string { return helper.Indirect() } // want own:"SW001: calls Indirect, which calls Stamp"

// step is no workflow.
func step(ctx context.Context, in string) (string, error) { // want step:"SW001: is not deterministic"
	return time.Now().String(), ctx.Err()
}

var inVariable = func(w *stepwell.Context) { time.Sleep(1) } // want "SW001: time.Sleep is called"
