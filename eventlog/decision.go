package eventlog

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// Outcome is the result of one of several requests.
type Outcome struct {
	Result

	// Err is the reason if the request was refused; then the result is zero.
	Err error
}

// refused reports whether the request was refused.
func (o Outcome) refused() bool { return o.Err != nil }

// decision is what is to be written for the requests of a call, and what to answer.
type decision struct {
	// before is the run as the facts have it, and after is the run once the decision is written.
	before *Snapshot
	after  *Snapshot
	// outcomes has one outcome for each request.
	outcomes []Outcome
	// events are appended, and messages sent, in the same transaction.
	events   []entities.Event
	messages []message.Message
	// children are runs that are created in the same transaction.
	children []decision
	// next is the run as which the run continues, which is created in the same transaction; nil if it does not.
	next *decision
	// victims are the runs that lose tokens to the run in the same transaction.
	victims []*decision
	// source is the client that made the requests, for the audit.
	source admin.Source
	// refused is why the call is refused as a whole; nil if it is not.
	refused error
	// apart makes each request independent of earlier ones that were refused.
	apart bool
	// follows is set if the decision includes what follows from its events: see [Follow].
	follows bool
	// waits is set if the decision creates the run, and the run waits for slots of limits.
	waits bool
	// rerunOf is the run of which the run is a copy, if it is created as one.
	rerunOf entities.RunID
	// blobs has what is kept outside of the database of the events' payloads.
	blobs blobs
}

// decideAll decides on requests in their order, each as if the previous ones had been written. It is pure.
func decideAll(f facts, requests []Request, now time.Time) decision {
	d := newDecision(f)
	d.addAll(f, requests, now)
	return d
}

// newDecision returns a decision that changes nothing yet.
func newDecision(f facts) decision { return decision{before: f.Snapshot, after: f.clone()} }

// addAll is [decideAll], on top of what has been decided before.
func (d *decision) addAll(f facts, requests []Request, now time.Time) {
	f.Snapshot = d.after
	d.outcomes, d.events = slices.Grow(d.outcomes, len(requests)), slices.Grow(d.events, len(requests))
	refused := map[entity]error{}
	for i := range requests {
		r := &requests[i]
		o := Outcome{Err: refused[r.entity()]} // an event fails as the one before it
		if o.Err == nil || d.apart {
			o = d.add(f, r, now)
		}
		if o.Err != nil {
			refused[r.entity()] = o.Err
		}
		d.outcomes = append(d.outcomes, o)
	}
}

// add decides on one request and applies the events that follow from it.
func (d *decision) add(f facts, r *Request, now time.Time) Outcome {
	if child, ok := f.openChild(r); ok {
		d.messages = append(d.messages, cancelChild(d.after.Run, child, r))
		return Outcome{Result: resultOf(d.after, now, nil, r, Result{Repeated: true})}
	}
	if len(r.Kept) > 0 {
		return d.fork(f, r, now)
	}
	if created := d.keptStep(r); created != nil {
		return d.startAnew(f, r, created, now)
	}
	events, err := decideFenced(f, r, f.eventTime(now))
	if errors.Is(err, errRepeated) {
		earlier, created := f.earlierOf(r), f.markedBy(r) != nil && r.createsStep()
		if earlier == nil {
			earlier = d.eventOf(r)
		}
		return Outcome{Result: resultOf(d.after, now, earlier, r, Result{Repeated: true, StepCreated: created})}
	}
	if err != nil {
		return Outcome{Err: err}
	}
	for i := range events {
		e := &events[i]
		d.after.Apply(e)
		f.note(e)
		d.takeOver(f, e, now)
		d.enqueue(d.unfollowed(e, d.after.awaited(e, r.nextWork(d.after.Run, e))))
		d.enqueue(f.triggered(d.after.Run, e))
	}
	d.events, d.messages = append(d.events, events...), append(d.messages, r.Messages...)
	d.startChild(f, r, now)
	last := &events[len(events)-1]
	if last.Data.ContinuedAs != "" {
		if err := d.continueAs(f, r, now); err != nil {
			return Outcome{Err: err}
		}
	}
	return Outcome{Result: resultOf(d.after, now, last, r, Result{StepCreated: r.createsStep()})}
}

// startChild decides on the child run that a request starts, if it starts one.
func (d *decision) startChild(f facts, r *Request, now time.Time) {
	if r.Child != nil {
		child := decideAll(facts{Snapshot: NewSnapshot(f.Project)}, []Request{*r.Child}, now)
		d.children, d.messages = append(d.children, child), append(d.messages, child.messages...)
	}
}

// eventOf returns the event of the decision that a request repeats, or nil.
func (d *decision) eventOf(r *Request) *entities.Event {
	for i := range d.events {
		if e := &d.events[i]; e.Type == r.Type && e.CorrelationID == r.CorrelationID {
			return e
		}
	}
	return nil
}

