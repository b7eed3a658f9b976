package eventlog

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// endPoll is how often somebody who waits for a run's end looks by itself, should the hint get lost.
const endPoll = 5 * time.Second

// endTopic is what hints about the end of a run are called.
func endTopic(project entities.Project, runID entities.RunID) string {
	return "end " + string(project) + " " + string(runID)
}

// WaitForEnd reads a run once it has ended, by whichever process, or as it is when the context ends. It
// fails with [entities.ErrRunNotFound] at once.
func (l *Log) WaitForEnd(ctx context.Context, project entities.Project, runID entities.RunID) (entities.Run, error) {
	news, cancel := l.hub.Subscribe(endTopic(project, runID))
	defer cancel()
	for {
		over := ctx.Err() != nil
		// The answer is wanted although the time to wait for a better one is over.
		run, err := entities.RunByID(context.WithoutCancel(ctx), l.pool, project, runID)
		if err != nil || over || run.Status.Ended() {
			return run, err
		}
		_ = waitForNews(ctx, news, endPoll) // either way, look once more
	}
}
