package stepwelltest

import (
	"encoding/json"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// Ask sends an update to the run with the ID. One whose ID the inbox has received is ignored. See [Answer].
func Ask[I, O any](e *Env, update *stepwell.UpdateKind[I, O], runID string, input I, id string) {
	e.tb.Helper()
	if err := e.server.Send(e.run(runID), update.Name(), id, e.encode(input)); err != nil {
		e.tb.Fatal(err)
	}
}

// Answer returns the answer to an update of the run with the ID, or of a run as which it continued; false if there is
// none yet. The error is a [*stepwell.UpdateError] if it was rejected. If the run has ended without an answer, the
// error is a [*stepwell.APIError] with the code unanswered.
func Answer[I, O any](
	e *Env, update *stepwell.UpdateKind[I, O], runID, id string,
) (output O, answered bool, err error) {
	e.tb.Helper()
	a, ok, over := e.run(runID).Answered(update.Name(), id)
	switch {
	case over:
		return output, false, &stepwell.APIError{Status: 410, Code: "unanswered", Message: "the run has ended"}
	case !ok:
		return output, false, nil
	case a.Error != nil:
		rejected := &stepwell.UpdateError{RunID: a.RunID, ID: id}
		if err := json.Unmarshal(a.Error, &rejected.RunFailure); err != nil {
			e.tb.Fatal(err)
		}
		return output, true, rejected
	}
	if err := json.Unmarshal(a.Output, &output); err != nil {
		e.tb.Fatal(err)
	}
	return output, true, nil
}
