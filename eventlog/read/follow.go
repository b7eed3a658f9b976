package read

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// followPoll is how often a follower reads without a notification.
	followPoll = 2 * time.Second
	// followPause is the shortest time between two reads of a follower, so that many small writes are read together.
	followPause = 25 * time.Millisecond
	// followEvents and followBytes limit what a follower reads at a time: in events, and in bytes of payloads.
	followEvents = 100
	followBytes  = 2 << 20
)

// runTopic and projectTopic return the topics of notifications about new events.
func runTopic(project entities.Project, runID entities.RunID) string {
	return "events " + string(project) + " " + string(runID)
}

func projectTopic(project entities.Project) string { return "events " + string(project) }

// Follower reads events as they are written by any process: each once, in order, without gaps. It keeps nothing in
// memory between reads, and holds no connection while it waits. It is not safe for concurrent use.
type Follower struct {
	// poll reads the next events. If there are none, it returns how long to wait for a notification before the next
	// poll.
	poll          func(ctx context.Context) (Listing, time.Duration, error)
	notifications <-chan struct{}
	cancel        func()
	cursor        func() string
	ended         bool
	// pause fires when the next poll is allowed; nil if it is allowed at once.
	pause <-chan time.Time
}

// FollowRun follows the log of a run from after the query's position, until the run has ended and all its events were
// read. It fails with [entities.ErrRunNotFound] and [entities.ErrInvalid]. The caller must close the follower.
func (l *Log) FollowRun(
	ctx context.Context, project entities.Project, runID entities.RunID, q EventQuery, with Payloads,
) (*Follower, error) {
	s, err := newFollowSearch(project, q, with)
	if err != nil {
		return nil, err
	}
	if _, err := store.RunByID(ctx, l.pool, project, runID); err != nil {
		return nil, err
	}
	f := &Follower{}
	f.notifications, f.cancel = l.hub.Subscribe(runTopic(project, runID))
	f.cursor = func() string { return fmt.Sprint(s.After) }
	f.poll = func(ctx context.Context) (Listing, time.Duration, error) {
		run, err := store.RunByID(ctx, l.pool, project, runID) // before the events, which include its last one
		if err != nil {
			return Listing{}, 0, err
		}
		s.args = nil
		page, err := s.readRun(ctx, l.pool, runID)
		if n := len(page.Entries); n > 0 {
			s.After = page.Entries[n-1].Seq
		} else if err == nil {
			s.After = max(s.After, run.LastSeq) // no event up to there matches
			f.ended = run.Status.Ended()
		}
		return page, l.FollowPoll, err
	}
	return f, nil
}

// FollowProject follows the events of a project from after the cursor. Without a cursor it follows the events that are
// written from now on, and those that still wait for an open transaction. It fails with [entities.ErrInvalid]. The
// caller must close the follower.
func (l *Log) FollowProject(
	ctx context.Context, project entities.Project, q EventQuery, from *FeedCursor, with Payloads,
) (*Follower, error) {
	s, err := newFollowSearch(project, q, with)
	if err != nil {
		return nil, err
	}
	f := &Follower{}
	f.notifications, f.cancel = l.hub.Subscribe(projectTopic(project))
	if from == nil {
		if err := l.pool.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())`).Scan(&s.from.xid); err != nil {
			f.cancel()
			return nil, fmt.Errorf("follow events: %w", err)
		}
	} else {
		s.from = *from
	}
	f.cursor = func() string { return s.from.String() }
	wait := followPause // doubles while an open transaction blocks events
	f.poll = func(ctx context.Context) (Listing, time.Duration, error) {
		s.args = nil
		page, h, err := s.readFeed(ctx, l.pool)
		if err != nil {
			return page, 0, err
		}
		if n := len(page.Entries); n > 0 {
			s.from = FeedCursorOf(page.Entries[n-1])
		} else if h.xmin > s.from.xid {
			s.from = FeedCursor{xid: h.xmin} // no matching event can come before it
		}
		// The end of the transaction that blocks events is not notified.
		if wait = min(2*wait, l.FollowPoll); !h.blocked || len(page.Entries) > 0 {
			wait = followPause
		}
		if h.blocked {
			return page, wait, nil
		}
		return page, l.FollowPoll, nil
	}
	return f, nil
}

// Next waits for events and returns them. It returns none if the deadline context ends first, or if no more will come:
// see [Follower.Ended]. It fails with the error of ctx, and with the errors of the function that returned the follower.
func (f *Follower) Next(ctx, deadline context.Context) ([]Entry, error) {
	for {
		if f.pause != nil {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-f.pause:
			}
		}
		page, wait, err := f.poll(ctx)
		if err != nil {
			return nil, err
		}
		if f.pause = nil; !page.More {
			f.pause = time.After(followPause)
		}
		if len(page.Entries) > 0 || f.ended {
			return page.Entries, nil
		}
		if waitForNotification(deadline, f.notifications, wait) != nil {
			return nil, ctx.Err()
		}
	}
}

// Ended reports whether no more events will come.
func (f *Follower) Ended() bool { return f.ended }

// Cursor returns the follower's position: another follower that starts there continues where this one is.
func (f *Follower) Cursor() string { return f.cursor() }

// Close cancels the follower's subscription.
func (f *Follower) Close() { f.cancel() }
