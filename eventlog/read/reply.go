package read

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// replyTopic returns the topic of notifications about a run's answer to a message.
func replyTopic(project entities.Project, runID entities.RunID, step entities.StepID) string {
	return "reply " + string(project) + " " + string(runID) + " " + string(step)
}

// AnnounceReply notifies those who wait for a run's answer to a message, after it was committed.
func (l *Log) AnnounceReply(project entities.Project, runID entities.RunID, step entities.StepID) {
	l.hub.Publish(replyTopic(project, runID, step))
}

// WaitForReply waits until a run has answered a message, or one that goes on with its work, or all of them have ended,
// or until the deadline context ends. The step is that of the answer. It fails with [entities.ErrRunNotFound], and with
// the error of ctx, which must outlive the deadline.
func (l *Log) WaitForReply(
	ctx, deadline context.Context, project entities.Project, runID entities.RunID, step entities.StepID,
) (store.Reply, error) {
	defer l.live.enter(project)()
	for {
		reply, err := l.waitForReplyOf(ctx, deadline, project, runID, step)
		if err != nil || reply.Seq > 0 || reply.RunID == runID {
			return reply, err
		}
		runID = reply.RunID
	}
}

// waitForReplyOf is [Log.WaitForReply] until another run goes on with the work of the run: it has that ID then.
func (l *Log) waitForReplyOf(
	ctx, deadline context.Context, project entities.Project, runID entities.RunID, step entities.StepID,
) (store.Reply, error) {
	replies, cancel := l.hub.Subscribe(replyTopic(project, runID, step))
	defer cancel()
	ends, cancel := l.hub.Subscribe(EndTopic(project, runID))
	defer cancel()
	for {
		over := deadline.Err() != nil
		reply, err := store.ReplyTo(ctx, l.pool, project, runID, step)
		if err != nil || over || reply.Seq > 0 || reply.Ended || reply.RunID != runID {
			return reply, err
		}
		poll := time.NewTimer(l.live.poll(project, l.EndPoll))
		select {
		case <-deadline.Done():
		case <-replies:
		case <-ends:
		case <-poll.C:
		}
		poll.Stop()
	}
}
