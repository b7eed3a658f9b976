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
	if name == varSteps {
		return s.decodeSteps(steps)
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

// stepKey is a step of a state.
type stepKey struct {
	in *state
	i  int
}

// decodeSteps returns the steps that are named for CEL. Those that have ended are decoded once in a turn.
func (s *stepScope) decodeSteps(ids []string) (any, error) {
	steps := make(map[string]any, len(ids))
	for _, id := range ids {
		in, i := s.lookup(id)
		value, ok := s.decoded[stepKey{in, i}]
		if !ok {
			var err error
			if value, err = condition.Decode(in.appendStep(nil, i)); err != nil {
				return nil, err
			}
		}
		if in.steps[i].status.ended() && in.outcome(i).status.ended() {
			s.decoded[stepKey{in, i}] = value
		}
		steps[id] = value
	}
	return steps, nil
}

// stepValues returns an object with the steps that are named. The outputs are the bytes of the log.
func (s *stepScope) stepValues(ids []string) json.RawMessage {
	text := []byte{'{'}
	for n, id := range ids {
		if n > 0 {
			text = append(text, ',')
		}
		in, i := s.lookup(id)
		text = in.appendStep(append(appendText(text, id), ':'), i)
	}
	return append(text, '}')
}

// appendStep appends what expressions read of a step.
func (s *state) appendStep(text []byte, i int) []byte {
	p := s.steps[i]
	text = append(append(text, `{"output":`...), orNull(s.outcome(i).output)...)
	text = append(append(text, `,"error":`...), orNull(p.error)...)
	text = appendText(append(text, `,"status":`...), string(p.status))
	text = append(append(text, `,"skipped":`...), mustJSON(p.status == statusSkipped)...)
	text = append(append(text, `,"failed":`...), mustJSON(p.status == statusFailed)...)
	if g := s.groups[i]; g != nil && g.mapping != nil {
		text = append(append(text, `,"failures":`...), g.failures()...)
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
