package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Start creates a run by a run_created of a run that the server continues, and reports whether it did: one that was
// started before with the same idempotency key and digest is returned as it is now. Its parent, if it has one,
// must be alive.
//
// It fails as [Log.Append] does; with [entities.ErrKeyReused] when the idempotency key came with another digest;
// with a *[entities.KeyTakenError] when a live run of the workflow has its unique key; and with
// [entities.ErrRunNotFound] and [entities.ErrRunEnded] about the parent.
func (l *Log) Start(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	fail := func(err error) (entities.Run, bool, error) {
		return entities.Run{}, false, fmt.Errorf("start run: %w", err)
	}
	if run, ok, err := l.StartedBefore(ctx, project, r); ok || err != nil {
		return run, false, err
	}
	results, err := l.AppendAll(ctx, project, r.RunID, []Request{r}, AppendOptions{Guard: aliveParent(project, r.Data.ParentID)})
	switch pg.ViolatedConstraint(err) {
	case "runs_idempotency_key":
		run, ok, err := l.StartedBefore(ctx, project, r)
		if err == nil && !ok {
			err = fmt.Errorf("the run started before is gone: %w", entities.ErrConflict)
		}
		return run, false, err
	case "runs_unique_key":
		// It may be the rival of this very start who has it.
		if run, ok, err := l.StartedBefore(ctx, project, r); ok || err != nil {
			return run, false, err
		}
		id, err := store.RunByUniqueKey(ctx, l.pool, project, r.Data.WorkflowName, r.Data.UniqueKey)
		if errors.Is(err, entities.ErrRunNotFound) {
			return l.Start(ctx, project, r) // it has just ended
		}
		if err != nil {
			return fail(err)
		}
		return fail(&entities.KeyTakenError{Key: r.Data.UniqueKey, RunID: id})
	}
	if err != nil {
		return fail(err)
	}
	return results[0].Run, true, nil
}

// StartedBefore finds the run that was started by the request's idempotency key, if there is one. It fails with
// [entities.ErrKeyReused] when it was started with another digest.
func (l *Log) StartedBefore(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	if r.Data.IdempotencyKey == "" {
		return entities.Run{}, false, nil
	}
	run, err := store.RunByIdempotencyKey(ctx, l.pool, project, r.Data.IdempotencyKey)
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
		return entities.Run{}, false, fmt.Errorf("%w: run %s was started with the key %q and another request",
			entities.ErrKeyReused, run.ID, r.Data.IdempotencyKey)
	}
	return run, true, nil
}

// aliveParent locks a run's parent, so that it does not end before the run is there, and fails if it has.
func aliveParent(project entities.Project, id entities.RunID) func(*pgx.Batch) func() error {
	if id == "" {
		return nil
	}
	return func(b *pgx.Batch) func() error {
		var parent *entities.Run
		store.LockRunShared(b, project, id, &parent)
		return func() error {
			switch {
			case parent == nil:
				return fmt.Errorf("parent %s: %w", id, entities.ErrRunNotFound)
			case parent.Status.Ended():
				return fmt.Errorf("parent %s: %w", id, entities.ErrRunEnded)
			default:
				return nil
			}
		}
	}
}
