package eventlog

import (
	"errors"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

func TestStepState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"))
	got, err := f.Step(t.Context(), home, id, "step_1")
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "step_1" || got.Created.Seq != got.CreatedSeq || got.Created.Type != entities.EventStepCreated || got.Run.ID != id {
		t.Errorf("got %+v", got)
	}
	for what, readStep := range map[string]func() (read.StepState, error){
		"another step":    func() (read.StepState, error) { return f.Step(t.Context(), home, id, "step_2") },
		"another project": func() (read.StepState, error) { return f.Step(t.Context(), "other", id, "step_1") },
		"another run":     func() (read.StepState, error) { return f.Step(t.Context(), home, entities.NewRunID(day), "step_1") },
	} {
		if _, err := readStep(); !errors.Is(err, entities.ErrStepNotFound) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
