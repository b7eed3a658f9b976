package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow"
)

// What a flow decides because of new events is written with them, by the same statement. Of three steps in
// a row, the creation of the run brings the first step, each result the next one, and the last result the end. The rest
// needs an invocation of its own: events that others have written, a run whose state or rows this
// process does not have at hand, and decisions that need more than one statement.

const (
	// maxInlineTime limits the time of a decision that is written inline, and maxInlineBytes the payloads of the new
	// events and those that it writes. What takes more is left to an invocation, which keeps nobody waiting and reserves
	// its memory.
	maxInlineTime  = 100 * time.Millisecond
	maxInlineBytes = 1 << 20
)

// errNeedsInvocation means that the decision needs the database.
var errNeedsInvocation = errors.New("this needs an invocation of its own")

// decideInline says what follows from new events in the run of a flow; see [eventlog.Follow].
func (e *Engine) decideInline(ctx context.Context, n eventlog.NewEvents) *eventlog.Following {
	if sizeOf(n.Events) > maxInlineBytes {
		return nil // an invocation reserves the memory
	}
	kept := e.stateBefore(n)
	switch {
	case kept == nil:
		return nil
	case kept.needsInvocation:
		e.kept.put(n.Run.ID, kept)
		return nil
	}
	added, err := flowEvents(n.Events)
	if err != nil || kept.fold(contract.About(n.Run), slices.Concat(kept.after, added)) != nil {
		return nil // an invocation of its own says why
	}
	requests, err := e.follow(ctx, n.Run, kept)
	kept.needsInvocation = err != nil
	return &eventlog.Following{
		Known: err == nil, Requests: requests,
		Ended: func(written []entities.Event, followed bool) { e.keepInline(n, kept, written, followed) },
	}
}

// sizeOf returns the bytes of the payloads of events.
func sizeOf(events []entities.Event) (size int) {
	for _, e := range events {
		size += len(e.Payload)
	}
	return size
}

// stateBefore takes out the state of a run before the new events, or returns nil if it is not at hand.
func (e *Engine) stateBefore(n eventlog.NewEvents) *keptState {
	before := n.Events[0].Seq - 1
	if before == 0 {
		if p, ok := e.flows.Known(n.Run.Project, n.Run.DeploymentID); ok {
			return &keptState{State: p.Begin()}
		}
		return nil
	}
	kept := e.kept.take(n.Run.ID)
	if kept == nil || kept.upTo() == before {
		return kept
	}
	if kept.upTo() < before && n.Log != nil {
		after, err := flowEvents(n.Log[kept.Seq():])
		if err == nil {
			kept.after = after
			return kept
		}
	}
	if kept.upTo() < before { // else a failover has lost what the state knows
		e.kept.put(n.Run.ID, kept)
	}
	return nil
}

// follow returns the requests that follow from a state. That something is under way after them, the statement that
// writes them checks.
func (e *Engine) follow(ctx context.Context, run entities.Run, kept *keptState) ([]eventlog.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInlineTime)
	defer cancel()
	commands, err := e.decide(ctx, run.Project, kept.State)
	if err != nil {
		return nil, err
	}
	planner := contract.Planner{
		Run: run, Now: e.log.Now(),
		Deployment: func(string, string) (string, error) { return "", errNeedsInvocation },
		Condition:  func(string) error { return errNeedsInvocation },
	}
	plan, err := planner.Plan(asAnswer(commands))
	if err != nil {
		return nil, err
	}
	size := 0
	for _, r := range plan.Requests {
		size += len(r.Payload)
	}
	if len(plan.Responses) > 0 || size > maxInlineBytes {
		return nil, errNeedsInvocation
	}
	return plan.Requests, nil
}

// keepInline keeps the state of a run after an append that began with the new events. If what the state says was not
// written too, an invocation decides it again.
func (e *Engine) keepInline(n eventlog.NewEvents, kept *keptState, written []entities.Event, followed bool) {
	count := len(n.Events)
	if len(written) < count || written[0].Seq != n.Events[0].Seq {
		return
	}
	after, err := flowEvents(written[count:])
	if err != nil || slices.ContainsFunc(after, endsRun) {
		return
	}
	kept.after, kept.undecided = after, !followed
	e.kept.put(n.Run.ID, kept)
}

func endsRun(e flow.Event) bool {
	switch e.Type {
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return true
	default:
		return false
	}
}
