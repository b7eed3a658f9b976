package eventlog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// InlineStart is work on a run that is leased to this process in the transaction that enqueues it, and starts right
// after the commit. The same transaction appends the event of the start, which saves the worker an append. If that
// event was refused, Run is nil, and the worker appends it as usual.
type InlineStart struct {
	RunID entities.RunID
	// Work is an invocation of the run, or the execution of a step, whose ID is the subject. The start of other work is
	// not in the log.
	Work    message.Work
	Subject string
	// At is the database's time. Waits that end by then are over.
	At time.Time
	// Events is how many events of the log an invocation's call carries.
	Events int

	// Run is the run as the work starts. Package eventlog sets this field and those below.
	Run *entities.Run
	// Step is the step to execute; zero for an invocation.
	Step read.StepState
	// Log is the run's whole log as an invocation starts if it is cached, else nil. It must not be modified.
	Log []entities.Event
	// Size is how many bytes of payloads the call carries; see [Log.MeasureAfter].
	Size int64
}

// enqueueLocked enqueues the work that follows from a decision, and records in the decision what starts of it.
func (l *Log) enqueueLocked(
	ctx context.Context, tx pgx.Tx, s *pg.Conditional, c call, d *decision,
) (ended func(error), err error) {
	var before pgx.Batch
	var own func() *InlineStart
	if i := c.invocation(); i != nil {
		own = i.StartNext(&before, wantsInvocation(c.runID, d.messages))
	}
	messages := c.toEnqueue(*d)
	due := map[entities.WaitID]entities.Wait{}
	if d.before.Run != nil && (own != nil || wantsInvocation(d.after.Run.ID, messages)) {
		store.LoadDueWaits(&before, d.after.Run.ID, due)
	}
	var starts []*InlineStart
	if len(messages) > 0 {
		if starts, ended, err = l.enqueuer.Enqueue(ctx, tx, &before, messages); err != nil {
			return nil, err
		}
	}
	if err := pg.SendQueued(ctx, tx, &before); err != nil {
		return nil, err
	}
	if own != nil {
		starts = append(starts, own())
	}
	d.addWaits(due)
	for _, start := range l.recordStarts(d, starts, c.now) {
		s.UnderLock(func(b *pgx.Batch) {
			read.Measure(b, start.RunID, (*l.after.Load())(start.RunID), start.Events, &start.Size)
		})
	}
	return ended, nil
}

// enqueueOptimistic adds to a conditional statement what enqueueLocked would do. It reports false if that needs facts
// that are not cached: whether a message must wait for slots of limits, whether an invocation is the first of the run,
// which waits are over, or the log that an invocation's call carries.
func (l *Log) enqueueOptimistic(s *pg.Conditional, c call, d *decision) (ended func(error), ok bool) {
	messages := c.toEnqueue(*d)
	if slices.ContainsFunc(messages, d.mayWait) {
		return nil, false
	}
	if len(messages) == 0 {
		return func(error) {}, true
	}
	starts, ended, ok := l.enqueuer.EnqueueOptimistic(s, messages)
	if !ok {
		return nil, false
	}
	for _, start := range starts {
		if start.Work == message.WorkRun && d.before.Run != nil {
			waiting, ended := d.after.waits()
			if d.before.Run.StartedAt == nil || waiting != nil {
				return nil, false
			}
			store.RequireNoDueWait(s, start.RunID, ended)
		}
	}
	return ended, len(l.recordStarts(d, starts, c.now)) == 0
}

// recordStarts records in the decision what starts, and gives invocations their log. It returns those whose log is not
// cached.
func (l *Log) recordStarts(d *decision, starts []*InlineStart, now time.Time) (uncached []*InlineStart) {
	for _, start := range starts {
		d.recordStart(start, now)
	}
	for _, start := range starts {
		if start.invokes() && !l.attachLog(start, d.forRun(start.RunID)) {
			uncached = append(uncached, start)
		}
	}
	return uncached
}

// mayWait reports whether a message for a function might have to wait until its run has slots of limits. The decision
// knows the limits of its own run only.
func (d *decision) mayWait(m message.Message) bool {
	return m.Work == message.WorkNone && (m.RunID != d.after.Run.ID || len(d.after.Run.Limits) > 0)
}

// wantsInvocation reports whether the messages include an immediate invocation of the run.
func wantsInvocation(id entities.RunID, messages []message.Message) bool {
	return slices.ContainsFunc(messages, func(m message.Message) bool {
		return m.RunID == id && m.Work == message.WorkRun && m.Delay == 0
	})
}

