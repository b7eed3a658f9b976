package sw010

import (
	"context"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	charge  = stepwell.NewStep[string, string]("charge")
	chapter = stepwell.NewWorkflow[string, string]("chapter")
)

func workflow(w *stepwell.Context, items []string) (string, error) {
	nothing := func(context.Context) error { return nil }
	for _, item := range items {
		if _, err := charge.Run(w, item); err != nil { // want "SW010: the IDs of steps in this loop are numbered"
			return "", err
		}
		if err := stepwell.Exec(w, "note", nothing); err != nil { // want "SW010: the IDs of steps in this loop are numbered"
			return "", err
		}
		if err := stepwell.Exec(w, "note-"+item, nothing); err != nil {
			return "", err
		}
		if _, err := charge.Run(w, item, stepwell.ID("charge-"+item)); err != nil {
			return "", err
		}
		if _, err := chapter.Child(w, item, stepwell.ID("chapter-"+item)).Await(w); err != nil {
			return "", err
		}
		w := w.Scope(item)
		if _, err := charge.Run(w, item); err != nil {
			return "", err
		}
	}
	for range 3 {
		if _, err := charge.Run(w, "again"); err != nil {
			return "", err
		}
	}
	for {
		done, err := charge.Run(w, "poll")
		if done == "yes" || err != nil {
			return done, err
		}
	}
}
