package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// A fork is a run that begins with the first events of another one: see [entities.Fork]. They are written with its
// run_created, in one transaction, and are what they are there. It is a new run all the same: it is pending until its
// function is called, counts for quotas, and waits for the slots of its limits. What is open in the events is its own:
// its steps are executed with all of their attempts and time, its child runs are started again, its waits end when they
// would have ended, or at once if that is over, and its hooks take their tokens, which nobody else may have.

const (
	// MaxForkEvents is how many events a fork may keep. One transaction writes them, and the run's rows.
	MaxForkEvents = 10_000
	// MaxForkBytes is how many bytes their payloads may have.
	MaxForkBytes = 16 << 20
	// MaxForkChildren is how many child runs a fork may start: as many as an answer of a function may.
	MaxForkChildren = 500
	// failureWithin is how many positions before the end of a run the failure of a step is looked for that has failed it,
	// as in the lists of failures.
	failureWithin = 10
)

// checkKept fails with an [entities.ForkRefusedError] or an [entities.ForkTooLargeError] if no run can begin with the
// events and the requests that start the child runs anew that are open in them.
func checkKept(kept []entities.Event, children []Request) error {
	size := 0
	for _, e := range kept {
		size += len(e.Payload) + len(e.Extra)
		switch {
		case e.Type == entities.EventCancelRequested:
			return &entities.ForkRefusedError{Reason: entities.ForkCancelling, Seq: e.Seq, Text: fmt.Sprintf(
				"event %d has asked the run to cancel: go on from an earlier event, %d at most", e.Seq, e.Seq-1)}
		case (&Request{Type: e.Type}).endsRun():
			return entities.Invalid("event %d has ended the run: go on from an earlier event, %d at most", e.Seq, e.Seq-1)
		}
	}
	switch {
	case len(kept) > MaxForkEvents:
		return &entities.ForkTooLargeError{What: "events", Limit: MaxForkEvents}
	case size > MaxForkBytes:
		return &entities.ForkTooLargeError{What: "bytes of payloads", Limit: MaxForkBytes}
	}
	s := foldKept("", kept)
	for _, e := range s.openSteps(kept) {
		if err := s.checkOpen(e, children); err != nil {
			return err
		}
	}
	return nil
}

// checkOpen fails if a fork that starts the children anew cannot go on with a step, which e has created, as it is.
func (s *Snapshot) checkOpen(e entities.Event, children []Request) error {
	switch {
	case e.Data.Step == nil && s.Steps[entities.StepID(e.CorrelationID)].ResultSeq == 0:
		return &entities.ForkRefusedError{Reason: entities.ForkWithin, Seq: e.Seq, Text: fmt.Sprintf(
			"event %d has created step %s, and what follows was written with it: go on from its result, or from %d",
			e.Seq, e.CorrelationID, e.Seq-1)}
	case childOf(e) != "" && restartOf(children, e) == nil:
		return &entities.ForkRefusedError{
			Reason: entities.ForkOpenChild, Seq: e.Seq, Holder: childOf(e), Text: fmt.Sprintf(
				"step %s was waiting there for child run %s, which was deleted since, so that nothing says how to start it "+
					"again: go on from an event after its end, or from %d at most", e.CorrelationID, childOf(e), e.Seq-1),
		}
	default:
		return nil
	}
}

// foldKept returns the fold of the events with which a fork begins.
func foldKept(project entities.Project, kept []entities.Event) *Snapshot {
	s := NewSnapshot(project)
	for _, e := range kept {
		s.Apply(&e)
	}
	return s
}

// openSteps returns the step_created of the steps in the log that have no result, in order.
func (s *Snapshot) openSteps(log []entities.Event) []entities.Event {
	var open []entities.Event
	for _, e := range log {
		if e.Type == entities.EventStepCreated && s.Steps[entities.StepID(e.CorrelationID)].CompletedAt == nil {
			open = append(open, e)
		}
	}
	return open
}

// keptTokens returns the tokens that a fork needs, in order.
func (r *Request) keptTokens() []string {
	var tokens []string
	if len(r.Kept) > 0 {
		for _, hook := range foldKept("", r.Kept).Hooks {
			tokens = append(tokens, hook.Token)
		}
	}
	slices.Sort(tokens)
	return tokens
}

// fork decides on a run_created that keeps the events of another run.
func (d *decision) fork(f facts, r *Request, now time.Time) Outcome {
	if err := f.checkTransition(r, now); err != nil {
		return Outcome{Err: err}
	}
	events := r.forkEvents(now)
	after := foldKept(f.Project, events)
	for _, hook := range after.Hooks {
		if holder := f.holders[hook.Token]; holder != nil && holder.Holds(now) {
			return Outcome{Err: &entities.ForkRefusedError{
				Reason: entities.ForkToken, Seq: hook.CreatedSeq, Holder: holder.RunID, Text: fmt.Sprintf(
					"run %s has the token of hook %s, which was open there: cancel that run, or go on from %d at most",
					holder.RunID, hook.ID, hook.CreatedSeq-1),
			}}
		}
	}
	*d.after = *after
	first := events[0]
	first.CreatedAt = now // the time of its work counts from the fork
	d.events, d.messages = append(d.events, events...), append(d.messages, nextWork(after.Run, &first)...)
	d.messages = append(d.messages, after.reopen(events, now)...)
	d.messages = append(d.messages, r.Messages...)
	return Outcome{Result: resultOf(d.after, now, &events[0], r, Result{})}
}

