package read

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// waitForNotification waits for a notification, but no longer than d, because it may get lost. It fails with the error
// of the context if that ends first.
func waitForNotification(ctx context.Context, notifications <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-notifications:
	case <-timer.C:
	}
	return nil
}

// defaultEndPoll is how often a reader that waits for the end of a run reads without a notification.
const defaultEndPoll = 5 * time.Second

// EndTopic returns the topic of notifications about the end of a run, or of one of its steps before its call returned.
func EndTopic(project entities.Project, runID entities.RunID) string {
	return "end " + string(project) + " " + string(runID)
}

// Ending waits for the end of a run. It learns of an end since it was made, and so also of that of a run that is
// created afterwards. The caller must close it.
type Ending struct {
	log           *Log
	project       entities.Project
	run           entities.RunID
	notifications <-chan struct{}
	cancel, leave func()
}

// Ending returns what waits for the end of a run.
func (l *Log) Ending(project entities.Project, runID entities.RunID) *Ending {
	notifications, cancel := l.hub.Subscribe(EndTopic(project, runID))
	return &Ending{l, project, runID, notifications, cancel, l.live.enter(project)}
}

// Close ends the subscription; there is none if e is nil.
func (e *Ending) Close() {
	if e != nil {
		e.leave()
		e.cancel()
	}
}

// Notified waits until the run may have ended, or until the deadline context ends.
func (e *Ending) Notified(deadline context.Context) {
	_ = waitForNotification(deadline, e.notifications, e.log.live.poll(e.project, e.log.EndPoll)) // the caller reads
}

// Wait waits until the run has ended, in any process, or until the deadline context ends, and returns the run as it is
// then. It fails with [entities.ErrRunNotFound] at once, and with the error of ctx, which must outlive the deadline.
func (e *Ending) Wait(ctx, deadline context.Context) (entities.Run, error) {
	for {
		over := deadline.Err() != nil
		if run, ok := e.log.Ended(deadline, e.project, e.run); ok {
			return run, nil
		}
		run, err := e.log.run(ctx, e.project, e.run)
		if err != nil || over || run.Status.Ended() {
			return run, err
		}
		e.Notified(deadline)
	}
}

// WaitForEnd is [Ending.Wait] for a run that exists.
func (l *Log) WaitForEnd(
	ctx, deadline context.Context, project entities.Project, runID entities.RunID,
) (entities.Run, error) {
	e := l.Ending(project, runID)
	defer e.Close()
	return e.Wait(ctx, deadline)
}

// WaitForStart waits as long as pending says that the run is to be started, or until the deadline context ends. It asks
// at once, after each notification about the run, and now and then. It fails with the error of pending.
func (l *Log) WaitForStart(
	ctx, deadline context.Context, project entities.Project, runID entities.RunID,
	pending func(context.Context) (bool, error),
) error {
	notifications, cancel := l.hub.Subscribe(runTopic(project, runID))
	defer cancel()
	defer l.live.enter(project)()
	for {
		over := deadline.Err() != nil
		if yes, err := pending(ctx); err != nil || !yes || over {
			return err
		}
		_ = waitForNotification(deadline, notifications, l.live.poll(project, l.EndPoll)) // either way, ask once more
	}
}

// WatchEnd returns nil once a live run has ended or was deleted, in any process, or the error of the context if that
// ends first. It does not read before the first notification or poll, because most watches are cancelled earlier. It
// does not cancel a read that is under way, which would cost the connection. An end before the call, or with a lost
// notification, is noticed after 5 s.
func (l *Log) WatchEnd(ctx context.Context, project entities.Project, runID entities.RunID) error {
	return l.watch(ctx, project, runID, func(ctx context.Context) bool {
		run, err := store.RunByID(ctx, l.pool, project, runID)
		return errors.Is(err, entities.ErrRunNotFound) || err == nil && run.Status.Ended()
	})
}

// WatchStep returns nil once an open step has a result, or its run has ended, as [Log.WatchEnd] does for a run. It is
// notified of the cancellation of steps and of the end of the run, but not of other results.
func (l *Log) WatchStep(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.StepID,
) error {
	return l.watch(ctx, project, runID, func(ctx context.Context) bool {
		open, err := store.StepIsOpen(ctx, l.pool, project, runID, id)
		return err == nil && !open
	})
}

// watch evaluates the condition after each notification about the end of the run, and now and then, until it holds.
func (l *Log) watch(
	ctx context.Context, project entities.Project, runID entities.RunID, over func(context.Context) bool,
) error {
	notifications, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	for {
		if err := waitForNotification(ctx, notifications, l.EndPoll); err != nil {
			return err
		}
		if over(context.WithoutCancel(ctx)) {
			return nil
		}
	}
}
