package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/queue/condition"
)

// stepScope has the values that the expressions of a step can read.
type stepScope struct {
	*turn

	step  int
	place place
}

func (t *turn) scope(i int, where place) *stepScope { return &stepScope{t, i, where} }

// now is the time of the newest event that the decision has seen.
func (s *stepScope) now() time.Time { return s.at }

// maxMade limits the bytes of the values that a turn makes: inputs, outputs and texts.
const maxMade = 16 << 20

var errTooMuch = errors.New(
	"the values of this turn are larger than " + fmt.Sprint(maxMade>>20) + " MiB together: hand on references instead")

// decode returns a variable for CEL, or the error of a context that has ended.
func (s *stepScope) decode(name string, steps []string) (any, error) {
	if err := s.stopped(); err != nil {
		return nil, err
	}
	if value, ok := s.decoded[name]; ok {
		return value, nil
	}
	value, err := condition.Decode(s.value(name, steps))
	if err == nil && (name == varInput || name == varRun) {
		s.decoded[name] = value
	}
	return value, err
}

func (s *stepScope) left() int { return maxMade - s.made }

func (s *stepScope) spend(bytes int) error {
	if bytes > s.left() {
		return errTooMuch
	}
	s.made += bytes
	return nil
}

func (s *stepScope) value(name string, ids []string) json.RawMessage {
	switch name {
	case varInput:
		return s.input
	case varSteps:
		return s.stepValues(ids)
	case varRun:
		return mustJSON(map[string]any{
			"id": s.run.ID, "key": s.run.Key, "workflow": s.run.Workflow, "createdAt": s.run.CreatedAt,
			"attributes": s.run.Attributes,
		})
	case varError:
		return s.caught()
	case varItem, varIndex, varLoop:
		return s.bodyValue(name)
	case varUndo:
		return s.undoValue()
	}
	return orNull(nil)
}

// stepValues returns an object with the steps that are named. The outputs are the bytes of the log.
func (s *stepScope) stepValues(ids []string) json.RawMessage {
	text := []byte{'{'}
	for n, id := range ids {
		if n > 0 {
			text = append(text, ',')
		}
		in, i := s.lookup(id)
		effective := in.outcome(i)
		text = append(appendText(text, id), `:{"output":`...)
		text = append(append(text, orNull(effective.output)...), `,"error":`...)
		text = append(append(text, orNull(in.steps[i].error)...), `,"status":`...)
		text = appendText(text, string(in.steps[i].status))
		text = append(text, `,"skipped":`...)
		text = append(text, mustJSON(in.steps[i].status == statusSkipped)...)
		text = append(text, `,"failed":`...)
		text = append(text, mustJSON(in.steps[i].status == statusFailed)...)
		if g := in.groups[i]; g != nil && g.mapping != nil {
			text = append(append(text, `,"failures":`...), g.failures()...)
		}
		text = append(text, '}')
	}
	return append(text, '}')
}

// caught returns the failure that has led to the step. The call of a planner has that of the plan.
func (s *stepScope) caught() json.RawMessage {
	in, i := s.state, s.step
	for in.Program.steps[i].target == 0 && in.up != nil {
		in, i = in.up, in.of
	}
	return orNull(in.steps[in.Program.steps[i].target-1].error)
}

// undoValue returns what is known of a step that is undone. Its output is null if nobody knows whether it was carried
// out.
func (s *stepScope) undoValue() json.RawMessage {
	p := s.steps[s.step]
	known := "completed"
	if p.status != statusCompleted {
		known = "unknown"
	}
	return mustJSON(map[string]json.RawMessage{
		"input": orNull(s.inputs[s.step]), "output": orNull(p.output), "error": orNull(p.error),
		"outcome": mustJSON(known),
	})
}