// invokes reports whether this is a recorded start of an invocation.
func (s *InlineStart) invokes() bool { return s.Run != nil && s.Work == message.WorkRun }

// attachLog sets the log and size of an invocation's start if the log is cached, and reports whether it is.
func (l *Log) attachLog(s *InlineStart, d *decision) bool {
	s.Log = l.cache.logWith(d)
	for _, e := range s.Log[:min(len(s.Log), s.Events)] {
		s.Size += int64(len(e.Payload))
	}
	s.Size = min(s.Size, read.MaxPageBytes)
	return s.Log != nil
}

// addWaits adds waits that were read later to the facts of the decision, except those that the decision is about.
func (d *decision) addWaits(waits map[entities.WaitID]entities.Wait) {
	for id, w := range waits {
		if _, ok := d.after.Waits[id]; !ok {
			d.before.Waits[id], d.after.Waits[id] = w, w
		}
	}
}

// forRun returns the decision about the run: this one, or that about a child which it creates. It is nil for other
// runs.
func (d *decision) forRun(id entities.RunID) *decision {
	if d.after.Run != nil && d.after.Run.ID == id {
		return d
	}
	for i := range d.children {
		if c := &d.children[i]; c.after.Run != nil && c.after.Run.ID == id {
			return c
		}
	}
	return nil
}

// recordStart adds the events that record a start to the decision, unless they are refused. It is pure.
func (d *decision) recordStart(s *InlineStart, now time.Time) {
	of := d.forRun(s.RunID)
	if of == nil {
		return
	}
	switch s.Work {
	case message.WorkRun:
		of.recordInvocation(s, now)
	case message.WorkStep:
		of.recordAttempt(s, now)
	default: // the start of other work is not an event
	}
}

// recordInvocation records the start of an invocation: run_started if it is the first, and wait_completed for each wait
// that is over.
func (d *decision) recordInvocation(s *InlineStart, now time.Time) {
	if d.before.Run != nil && len(d.after.Run.Limits) > 0 && d.after.Run.Status == entities.RunPending {
		return // it may wait for slots; the worker's own append finds out
	}
	requests := []Request{{RunID: s.RunID, Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}}
	requests = append(requests, endOf(d.after.dueWaits(s.At))...)
	for i := range requests {
		r := &requests[i]
		if d.add(facts{Snapshot: d.after}, r, now).Err != nil {
			return
		}
	}
	run := *d.after.Run
	s.Run = &run
}

// waits returns when the first of the waits ends that are not over, nil if there is none, and the IDs of those that
// are.
func (s *Snapshot) waits() (first *time.Time, over []string) {
	over = []string{}
	for id, w := range s.Waits {
		if w.Status != entities.WaitWaiting {
			over = append(over, string(id))
		} else if first == nil || w.ResumeAt.Before(*first) {
			first = w.ResumeAt
		}
	}
	slices.Sort(over)
	return first, over
}

// dueWaits returns the waits that are over at the time, earliest first, but no more than one transaction may write.
func (s *Snapshot) dueWaits(at time.Time) []entities.Wait {
	over := slices.DeleteFunc(slices.Collect(maps.Values(s.Waits)), func(w entities.Wait) bool {
		return w.Status != entities.WaitWaiting || w.ResumeAt == nil || w.ResumeAt.After(at)
	})
	slices.SortFunc(over, func(a, b entities.Wait) int {
		return cmp.Or(a.ResumeAt.Compare(*b.ResumeAt), cmp.Compare(a.ID, b.ID))
	})
	return over[:min(len(over), pg.MaxPage)]
}

// recordAttempt records the first attempt of a step that this decision creates. It does nothing if the step is past its
// deadline: the worker fails that without an attempt.
func (d *decision) recordAttempt(s *InlineStart, now time.Time) {
	i := slices.IndexFunc(d.events, func(e entities.Event) bool {
		return e.Type == entities.EventStepCreated && e.CorrelationID == s.Subject
	})
	if i < 0 || d.events[i].Data.Step == nil || d.events[i].Data.Step.Late(now) {
		return
	}
	created := d.events[i]
	o := d.add(facts{Snapshot: d.after}, &Request{
		RunID: s.RunID, Type: entities.EventStepStarted, CorrelationID: s.Subject, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{StepName: created.Data.StepName},
	}, now)
	if o.Err != nil {
		return
	}
	run := *d.after.Run
	s.Run, s.Step = &run, read.StepState{Step: *o.Step, Created: created, Run: run}
}
