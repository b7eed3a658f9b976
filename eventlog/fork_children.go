package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// A child run that is open in the events of a fork reports to the original alone, and what became of it since is not in
// these events. So the fork starts it again, as it executes open steps again: a new run, with what the original has
// asked for, and with limits, quotas and a build as of now. Its step names that run from the fork's first commit on.

// Fork makes the run_created of a copy that of a fork, which keeps the first events of the original's log, and says in
// Data.Fork what was open in them. It fails with an [entities.ForkRefusedError] or an [entities.ForkTooLargeError] if
// no run can begin with these events. Whether others have the tokens and keys that it needs is found at its start.
func (l *Log) Fork(
	ctx context.Context, project entities.Project, created Request, kept []entities.Event,
) (Request, error) {
	fork := entities.Fork{RunID: kept[0].RunID, Seed: kept[0].RunID}
	if before := kept[0].Data.Fork; before != nil {
		fork.Seed = before.Seed
	}
	var open []entities.Event
	for _, e := range foldKept(project, kept).openSteps(kept) {
		if childOf(e) != "" {
			open = append(open, e)
		} else {
			fork.Steps++
		}
	}
	fork.Children = len(open)
	created.Kept, created.Data.Fork = kept, &fork
	if len(open) > MaxForkChildren {
		return created, &entities.ForkTooLargeError{What: "open child runs", Limit: MaxForkChildren}
	}
	var err error
	if created.Children, err = l.startsAnew(ctx, project, open); err != nil {
		return created, err
	}
	return created, checkKept(kept, created.Children)
}

// startsAnew returns the requests that start the child runs of open steps anew, which the events have created. Those of
// which nothing is kept are left out.
func (l *Log) startsAnew(ctx context.Context, project entities.Project, open []entities.Event) ([]Request, error) {
	ids, at := make([]entities.RunID, len(open)), make([]read.Position, len(open))
	for i, e := range open {
		ids[i], at[i] = childOf(e), read.Position{RunID: childOf(e), Seq: 1}
	}
	runs, err := store.RunsOfAny(ctx, pg.NewPool(l.pool), ids)
	if err != nil {
		return nil, err
	}
	own := map[entities.RunID]bool{} // an imported log may name runs of other projects
	for _, run := range runs {
		own[run.ID] = run.Project == project
	}
	firsts, err := l.EventsAt(ctx, at, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	var starts []Request
	for i, e := range open {
		if first, ok := firsts[at[i]]; ok && own[first.RunID] {
			starts = append(starts, startAnew(e, first, l.Now()))
		}
	}
	return starts, nil
}

// startAnew returns the request that starts the child run of a step anew, which created has created. First is the first
// event of the child.
func startAnew(created, first entities.Event, now time.Time) Request {
	child := NewRun(now, created.Payload, entities.EventData{
		DeploymentID: first.Data.DeploymentID, WorkflowName: first.Data.WorkflowName, Attributes: first.Data.Attributes,
		AllowReserved: first.Data.AllowReserved, UniqueKey: first.Data.UniqueKey, Detached: first.Data.Detached,
		ParentStep: entities.StepID(created.CorrelationID), TimeoutGraceMS: first.Data.TimeoutGraceMS,
	})
	if first.Data.Deadline != nil {
		child.Data.Deadline = new(now.Add(first.Data.Deadline.Sub(first.CreatedAt)))
	}
	return Request{
		Type: entities.EventStepCreated, CorrelationID: created.CorrelationID, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{
			StepName: created.Data.StepName, Step: &entities.StepSpec{ChildID: child.RunID}, At: created.Data.At,
		},
		Child: &child,
	}
}

// children returns the requests that start the children of a fork with it, below it.
func (r *Request) children() []Request {
	var list []Request
	for _, start := range r.Children {
		child := *start.Child
		child.Data.ParentID, child.Data.DeploymentID = r.RunID, r.ownDeployment(child.Data.DeploymentID)
		start.RunID, start.Child = r.RunID, &child
		list = append(list, start)
	}
	return list
}

// ownDeployment returns the deployment of what a fork executes that was for the given one: its own for that of the
// original.
func (r *Request) ownDeployment(id string) string {
	if id == r.Kept[0].Data.DeploymentID {
		return r.Data.DeploymentID
	}
	return id
}

// keptStep returns the event with which a fork that the decision creates has kept the step of a request to create it;
// nil for any other request.
func (d *decision) keptStep(r *Request) *entities.Event {
	if r.Type != entities.EventStepCreated || d.before.Run != nil || d.after.Run == nil || d.after.Run.ForkSeq == 0 {
		return nil
	}
	return d.eventOf(r)
}

// startAnew decides on a request that starts a child run of a fork anew; see [Request.Children]. The event that has
// created its step names it already.
func (d *decision) startAnew(f facts, r *Request, created *entities.Event, now time.Time) Outcome {
	if taken, ok := errors.AsType[*entities.KeyTakenError](r.refused); ok {
		return Outcome{Err: &entities.ForkRefusedError{
			Reason: entities.ForkChildKey, Seq: created.Seq, Holder: taken.RunID, Text: fmt.Sprintf(
				"run %s has the key %q of the child run that step %s was waiting for there: cancel that run, or go on from "+
					"%d at most", taken.RunID, taken.Key, created.CorrelationID, created.Seq-1),
		}}
	}
	if r.refused != nil {
		return Outcome{Err: r.refused}
	}
	d.startChild(f, r, now)
	return Outcome{Result: resultOf(d.after, now, created, r, Result{StepCreated: true})}
}

// childOf returns the child run of the step that an event has created; empty if it is none.
func childOf(created entities.Event) entities.RunID {
	if created.Data.Step == nil {
		return ""
	}
	return created.Data.Step.ChildID
}

// restartOf returns the request that starts the child run anew of the step that an event has created, or nil.
func restartOf(children []Request, created entities.Event) *Request {
	for i, r := range children {
		if r.CorrelationID == created.CorrelationID {
			return &children[i]
		}
	}
	return nil
}