// enqueue adds the work that follows from an event. One invocation of the run sees all events of the decision: a second
// one would follow the first if that starts in the same transaction.
func (d *decision) enqueue(work []message.Message) {
	if id := d.after.Run.ID; wantsInvocation(id, d.messages) {
		work = withoutInvocation(id, work)
	}
	d.messages = append(d.messages, work...)
}

// note adds to the facts what an event changes for later requests of the same call: its history, that a hook which is
// disposed of frees its token, and that resume IDs count once.
func (f facts) note(e *entities.Event) {
	f.history.note(e)
	if e.Type == entities.EventHookDisposed {
		maps.DeleteFunc(f.holders, func(_ string, holder *entities.Hook) bool {
			return holder != nil && holder.RunID == e.RunID && string(holder.ID) == e.CorrelationID
		})
	}
	if e.Data.ResumeID != "" && f.received != nil {
		received := *e
		received.Payload = nil
		f.received[e.Data.ResumeID] = &receipt{&received}
	}
}

// eventTime returns the time of the next event: now, but never before the run's previous event, because a replay sets
// its clock by the events.
func (f facts) eventTime(now time.Time) time.Time {
	if f.Run != nil && f.Run.UpdatedAt.After(now) {
		return f.Run.UpdatedAt
	}
	return now
}

// resultOf adds the event, the run and the event's entity to a result. It leaves out an expired hook, whose row may
// still exist.
func resultOf(s *Snapshot, at time.Time, e *entities.Event, r *Request, result Result) Result {
	result.Event, result.Run = e, *s.Run
	switch r.Type.Kind() {
	case entities.KindStep:
		result.Step = copyOf(s.Steps, entities.StepID(r.CorrelationID))
	case entities.KindHook:
		if hook := copyOf(s.Hooks, entities.HookID(r.CorrelationID)); hook != nil && hook.Holds(at) {
			result.Hook = hook
		}
	case entities.KindWait:
		result.Wait = copyOf(s.Waits, entities.WaitID(r.CorrelationID))
	}
	return result
}

// copyOf returns a pointer to a copy of the map's value, or nil.
func copyOf[K comparable, V any](m map[K]V, key K) *V {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

// endsRun reports whether the decision ends the run.
func (d decision) endsRun() bool {
	return d.after.Run.Status.Ended() && (d.before.Run == nil || !d.before.Run.Status.Ended())
}

// closesCalls reports whether calls under way for the run must be closed: the run ends, or a step is cancelled.
func (d decision) closesCalls() bool {
	return d.endsRun() || slices.ContainsFunc(d.events, func(e entities.Event) bool { return e.Data.Cancelled })
}

// replies returns the steps that hold the answers to messages which the decision has made.
func (d decision) replies() (steps []entities.StepID) {
	for _, e := range d.events {
		if e.Type == entities.EventStepCreated && e.Data.StepName == inbox.Reply {
			steps = append(steps, entities.StepID(e.CorrelationID))
		}
	}
	return steps
}

// serverDriven reports whether the server continues the run after the decision.
func (d decision) serverDriven() bool {
	return d.after.Run != nil && d.after.Run.Driver == entities.DriverServer && !d.after.Run.Status.Ended()
}

// changes reports whether the decision changes the run's row: by events, or by what the run awaits.
func (d decision) changes() bool {
	return len(d.events) > 0 || d.before.Run != nil && d.before.Run.Await != d.after.Run.Await
}

// outlook returns what the decision's facts tell about how the run goes on.
func (d decision) outlook() Outlook {
	o := Outlook{
		Events: d.after.Run.LastSeq, Ended: d.after.Run.Status.Ended(), Open: len(d.after.Hooks) > 0,
		Await: d.after.Run.Await, Follows: d.follows,
	}
	o.Until, o.Over = d.after.waits()
	if o.Await != nil {
		o.Open = o.Open || o.Await.HasSteps()
		return o
	}
	for _, s := range d.after.Steps {
		o.Open = o.Open || s.CompletedAt == nil
	}
	return o
}

// appended returns what the observer gets once the decision is committed.
func (d decision) appended() Appended {
	a := Appended{Events: d.events, Run: d.after.Run}
	for _, child := range d.children {
		a.Events = append(a.Events[:len(a.Events):len(a.Events)], child.events...)
	}
	if d.next != nil {
		a.Events = append(a.Events[:len(a.Events):len(a.Events)], d.next.events...)
	}
	for _, victim := range d.victims {
		a.Events = append(a.Events[:len(a.Events):len(a.Events)], victim.events...)
	}
	if i := slices.IndexFunc(d.outcomes, Outcome.refused); i >= 0 {
		a.Refused = d.outcomes[i].Err
	}
	return a
}
