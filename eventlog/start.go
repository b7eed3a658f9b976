package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// NewRun returns the event that creates a run that the server continues, with a new ID.
func NewRun(now time.Time, input []byte, data entities.EventData) Request {
	data.Driver = entities.DriverServer
	return Request{
		RunID: entities.NewRunID(now), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: input,
		Data: data,
	}
}

// Start creates a run that the server continues. The request is a run_created. Start reports whether it created the
// run: a run that was started earlier with the same idempotency key and digest is returned as it is now. If the request
// names a parent, that must not have ended. The other requests are appended to the new run in the same transaction:
// they open its inboxes, for example.
//
// It fails as [Log.Append] does; with [entities.ErrKeyReused] if the idempotency key was used with another digest; with
// a *[entities.KeyTakenError] if a live run of the workflow has the unique key; and with [entities.ErrRunNotFound] and
// [entities.ErrRunEnded] about the parent.
func (l *Log) Start(
	ctx context.Context, project entities.Project, r Request, then ...Request,
) (entities.Run, bool, error) {
	return l.StartWith(ctx, project, r, belowParent(project, r.Data.ParentID), then...)
}

// StartWith is [Log.Start] with what the options add to the transaction that creates the run. It does not look at a
// parent. It fails with the errors of the options as well.
func (l *Log) StartWith(
	ctx context.Context, project entities.Project, r Request, o AppendOptions, then ...Request,
) (entities.Run, bool, error) {
	results, err := l.AppendAll(ctx, project, r.RunID, slices.Concat([]Request{r}, r.children(), then), o)
	if before, ok := errors.AsType[*startedBefore](err); ok {
		return before.run, false, nil
	}
	switch pg.ViolatedConstraint(err) {
	case "runs_idempotency_key":
		run, ok, err := l.StartedBefore(ctx, project, r)
		if err == nil && !ok {
			err = fmt.Errorf("the run that was started with the same key no longer exists: %w", entities.ErrConflict)
		}
		return run, false, err
	case "runs_unique_key":
		// A concurrent request with the same idempotency key may have taken it.
		if run, ok, err := l.StartedBefore(ctx, project, r); ok || err != nil {
			return run, false, err
		}
		err = l.keyTaken(ctx, project, r)
		if errors.Is(err, entities.ErrRunNotFound) {
			return l.StartWith(ctx, project, r, o, then...) // the run that had the key has just ended
		}
	}
	if _, ok := errors.AsType[*admin.QuotaError](err); ok && r.Data.UniqueKey != "" {
		// With the key taken, the request would not have created a run.
		if taken := l.keyTaken(ctx, project, r); errors.Is(taken, entities.ErrKeyTaken) {
			err = taken
		}
	}
	if err != nil {
		return entities.Run{}, false, fmt.Errorf("start run: %w", err)
	}
	return results[len(results)-1].Run, true, nil
}

// startedBefore is the error of an append that is to create a run which was started earlier with its idempotency key.
type startedBefore struct{ run entities.Run }

// Error implements error.
func (e *startedBefore) Error() string {
	return "run " + string(e.run.ID) + " was started with the same key"
}

// findStarted fails with a *[startedBefore] if the call is to create a run that was started earlier. Most keys are new,
// so this is looked for only when the run could not be created at once.
func (l *Log) findStarted(ctx context.Context, c call) error {
	if len(c.requests) == 0 || c.requests[0].Type != entities.EventRunCreated {
		return nil
	}
	run, ok, err := l.StartedBefore(ctx, c.project, c.requests[0])
	if ok && err == nil {
		err = &startedBefore{run}
	}
	return err
}

// Builds returns the build of a deployment whose runs keep to it; empty for other deployments. It fails if a build is
// wanted and the deployment has another one.
type Builds func(ctx context.Context, project entities.Project, deployment, wanted string) (string, error)

// NoteBuilds sets what says which build runs are started with.
func (l *Log) NoteBuilds(b Builds) { l.builds.Store(&b) }

