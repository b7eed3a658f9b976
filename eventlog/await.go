package eventlog

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// A run awaits what its function has asked for with its last answer. What is left of that is stored in the run's row,
// which every append locks or compares, so each event decides alone whether the run is invoked. While nothing is stored
// there, every event has the run invoked: before the first answer, after an answer that names nothing, and from the
// moment at which the run has to be invoked until its next answer. So nothing that happens during an invocation is
// lost, whatever the function awaited before.

// Awaiting is what an answer says about the run's next invocation.
type Awaiting struct {
	Condition await.Condition
	// Known is the position up to which the function knows the run's log, and Called the length of the log as the call
	// had it.
	Known, Called int64

	// Left is what the run awaits after the append; nil if it must be invoked at once. Package eventlog sets this
	// field.
	Left *await.Pending
}

// idlePause is the time until the next invocation of a run that awaits what its function knew to have ended.
const idlePause = time.Second

// awaited takes the work that an event makes necessary, and removes the invocations that the run does not await. It
// notes what is still awaited. The event is the run's last.
func (s *Snapshot) awaited(e *entities.Event, work []message.Message) []message.Message {
	run := s.Run
	if run.Await == nil {
		return work
	}
	if run.Await.Seq != e.Seq-1 || run.Status.Ended() {
		run.Await = nil
		return work
	}
	left, met := run.Await.Advance(e.Seq), false
	switch e.Type {
	case entities.EventStepCompleted, entities.EventStepFailed:
		left, met = run.Await.StepEnded(e.CorrelationID, e.Seq)
		work = withoutInvocation(run.ID, work)
		switch {
		case met || left.At != nil && !left.At.After(e.CreatedAt):
			work = append(work, invocation(run, 0))
		case left.At != nil && (run.Await.At == nil || left.At.Before(*run.Await.At)):
			work = append(work, invocation(run, left.At.Sub(e.CreatedAt)))
		}
	case entities.EventWaitCreated:
		work = withoutInvocation(run.ID, work)
	case entities.EventStepStarted:
		if e.Data.Resumed { // the request has the run invoked
			run.Await = nil
			return work
		}
	default: // counts as it does when the run awaits nothing
	}
	run.Await = &left
	if wantsInvocation(run.ID, work) {
		run.Await = nil
	}
	return work
}

// decideNext decides on the requests, and on what the run awaits after them.
func (c call) decideNext(f facts) decision {
	d := newDecision(f)
	d.apart, d.follows = c.late, c.follows
	if c.block {
		if d.refused = f.checkBlock(c.requests); d.refused != nil {
			return d
		}
		f.admitted = true
	}
	run := d.after.Run
	if c.wakes && run != nil {
		run.Await = nil
	}
	if c.invocation() == nil || run == nil {
		d.addAll(f, c.requests, c.now)
		return d
	}
	run.Await = nil // during the invocation, and unless its answer says something else
	if c.Await == nil {
		d.addAll(f, c.requests, c.now)
		return d
	}
	run.Await = &await.Pending{Seq: run.LastSeq} // the function knows its own results
	d.addAll(f, c.requests, c.now)
	d.settle(c.Await, f, c.now)
	return d
}

// settle sets what the run awaits after an answer whose events have been decided.
func (d *decision) settle(a *Awaiting, f facts, now time.Time) {
	run := d.after.Run
	a.Left = nil
	if run.Await == nil { // one of the events has the run invoked, or ends it
		return
	}
	left, met := a.Condition.Pending(d.after.open(), run.LastSeq)
	wakes := f.missed || met && run.LastSeq > a.Known
	switch {
	case wakes && run.LastSeq > a.Called:
		run.Await = nil
		d.messages = append(d.messages, invocation(run, 0))
		return
	case wakes || met: // and nothing has happened since the call: without a pause, that would go on forever
		at := now.UTC().Add(idlePause)
		left = await.Pending{Seq: run.LastSeq, At: &at}
	}
	run.Await, a.Left = &left, &left
}

// open returns the facts about the steps and waits of the snapshot, which must have those in question.
func (s *Snapshot) open() await.Facts {
	return await.Facts{
		Step: func(id string) bool {
			step, ok := s.Steps[entities.StepID(id)]
			return ok && step.CompletedAt == nil
		},
		Wait: func(id string) *time.Time {
			if w := s.Waits[entities.WaitID(id)]; w.Status == entities.WaitWaiting {
				return w.ResumeAt
			}
			return nil
		},
	}
}

// items returns the steps and waits in the condition.
func (a *Awaiting) items() (steps []entities.StepID, waits []entities.WaitID) {
	if a == nil {
		return nil, nil
	}
	for _, ref := range slices.Concat(append([][]await.Ref{a.Condition.Any}, a.Condition.All...)...) {
		if ref.Step != "" {
			steps = append(steps, entities.StepID(ref.Step))
		} else {
			waits = append(waits, entities.WaitID(ref.Wait))
		}
	}
	return steps, waits
}

// loadMissed queues a read whether an event has arrived during the invocation that has the run invoked whatever its
// function awaits.
func (a *Awaiting) loadMissed(b *pgx.Batch, runID entities.RunID, into *bool) {
	if a == nil {
		return
	}
	b.Queue(`
		SELECT EXISTS (
			SELECT FROM events WHERE run_id = $1 AND seq > $2
				AND (type IN ('hook_received', 'hook_conflict', 'cancel_requested')
					OR type = 'step_started' AND data ? 'resumed'))`, runID, a.Known,
	).QueryRow(func(row pgx.Row) error { return row.Scan(into) })
}

// mustBeSeen reports whether an event has the run invoked whatever its function awaits; see [Awaiting.loadMissed].
func mustBeSeen(e entities.Event) bool {
	switch e.Type {
	case entities.EventHookReceived, entities.EventHookConflict, entities.EventCancelRequested:
		return true
	case entities.EventStepStarted:
		return e.Data.Resumed
	default:
		return false
	}
}

// addAwaited adds the facts about the steps and waits that the call awaits, and about the events that its function does
// not know. It reports false if one is not cached.
func (c *runCache) addAwaited(a *Awaiting, requests []Request, f *facts) bool {
	if a == nil {
		return true
	}
	run, ok := c.runs.Peek(f.Run.ID)
	if !ok {
		return false
	}
	if f.Run.LastSeq > a.Known {
		log := c.logOf(f.Run)
		if log == nil {
			return false
		}
		f.missed = slices.ContainsFunc(log[a.Known:], mustBeSeen)
	}
	known := func(kind, id string, cached bool) {
		created := slices.ContainsFunc(requests, func(r Request) bool {
			return r.CorrelationID == id && r.Type.Kind() == kind
		})
		ok = ok && (cached || created)
	}
	steps, waits := a.items()
	for _, id := range steps {
		known(entities.KindStep, string(id), copyValue(run.Steps, f.Steps, id))
	}
	for _, id := range waits {
		known(entities.KindWait, string(id), copyValue(run.Waits, f.Waits, id))
	}
	return ok
}
