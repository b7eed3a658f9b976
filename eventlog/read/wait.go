package read

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
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

// EndTopic returns the topic of notifications about the end of a run.
func EndTopic(project entities.Project, runID entities.RunID) string {
	return "end " + string(project) + " " + string(runID)
}

// WaitForEnd waits until the run has ended, in any process, or until the deadline context ends, and returns the run as
// it is then. It fails with [entities.ErrRunNotFound] at once, and with the error of ctx, which must outlive the
// deadline.
func (l *Log) WaitForEnd(
	ctx, deadline context.Context, project entities.Project, runID entities.RunID,
) (entities.Run, error) {
	notifications, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	defer l.live.enter(project)()
	for {
		over := deadline.Err() != nil
		run, err := l.run(ctx, project, runID)
		if err != nil || over || run.Status.Ended() {
			return run, err
		}
		_ = waitForNotification(deadline, notifications, l.live.poll(project, l.EndPoll)) // either way, read once more
	}
}

// WatchEnd returns nil once a live run has ended or was deleted, in any process, or the error of the context if that
// ends first. It does not read before the first notification or poll, because most watches are cancelled earlier. It
// does not cancel a read that is under way, which would cost the connection. An end before the call, or with a lost
// notification, is noticed after 5 s.
func (l *Log) WatchEnd(ctx context.Context, project entities.Project, runID entities.RunID) error {
	notifications, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	for {
		if err := waitForNotification(ctx, notifications, l.EndPoll); err != nil {
			return err
		}
		run, err := store.RunByID(context.WithoutCancel(ctx), l.pool, project, runID)
		if errors.Is(err, entities.ErrRunNotFound) || err == nil && run.Status.Ended() {
			return nil
		}
	}
}
