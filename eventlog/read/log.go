package read

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Log reads events, the history of hooks and waits, and the ends of runs.
type Log struct {
	pool pg.Pool
	hub  *pg.Hub
	now  func() time.Time
	// EndPoll and FollowPoll are how often readers that wait for the end of a run, or for events, read without a
	// notification.
	EndPoll    time.Duration
	FollowPoll time.Duration
	// Ended returns a run that this process knows to have ended without reading it, or false.
	Ended func(ctx context.Context, project entities.Project, id entities.RunID) (entities.Run, bool)

	live  *live
	tails tails[followed, FeedCursor, Entry]
}

// New returns a reader of the database behind pool. The hub notifies it of new events; now is its clock.
func New(pool *pgxpool.Pool, hub *pg.Hub, now func() time.Time) *Log {
	return &Log{
		pool: pg.NewPool(pool), hub: hub, now: now, EndPoll: defaultEndPoll, FollowPoll: followPoll,
		live: newLive(pool),
		Ended: func(context.Context, entities.Project, entities.RunID) (run entities.Run, ok bool) {
			return run, false
		},
	}
}

// Now returns the time of the log's clock, in UTC and whole milliseconds.
func (l *Log) Now() time.Time { return l.now().UTC().Truncate(time.Millisecond) }

// AnnounceStream notifies the readers of a stream after chunks were committed, or its end.
func (l *Log) AnnounceStream(project entities.Project, name entities.StreamName) {
	l.hub.Publish(StreamTopic(project, name))
}

// Announce notifies the followers of the run and of the project after events of the run were committed. If the run has
// ended, or one of its steps was cancelled, it also notifies the readers that watch for that.
func (l *Log) Announce(project entities.Project, runID entities.RunID, ended bool) {
	l.hub.Publish(runTopic(project, runID))
	l.hub.Publish(projectTopic(project))
	if ended {
		l.hub.Publish(EndTopic(project, runID))
	}
}
