package eventlog

import "github.com/stepwell-dev/stepwell/entities"

// MaxBatch is the most requests one batch may have.
const MaxBatch = 1000

// allowedInBatch has the types that are allowed in a batch: those whose decision needs only the rows of the run, its
// steps and its waits.
var allowedInBatch = map[entities.EventType]bool{
	entities.EventStepCreated:   true,
	entities.EventStepStarted:   true,
	entities.EventStepCompleted: true,
	entities.EventStepFailed:    true,
	entities.EventStepRetrying:  true,
	entities.EventWaitCreated:   true,
	entities.EventWaitCompleted: true,
	entities.EventRunCompleted:  true,
	entities.EventRunFailed:     true,
}

// validateBatch checks that the events are allowed in a batch, and that there is at most one for each entity, except
// for the pair that creates a step and starts it.
func validateBatch(requests []Request) error {
	if n := len(requests); n < 1 || n > MaxBatch {
		return entities.Invalid("a batch must have 1 to %d events, not %d", MaxBatch, n)
	}
	seen := map[[2]string]bool{}
	for i, r := range requests {
		if !allowedInBatch[r.Type] {
			return entities.Invalid("event %d of the batch: %q is not allowed in a batch", i, r.Type)
		}
		if r.Type == entities.EventStepStarted && len(r.Payload) > 0 {
			return entities.Invalid("event %d of the batch: a step_started in a batch must not have input; "+
				"put a step_created before it", i)
		}
		entity := [2]string{r.Type.Kind(), r.CorrelationID}
		if entity[0] == entities.KindRun {
			entity[1] = "" // a batch is about one run
		}
		if seen[entity] && (i == 0 || !r.startsStepOf(requests[i-1])) {
			return entities.Invalid("event %d of the batch: another event is for the same %s", i, entity[0])
		}
		seen[entity] = true
	}
	return nil
}

// continuesStepOf reports whether r is about an attempt at the step that before creates. What it depends on follows
// from the creation.
func (r Request) continuesStepOf(before Request) bool {
	switch r.Type {
	case entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed, entities.EventStepRetrying:
		return before.Type == entities.EventStepCreated && before.CorrelationID == r.CorrelationID
	default:
		return false
	}
}

// startsStepOf reports whether r starts the step that before creates.
func (r Request) startsStepOf(before Request) bool {
	return r.Type == entities.EventStepStarted && r.continuesStepOf(before)
}
