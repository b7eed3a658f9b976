package read

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// A live reader that got no hint looks this often by itself.
	followPoll = 2 * time.Second
	// followPause is the least time between a live reader's looks, so that what many write at once is read at once.
	followPause = 25 * time.Millisecond
	// What a live reader takes from the database at once: so many events, and so many bytes of payloads.
	followEvents = 100
	followBytes  = 2 << 20
)

// runTopic and projectTopic are what hints about new events are called.
func runTopic(project entities.Project, runID entities.RunID) string {
	return "events " + string(project) + " " + string(runID)
}

func projectTopic(project entities.Project) string { return "events " + string(project) }

// Follower reads events as they are written, by whichever process: each once, in order, and none is left out. It
// holds no more than what it last returned, and no connection while it waits. It is for one goroutine.
type Follower struct {
	// look reads what comes next, and says how long to wait at most if that is nothing.
	poll   func(ctx context.Context) (Listing, time.Duration, error)
	notifications   <-chan struct{}
	cancel func()
	cursor func() string
	ended  bool
	// rest is over when the next look may be; nil when that is at once.
	pause <-chan time.Time
}

// FollowRun follows the log of a run from behind the position on, until the run has ended and all was read. It
// fails with [entities.ErrRunNotFound] and [entities.ErrInvalid]. The caller must close the follower.
func (l *Log) FollowRun(
	ctx context.Context, project entities.Project, runID entities.RunID, q EventQuery, with Payloads,
) (*Follower, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	if _, err := store.RunByID(ctx, l.pool, project, runID); err != nil {
		return nil, err
	}
	f := &Follower{}
	f.notifications, f.cancel = l.hub.Subscribe(runTopic(project, runID))
	f.cursor = func() string { return fmt.Sprint(q.After) }
	f.poll = func(ctx context.Context) (Listing, time.Duration, error) {
		run, err := store.RunByID(ctx, l.pool, project, runID) // first: what it counts is then there
		if err != nil {
			return Listing{}, 0, err
		}
		s := search{
			EventQuery: q, Page: pg.Page{Limit: followEvents}, with: with, maxBytes: followBytes, project: project,
		}
		page, err := s.readRun(ctx, l.pool, runID)
		if n := len(page.Entries); n > 0 {
			q.After = page.Entries[n-1].Seq
		} else if err == nil {
			q.After = max(q.After, run.LastSeq) // there is nothing that matches up to there
			f.ended = run.Status.Ended()
		}
		return page, l.FollowPoll, err
	}
	return f, nil
}

// FollowProject follows all events of a project from behind the place on; without one, those that are written from
// now on, and those that an open transaction still holds up. It fails with [entities.ErrInvalid]. The caller must
// close the follower.
func (l *Log) FollowProject(
	ctx context.Context, project entities.Project, q EventQuery, from *FeedCursor, with Payloads,
) (*Follower, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	f := &Follower{}
	f.notifications, f.cancel = l.hub.Subscribe(projectTopic(project))
	s := search{
		EventQuery: q, Page: pg.Page{Limit: followEvents}, with: with, maxBytes: followBytes, project: project,
	}
	if from == nil {
		if err := l.pool.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())`).Scan(&s.from.xid); err != nil {
			f.cancel()
			return nil, fmt.Errorf("follow events: %w", err)
		}
	} else {
		s.from = *from
	}
	f.cursor = func() string { return s.from.String() }
	patience := followPause
	f.poll = func(ctx context.Context) (Listing, time.Duration, error) {
		s.args = nil
		page, now, err := s.readFeed(ctx, l.pool)
		if err != nil {
			return page, 0, err
		}
		if n := len(page.Entries); n > 0 {
			s.from = FeedCursorOf(page.Entries[n-1])
		} else if now.xmin > s.from.xid {
			s.from = FeedCursor{xid: now.xmin} // nothing that matches can come before it
		}
		// Nobody tells when the transaction that holds events up has ended.
		if patience = min(2*patience, l.FollowPoll); !now.blocked || len(page.Entries) > 0 {
			patience = followPause
		}
		if now.blocked {
			return page, patience, nil
		}
		return page, l.FollowPoll, nil
	}
	return f, nil
}

// Next waits for events and returns them, or none when patience ends first, or the last of them were returned
// before: see [Follower.Ended]. It fails with the error of ctx, and as what began the follower does.
func (f *Follower) Next(ctx, patience context.Context) ([]Entry, error) {
	for {
		if f.pause != nil {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-f.pause:
			}
		}
		page, most, err := f.poll(ctx)
		if err != nil {
			return nil, err
		}
		if f.pause = nil; !page.More {
			f.pause = time.After(followPause)
		}
		if len(page.Entries) > 0 || f.ended {
			return page.Entries, nil
		}
		if waitForNotification(patience, f.notifications, most) != nil {
			return nil, ctx.Err()
		}
	}
}

// Ended reports whether no more events will come.
func (f *Follower) Ended() bool { return f.ended }

// Cursor is where the follower is: one that starts there goes on where this one stopped.
func (f *Follower) Cursor() string { return f.cursor() }

// Close ends the follower.
func (f *Follower) Close() { f.cancel() }