// noteBuilds adds to the requests of a call with which builds they start runs.
func (l *Log) noteBuilds(ctx context.Context, c call) error {
	builds := l.builds.Load()
	for i := range c.requests {
		r := &c.requests[i]
		switch {
		case r.Child != nil:
			r = r.Child
		case r.Continue != nil:
			r = &r.Continue.Next
		}
		if builds == nil || r.Type != entities.EventRunCreated || r.Data.Driver != entities.DriverServer {
			continue
		}
		if r.OfApp {
			r.Data.Build = ""
			continue
		}
		var err error
		if r.Data.Build, err = (*builds)(ctx, c.project, r.Data.DeploymentID, r.Data.Build); err != nil {
			return err
		}
	}
	return nil
}

// keyTaken returns a *[entities.KeyTakenError] about the live run that has the request's unique key. It fails with
// [entities.ErrRunNotFound] if there is none.
func (l *Log) keyTaken(ctx context.Context, project entities.Project, r Request) error {
	id, err := store.RunByUniqueKey(ctx, pg.NewPool(l.pool), project, r.Data.WorkflowName, r.Data.UniqueKey)
	if err != nil {
		return err
	}
	return l.whenDurable(ctx, &entities.KeyTakenError{Key: r.Data.UniqueKey, RunID: id})
}

// StartedBefore returns the run that was started with the request's idempotency key, and reports whether one was. It
// fails with [entities.ErrKeyReused] if that run was started with another digest.
func (l *Log) StartedBefore(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	if r.Data.IdempotencyKey == "" {
		return entities.Run{}, false, nil
	}
	run, err := store.RunByIdempotencyKey(ctx, pg.NewPool(l.pool), project, r.Data.IdempotencyKey)
	if errors.Is(err, entities.ErrRunNotFound) {
		return entities.Run{}, false, nil
	}
	if err != nil {
		return entities.Run{}, false, err
	}
	page, err := l.Events(ctx, project, run.ID, pg.Page{Limit: 1}, read.WithoutPayloads)
	if err != nil {
		return entities.Run{}, false, err
	}
	if len(page.Events) != 1 || page.Events[0].Data.RequestDigest != r.Data.RequestDigest {
		return entities.Run{}, false, fmt.Errorf("%w: run %s was started with key %q by a different request",
			entities.ErrKeyReused, run.ID, r.Data.IdempotencyKey)
	}
	return run, true, l.whenDurable(ctx, nil)
}

// JoinedBefore returns the run that an earlier attempt of a request to start one has joined and sent the messages to,
// and reports whether there is one. Start is the run_created of the request. All messages have its idempotency key.
func (l *Log) JoinedBefore(
	ctx context.Context, project entities.Project, start Request, messages []Request,
) (entities.Run, bool, error) {
	if start.Data.UniqueKey == "" || len(messages) == 0 || messages[0].Data.IdempotencyKey == "" {
		return entities.Run{}, false, nil
	}
	run, err := store.RunJoined(ctx, pg.NewPool(l.pool), project, start.Data.WorkflowName, start.Data.UniqueKey,
		messages[0].Data.ResumeID, start.Data.IdempotencyKey)
	if errors.Is(err, entities.ErrRunNotFound) {
		return entities.Run{}, false, nil
	}
	if err != nil {
		return entities.Run{}, false, err
	}
	return run, true, l.whenDurable(ctx, nil)
}

// belowParent returns the options that lock the run's parent, so that it cannot end before the run is created, fail if
// it has ended, and give the run its place below it. There are none if the run has no parent.
func belowParent(project entities.Project, id entities.RunID) AppendOptions {
	if id == "" {
		return AppendOptions{}
	}
	var parent *entities.Run
	return AppendOptions{With: UnderLock{Guard: func(b *pgx.Batch) func([]Request) error {
		parent = nil
		store.LockRunShared(b, project, id, &parent)
		return func(requests []Request) error {
			switch {
			case parent == nil:
				return fmt.Errorf("parent %s: %w", id, entities.ErrRunNotFound)
			case parent.Status.Ended():
				return fmt.Errorf("parent %s: %w", id, entities.ErrRunEnded)
			}
			requests[0].Data.RootID, requests[0].Data.Depth = parent.Descend()
			return nil
		}
	}}}
}