// forkEvents returns the events with which a fork begins. The time that its open steps have is as long as it was, and
// what was to be executed by the deployment of the original is by that of the fork.
func (r *Request) forkEvents(now time.Time) []entities.Event {
	events := slices.Clone(r.Kept)
	fork := *r.Data.Fork
	fork.Events, fork.At = int64(len(events)), now
	created := facts{Snapshot: &Snapshot{}}.newEvent(r, events[0].CreatedAt)
	created.Data.Fork = &fork
	events[0] = created
	for i := range events {
		events[i].RunID = r.RunID
	}
	for _, e := range foldKept("", events).openSteps(events) {
		if e.Data.Step == nil {
			continue
		}
		spec := *e.Data.Step
		if spec.Deadline != nil {
			spec.Deadline = new(now.Add(spec.Deadline.Sub(e.CreatedAt)))
		}
		if spec.DeploymentID = r.ownDeployment(spec.DeploymentID); spec.ChildID != "" {
			spec.ChildID = restartOf(r.Children, e).Child.RunID
		}
		events[e.Seq-1].Data.Step = &spec
	}
	return events
}

// reopen returns the work of the steps that are open in the log of a fork. A step that its function executes itself has
// work only if its next attempt has to be asked for.
func (s *Snapshot) reopen(log []entities.Event, now time.Time) []message.Message {
	if s.Run.Driver != entities.DriverServer {
		return nil
	}
	var list []message.Message
	for _, e := range s.openSteps(log) {
		retry := s.Steps[entities.StepID(e.CorrelationID)].RetryAfter
		switch {
		case e.Data.Step != nil:
			list = append(list, stepWork(s.Run, &e)...)
		case retry != nil:
			m := work(s.Run, message.WorkStep, e.CorrelationID)
			m.DeploymentID, m.Topic, m.New, m.Delay = "", e.Data.StepName, true, max(0, retry.Sub(now))
			list = append(list, m)
		}
	}
	unshare(list, func(uses []entities.LimitUse) []entities.LimitUse { // they share the slots of their run
		return slices.DeleteFunc(slices.Clone(uses), func(u entities.LimitUse) bool {
			return slices.ContainsFunc(s.Run.Limits, func(of entities.LimitUse) bool { return of.Name == u.Name })
		})
	})
	return list
}

// BeforeFailure returns how many events of a log that has ended in a failure a fork keeps, so that it goes on from
// there: what was finished before the step that failed is kept, and the step is executed anew. Of failures of steps
// that were open together, the first counts. If no step has failed last, all but the end is kept.
//
// It fails with an [entities.ForkRefusedError] if the run has undone steps since.
func BeforeFailure(log []entities.Event) (int, error) {
	end := slices.IndexFunc(log, func(e entities.Event) bool {
		return (&Request{Type: e.Type}).endsRun() || e.Type == entities.EventCancelRequested
	})
	if end >= 0 {
		log = log[:end]
	}
	created := map[string]int{}
	failed, last := -1, -1
	for i, e := range log {
		switch {
		case e.Type == entities.EventStepCreated:
			created[e.CorrelationID] = i
			if isUndo(e.CorrelationID) {
				return 0, &entities.ForkRefusedError{Reason: entities.ForkUndone, Seq: e.Seq, Text: fmt.Sprintf(
					"the run has undone steps since, from event %d on: rerun it, or say from which event to go on", e.Seq)}
			}
		case e.Type == entities.EventStepFailed && !e.Data.Cancelled:
			if last = i; failed < 0 || created[e.CorrelationID] > failed {
				failed = i // the step came after the failure that was the first up to now
			}
		}
	}
	if failed < 0 || last < len(log)-failureWithin {
		return len(log), nil
	}
	keep := created[log[failed].CorrelationID]
	for i := keep; i < failed; i++ {
		if log[i].CorrelationID != log[failed].CorrelationID && !beginsOnly(log[i].Type) {
			keep = i + 1
		}
	}
	return keep, nil
}

// isUndo reports whether a step undoes another one, in a flow or by the Go SDK.
func isUndo(id string) bool {
	return strings.HasSuffix(id, "~undo") || strings.HasPrefix(id, "undo:") || strings.Contains(id, ".undo:")
}

// beginsOnly reports whether an event only begins something, which the code of the run asks for again.
func beginsOnly(t entities.EventType) bool {
	switch t {
	case entities.EventStepCreated, entities.EventStepStarted, entities.EventStepRetrying, entities.EventWaitCreated,
		entities.EventHookCreated:
		return true
	default:
		return false
	}
}
