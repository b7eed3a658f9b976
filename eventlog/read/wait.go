package read

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// waitForNews waits for an item of a subscription, but no longer than d: a hint may have got lost. It fails
// with the context's error when that ends first.
func waitForNotification(ctx context.Context, news <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-news:
	case <-timer.C:
	}
	return nil
}

// defaultEndPoll is how often somebody who waits for a run's end looks by itself, should the hint get lost.
const defaultEndPoll = 5 * time.Second

// endTopic is what hints about the end of a run are called.
func EndTopic(project entities.Project, runID entities.RunID) string {
	return "end " + string(project) + " " + string(runID)
}

// WaitForEnd reads a run once it has ended, by whichever process, or as it is when patience ends, whichever
// comes first. It fails with [entities.ErrRunNotFound] at once, and with the error of ctx, which must be that of
// whoever wants the answer.
func (l *Log) WaitForEnd(
	ctx, patience context.Context, project entities.Project, runID entities.RunID,
) (entities.Run, error) {
	news, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	for {
		over := patience.Err() != nil
		run, err := store.RunByID(ctx, l.pool, project, runID)
		if err != nil || over || run.Status.Ended() {
			return run, err
		}
		_ = waitForNotification(patience, news, l.EndPoll) // either way, look once more
	}
}

// WatchEnd returns nil once a run that was open has ended or is gone, by whichever process, and the context's error
// when that ends first. It asks the database nothing before there is news or much time has passed: what is done
// meanwhile is often over before. And it breaks no question off, which would cost the connection. An end that came
// before the watch, or whose hint gets lost, is noticed after 5 s.
func (l *Log) WatchEnd(ctx context.Context, project entities.Project, runID entities.RunID) error {
	news, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	for {
		if err := waitForNotification(ctx, news, l.EndPoll); err != nil {
			return err
		}
		run, err := store.RunByID(context.WithoutCancel(ctx), l.pool, project, runID)
		if errors.Is(err, entities.ErrRunNotFound) || err == nil && run.Status.Ended() {
			return nil
		}
	}
}
