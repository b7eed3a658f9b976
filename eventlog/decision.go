package eventlog

import (
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Outcome is the result of one request of several, or why it was refused.
type Outcome struct {
	Result

	Err error
}

// refused reports whether the request was refused.
func (o Outcome) refused() bool { return o.Err != nil }

// decision is what was decided on the requests of a call.
type decision struct {
	before   *Snapshot
	after    *Snapshot
	outcomes []Outcome
	// events are to be appended, and messages to be sent with them.
	events   []entities.Event
	messages []entities.Message
	// children are the runs to create with them.
	children []decision
}

// decideAll decides on requests in their order, each as if those before it had been written. It is pure.
func decideAll(f facts, requests []Request, now time.Time) decision {
	d := decision{before: f.Snapshot, after: f.clone()}
	f.Snapshot = d.after
	var before Request
	var last Outcome
	for _, r := range requests {
		if last.Err == nil || !r.startsStepOf(before) { // else it fails with the one before it
			last = d.add(f, r, now)
		}
		d.outcomes = append(d.outcomes, last)
		before = r
	}
	return d
}

// add decides on one request and applies the events that follow from it.
func (d *decision) add(f facts, r Request, now time.Time) Outcome {
	events, err := decide(f, r, f.stamp(now))
	if errors.Is(err, errRepeated) {
		return Outcome{Result: resultOf(d.after, now, f.earlier, r, Result{Repeated: true})}
	}
	if err != nil {
		return Outcome{Err: err}
	}
	for _, e := range events {
		d.after.Apply(e)
		f.release(e)
		d.messages = append(d.messages, nextWork(d.after.Run, e)...)
	}
	d.events, d.messages = append(d.events, events...), append(d.messages, r.Messages...)
	if r.Child != nil {
		child := decideAll(facts{Snapshot: NewSnapshot(f.Project)}, []Request{*r.Child}, now)
		d.children, d.messages = append(d.children, child), append(d.messages, child.messages...)
	}
	last := events[len(events)-1]
	return Outcome{Result: resultOf(d.after, now, &last, r, Result{StepCreated: r.createsStep()})}
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

// stamp is the time of the next event: now, but never before the run's previous event, because a replay sets its clock
// by the events.
func (f facts) stamp(now time.Time) time.Time {
	if f.Run != nil && f.Run.UpdatedAt.After(now) {
		return f.Run.UpdatedAt
	}
	return now
}

// resultOf adds the event and the entities it is about to a result. An expired hook is gone, though its row may still be
// there.
func resultOf(s *Snapshot, at time.Time, e *entities.Event, r Request, result Result) Result {
	result.Event, result.Run = e, *s.Run
	switch r.Type.Kind() {
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

// find returns a copy of an item of the map; nil when it has none.
func find[K comparable, V any](m map[K]V, key K) *V {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

// endsRun reports whether the run ends with the decision.
func (d decision) endsRun() bool {
	return d.after.Run.Status.Ended() && (d.before.Run == nil || !d.before.Run.Status.Ended())
}

// serverDriven reports whether the server continues the run.
func (d decision) serverDriven() bool {
	return d.after.Run != nil && d.after.Run.Driver == entities.DriverServer && !d.after.Run.Status.Ended()
}

// outlook is what the decision knows for certain of how the run goes on.
func (d decision) outlook() Outlook {
	open := len(d.after.Hooks) > 0
	for _, s := range d.after.Steps {
		open = open || s.CompletedAt == nil
	}
	return Outlook{Ended: d.after.Run.Status.Ended(), Open: open}
}

// appended is what an observer is told once the decision is committed.
func (d decision) appended() Appended {
	a := Appended{Events: d.events, Run: d.after.Run}
	for _, child := range d.children {
		a.Events = append(a.Events[:len(a.Events):len(a.Events)], child.events...)
	}
	for _, o := range d.outcomes {
		if o.Err != nil {
			a.Refused = o.Err
			break
		}
	}
	return a
}
