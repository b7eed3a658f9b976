package read

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Log reads the log: pages of events, the history of hooks and waits, and events as they are written. It writes
// nothing.
type Log struct {
	pool *pgxpool.Pool
	hub  *pg.Hub
	now  func() time.Time
	// endPoll and followPoll are how often those who wait look without a hint, should one get lost.
	EndPoll    time.Duration
	FollowPoll time.Duration
}

// New makes a reader of the database behind pool. The hub tells it of new events, and now is its clock.
func New(pool *pgxpool.Pool, hub *pg.Hub, now func() time.Time) *Log {
	return &Log{pool: pool, hub: hub, now: now, EndPoll: defaultEndPoll, FollowPoll: followPoll}
}

// Now is what the log's clock shows: whole milliseconds, UTC.
func (r *Log) Now() time.Time { return r.now().UTC().Truncate(time.Millisecond) }

// Announce wakes those who follow the run, or the project, after events of the run were committed; and those who wait
// for the run's end if that was among them.
func (r *Log) Announce(project entities.Project, runID entities.RunID, ended bool) {
	r.hub.Publish(runTopic(project, runID))
	r.hub.Publish(projectTopic(project))
	if ended {
		r.hub.Publish(EndTopic(project, runID))
	}
}
