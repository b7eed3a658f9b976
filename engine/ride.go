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

// What a flow decides because of news rides along with the news: it is written by the same statement. Of three steps in
// a row, the creation of the run brings the first step, each result the next one, and the last result the end. The rest
// needs a turn of its own, which is an invocation: news that others have written, a run whose state or rows this
// process does not have at hand, and decisions that need more than one statement.

const (
	// maxRide limits the time of a decision that rides along, and maxRideBytes the payloads of the news and those that it
	// writes. What takes more is left to a turn, which keeps nobody waiting and reserves its memory.
	maxRide      = 100 * time.Millisecond
	maxRideBytes = 1 << 20
)

// errNeedsTurn means that the decision needs the database.
var errNeedsTurn = errors.New("this needs a turn of its own")

// ride says what follows from news in the run of a flow; see [eventlog.Follow].
func (e *Engine) ride(ctx context.Context, n eventlog.News) *eventlog.Following {
	if sizeOf(n.Events) > maxRideBytes {
		return nil // a turn reserves the memory
	}
	kept := e.stateBefore(n)
	switch {
	case kept == nil:
		return nil
	case kept.needsTurn:
		e.flowStates.put(n.Run.ID, kept)
		return nil
	}
	news, err := flowEvents(n.Events)
	if err != nil || kept.fold(contract.About(n.Run), slices.Concat(kept.after, news)) != nil {
		return nil // a turn of its own tells why
	}
	requests, err := e.follow(ctx, n.Run, kept)
	kept.needsTurn = err != nil
	return &eventlog.Following{
		Known: err == nil, Requests: requests,
		Ended: func(written []entities.Event, followed bool) { e.rode(n, kept, written, followed) },
	}
}

// sizeOf returns the bytes of the payloads of events.
func sizeOf(events []entities.Event) (size int) {
	for _, e := range events {
		size += len(e.Payload)
	}
	return size
}

// stateBefore takes out the state of a run before the news, or returns nil if it is not at hand.
func (e *Engine) stateBefore(n eventlog.News) *keptState {
	before := n.Events[0].Seq - 1
	if before == 0 {
		if p, ok := e.flows.Known(n.Run.Project, n.Run.DeploymentID); ok {
			return &keptState{State: p.Begin()}
		}
		return nil
	}
	kept := e.flowStates.take(n.Run.ID)
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
		e.flowStates.put(n.Run.ID, kept)
	}
	return nil
}

// follow returns the requests that follow from a state. That something is under way after them, the statement that
// writes them checks.
func (e *Engine) follow(ctx context.Context, run entities.Run, kept *keptState) ([]eventlog.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, maxRide)
	defer cancel()
	commands, err := e.decide(ctx, run.Project, kept.State)
	if err != nil {
		return nil, err
	}
	planner := contract.Planner{
		Run: run, Now: e.log.Now(),
		Deployment: func(string, string) (string, error) { return "", errNeedsTurn },
		Condition:  func(string) error { return errNeedsTurn },
	}
	plan, err := planner.Plan(asAnswer(commands))
	if err != nil {
		return nil, err
	}
	size := 0
	for _, r := range plan.Requests {
		size += len(r.Payload)
	}
	if len(plan.Responses) > 0 || size > maxRideBytes {
		return nil, errNeedsTurn
	}
	return plan.Requests, nil
}

// rode keeps the state of a run after an append that began with the news. If what the state says was not written too, a
// turn decides it again.
func (e *Engine) rode(n eventlog.News, kept *keptState, written []entities.Event, followed bool) {
	news := len(n.Events)
	if len(written) < news || written[0].Seq != n.Events[0].Seq {
		return
	}
	after, err := flowEvents(written[news:])
	if err != nil || slices.ContainsFunc(after, endsRun) {
		return
	}
	kept.after, kept.undecided = after, !followed
	e.flowStates.put(n.Run.ID, kept)
}

func endsRun(e flow.Event) bool {
	switch e.Type {
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return true
	default:
		return false
	}
}
