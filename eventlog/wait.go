package eventlog

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// defaultEndPoll is how often somebody who waits for a run's end looks by itself, should the hint get lost.
const defaultEndPoll = 5 * time.Second

// endTopic is what hints about the end of a run are called.
func endTopic(project entities.Project, runID entities.RunID) string {
	return "end " + string(project) + " " + string(runID)
}

// WaitForEnd reads a run once it has ended, by whichever process, or as it is when patience ends, whichever
// comes first. It fails with [entities.ErrRunNotFound] at once, and with the error of ctx, which must be that of
// whoever wants the answer.
func (l *Log) WaitForEnd(
	ctx, patience context.Context, project entities.Project, runID entities.RunID,
) (entities.Run, error) {
	news, cancel := l.hub.Subscribe(endTopic(project, runID))
	defer cancel()
	for {
		over := patience.Err() != nil
		run, err := entities.RunByID(ctx, l.pool, project, runID)
		if err != nil || over || run.Status.Ended() {
			return run, err
		}
		_ = waitForNews(patience, news, l.endPoll) // either way, look once more
	}
}
