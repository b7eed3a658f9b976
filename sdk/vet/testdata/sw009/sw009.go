package sw009

import stepwell "github.com/stepwell-dev/stepwell/sdk"

var charge = stepwell.NewStep[string, string]("charge")

func workflow(w *stepwell.Context, in string) (string, error) {
	charge.Run(w, in)           // want "SW009: the error is dropped"
	out, _ := charge.Run(w, in) // want "SW009: the error is dropped"
	charge.Go(w, in)            // want "SW009: nobody waits for it"
	_ = charge.Go(w, in)        // want "SW009: nobody waits for it"
	w.Timer(1)                  // want "SW009: nobody waits for it"
	w.Sleep(1)
	_, err := charge.Run(w, in)
	return out, err
}
