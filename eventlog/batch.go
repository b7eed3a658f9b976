package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// MaxBatch is the most requests one batch may have.
const MaxBatch = 1000

// Outcome is what became of one request of a batch: a result, or why there is none.
type Outcome struct {
	Result

	Err error
}

// AppendBatch appends what can be of several requests for one run, in one transaction and in their order, and
// tells of each what [Log.Append] would. A step_created directly followed by the step_started of the same step
// stands or falls together (protocol §3.13).
//
// It fails as a whole, and nothing is written, with [entities.ErrInvalid] when a request can never succeed or
// does not belong in a batch, and with [entities.ErrRunNotFound].
func (l *Log) AppendBatch(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request,
) ([]Outcome, error) {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].RunID = runID
	}
	if err := validateBatch(requests); err != nil {
		return nil, err
	}
	outcomes, err := l.append(ctx, project, runID, requests, eachByItself{})
	if err != nil {
		return nil, fmt.Errorf("append batch: %w", err)
	}
	for _, o := range outcomes {
		if errors.Is(o.Err, entities.ErrRunNotFound) {
			return nil, fmt.Errorf("append batch: %w", o.Err)
		}
	}
	return outcomes, nil
}

// batched are the events that may come in a batch: those whose decision needs nothing but the run and the
// rows of its steps and waits.
var batched = map[entities.EventType]bool{
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

// validateBatch checks the composition of a batch: at most one event for each entity, but for the pair that
// creates a step and starts it.
func validateBatch(requests []Request) error {
	if n := len(requests); n < 1 || n > MaxBatch {
		return entities.Invalid("a batch of %d events; want 1 to %d", n, MaxBatch)
	}
	seen := map[[2]string]bool{}
	for i, r := range requests {
		if !batched[r.Type] {
			return entities.Invalid("event %d of the batch: %q cannot be part of one, post it alone", i, r.Type)
		}
		if r.Type == entities.EventStepStarted && len(r.Payload) > 0 {
			return entities.Invalid("event %d of the batch: a step_started in a batch has no input; "+
				"put the step_created before it", i)
		}
		entity := [2]string{entities.KindOf(r.Type), r.CorrelationID}
		if entity[0] == entities.KindRun {
			entity[1] = "" // there is just the one
		}
		if seen[entity] && (i == 0 || !r.claims(requests[i-1])) {
			return entities.Invalid("event %d of the batch: there is another one for the same %s", i, entity[0])
		}
		seen[entity] = true
	}
	return nil
}

// claims reports whether r starts the step that before creates.
func (r Request) claims(before Request) bool {
	return before.Type == entities.EventStepCreated && r.Type == entities.EventStepStarted &&
		before.CorrelationID == r.CorrelationID
}

// judgement is what was decided on some requests.
type judgement struct {
	before   *Snapshot
	after    *Snapshot
	outcomes []Outcome
	// events are those to append, and messages those to send with them.
	events   []entities.Event
	messages []entities.Message
	// children are the runs to create with them.
	children []judgement
}

// endsRun reports whether the run was alive before.
func (j judgement) endsRun() bool {
	return j.after.Run.Status.Ended() && (j.before.Run == nil || !j.before.Run.Status.Ended())
}

// judge decides on requests one after the other, each as if those before it had been written. It is pure.
func judge(f facts, requests []Request, now time.Time) judgement {
	j := judgement{before: f.Snapshot, after: f.clone()}
	f.Snapshot = j.after
	var before Request
	var last Outcome
	for _, r := range requests {
		if last.Err == nil || !r.claims(before) { // else it falls with the one before it
			last = j.add(f, r, now)
		}
		j.outcomes = append(j.outcomes, last)
		before = r
	}
	return j
}

// add decides on one request and applies what follows from it.
func (j *judgement) add(f facts, r Request, now time.Time) Outcome {
	events, err := decide(f, r, f.stamp(now))
	if errors.Is(err, errRepeat) {
		return Outcome{Result: resultOf(j.after, now, f.earlier, r, Result{Repeated: true})}
	}
	if err != nil {
		return Outcome{Err: err}
	}
	for _, e := range events {
		j.after.Apply(e)
		f.release(e)
		j.messages = append(j.messages, follows(j.after.Run, e)...)
	}
	j.events, j.messages = append(j.events, events...), append(j.messages, r.Messages...)
	if r.Child != nil {
		child := judge(facts{Snapshot: NewSnapshot(f.Project)}, []Request{*r.Child}, now)
		j.children, j.messages = append(j.children, child), append(j.messages, child.messages...)
	}
	last := events[len(events)-1]
	return Outcome{Result: resultOf(j.after, now, &last, r, Result{StepCreated: r.createsStep()})}
}

// release frees the token of a hook that was disposed of.
func (f facts) release(e entities.Event) {
	if e.Type != entities.EventHookDisposed {
		return
	}
	for token, holder := range f.holders {
		if holder.RunID == e.RunID && string(holder.ID) == e.CorrelationID {
			delete(f.holders, token)
		}
	}
}

// stamp is the time of the next event: now, but never before the run's previous event, as replay sets its
// clock from them.
func (f facts) stamp(now time.Time) time.Time {
	if f.Run != nil && f.Run.UpdatedAt.After(now) {
		return f.Run.UpdatedAt
	}
	return now
}

// resultOf adds the event and the entities it is about to a result. A hook whose time is over is gone, though its row
// may still be there.
func resultOf(s *Snapshot, at time.Time, e *entities.Event, r Request, result Result) Result {
	result.Event, result.Run = e, *s.Run
	switch entities.KindOf(r.Type) {
	case entities.KindStep:
		result.Step = find(s.Steps, entities.StepID(r.CorrelationID))
	case entities.KindHook:
		if hook := find(s.Hooks, entities.HookID(r.CorrelationID)); hook != nil && hook.Holds(at) {
			result.Hook = hook
		}
	case entities.KindWait:
		result.Wait = find(s.Waits, entities.WaitID(r.CorrelationID))
	}
	return result
}

// find is a copy of an item of the map; nil when it has none.
func find[K comparable, V any](m map[K]V, key K) *V {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}
