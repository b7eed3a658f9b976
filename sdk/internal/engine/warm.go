package engine

import (
	"errors"
	"slices"
	"strings"
)

// ErrStale means that the log has what this engine did not write: another invocation has gone on with the run, or an
// answer was lost.
var ErrStale = errors.New("the log was not written by this invocation")

// learnAll adds events that were written after the workflow began.
func (e *Engine) learnAll(events []Event) error {
	for i := range events {
		if err := e.learn(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// learn adds an event that was written after the workflow began.
func (e *Engine) learn(event *Event) error {
	if event.Seq <= e.last {
		return nil
	}
	e.last = event.Seq
	e.bytes += len(event.Payload) + eventBytes
	e.history.note(event)
	if space, ok := creates[event.Type]; ok && !strings.HasPrefix(event.ID, inbox) {
		op := e.ops[key{space, event.ID}]
		if op == nil {
			return ErrStale
		}
		if op.created == nil {
			op.created = event
			e.history.created[op.key()], e.history.agreed = event, event
		}
	}
	if _, ok := results[event.Type]; !ok {
		return nil
	}
	if !event.Data.IsRecorded() {
		e.order.add(event)
		return nil
	}
	if len(e.recorded) == 0 || !e.recorded[0].sameResult(event) {
		return ErrStale
	}
	e.recorded = e.recorded[1:]
	return nil
}

// sameResult reports whether two events are the same recorded result. Another invocation with the same call may have
// recorded a different one.
func (e *Event) sameResult(other *Event) bool {
	return e.ID == other.ID && e.Type == other.Type && e.Data.Seen == other.Data.Seen &&
		e.Data.EndedAt.Equal(other.Data.EndedAt) && EqualJSON(e.Payload, other.Payload)
}

// CanResume reports whether the next invocation can go on from here: whether its events will show that the answer of
// this one was not lost.
func (e *Engine) CanResume() bool {
	return !e.main.ended && e.panic == nil &&
		(len(e.sent.commands) == 0 || len(e.sent.created)+len(e.recorded) > 0)
}

// Resume goes on with the events that the log has got since the last invocation. It returns [ErrStale] if the engine
// cannot go on from them; it must be closed then.
func (e *Engine) Resume(events []Event) error {
	if err := e.learnAll(events); err != nil {
		return err
	}
	lost := func(op *Operation) bool { return op.created == nil }
	if len(e.recorded) > 0 || slices.ContainsFunc(e.sent.created, lost) {
		return ErrStale
	}
	return nil
}
