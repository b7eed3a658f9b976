package sw005

import stepwell "github.com/stepwell-dev/stepwell/sdk"

var charge = stepwell.NewStep[string, string]("charge")

func workflow(w *stepwell.Context, items []string) ([]string, error) {
	a := stepwell.Go(w, "a", func(inner *stepwell.Context) (string, error) {
		return charge.Run(w, "a") // want "SW005: w is the Context of an outer function; use the one that this function gets"
	})
	b := stepwell.Go(w, "b", func(*stepwell.Context) (string, error) {
		return charge.Run(w, "b") // want "SW005: w is the Context of an outer function"
	})
	if _, err := stepwell.All(w, a, b); err != nil {
		return nil, err
	}
	return stepwell.Map(w, items, func(w *stepwell.Context, item string) (string, error) {
		scoped := w.Scope(item)
		w.Until(func() bool { return scoped.Now().IsZero() })
		return charge.Run(scoped, item)
	})
}
