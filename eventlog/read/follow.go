package read

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

const (
	// followPoll is how often followers read without a notification.
	followPoll = 2 * time.Second
	// followPause is the shortest time between two reads of a list, so that many small writes are read together. It is
	// perFollowed longer for each other list that is followed.
	followPause = 25 * time.Millisecond
	perFollowed = 2 * time.Millisecond
	// followEvents and followBytes limit what followers read at a time: in events, and in bytes of payloads.
	followEvents = 100
	followBytes  = 256 << 10
	// entryBytes is about what an event takes in memory without its payload.
	entryBytes = 512
)

// runTopic and projectTopic return the topics of notifications about new events.
func runTopic(project entities.Project, runID entities.RunID) string {
	return "events " + string(project) + " " + string(runID)
}

func projectTopic(project entities.Project) string { return "events " + string(project) }

// followed identifies a list of events that followers share.
type followed struct {
	project entities.Project
	runID   entities.RunID // empty for the events of the project
	query   string
	with    Payloads
}

func newFollowed(project entities.Project, runID entities.RunID, q EventQuery, with Payloads) followed {
	q.After = 0 // is the position of one follower
	return followed{project, runID, fmt.Sprintf("%#v", q), with}
}

// Follower reads events as they are written by any process: each once, in order, without gaps. The followers of the
// same events in this process share what they read. A follower holds no connection while it waits. It is not safe for
// concurrent use.
type Follower struct {
	reader *tailReader[FeedCursor, Entry] // its positions in the log of a run are cursors with a seq only
	text   func(FeedCursor) string
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
	run, err := l.run(ctx, project, runID)
	if err != nil {
		return nil, err
	}
	source := source[FeedCursor, Entry]{
		project: project, topic: runTopic(project, runID), at: func(e Entry) FeedCursor { return FeedCursor{seq: e.Seq} },
		read: func(ctx context.Context, after FeedCursor) (part[FeedCursor, Entry], error) {
			return l.readRunAfter(ctx, *s, runID, after.seq)
		},
	}
	text := func(p FeedCursor) string { return strconv.FormatInt(p.seq, 10) }
	list := newFollowed(project, runID, q, with)
	return l.follow(source, list, FeedCursor{seq: q.After}, FeedCursor{seq: run.LastSeq}, text), nil
}

// follow returns a follower that starts at a position. A list that nobody follows begins at the position end.
func (l *Log) follow(
	s source[FeedCursor, Entry], list followed, start, end FeedCursor, text func(FeedCursor) string,
) *Follower {
	s.pollEvery, s.pause, s.perList = l.FollowPoll, followPause, perFollowed
	s.compare, s.size = FeedCursor.Compare, entrySize
	return &Follower{l.tails.join(l.live, l.hub, list, s, start, end), text}
}

// run reads a run as the followers do, with one of their connections.
func (l *Log) run(ctx context.Context, project entities.Project, id entities.RunID) (entities.Run, error) {
	return withConnection(ctx, l.live, project, func() (entities.Run, error) {
		return store.RunByID(ctx, l.pool, project, id)
	})
}

// readRunAfter reads the events of a run after a position.
func (l *Log) readRunAfter(
	ctx context.Context, s search, runID entities.RunID, after int64,
) (part[FeedCursor, Entry], error) {
	s.After = after
	run, err := store.RunByID(ctx, l.pool, s.project, runID) // before the events, which include its last one
	if err != nil {
		return part[FeedCursor, Entry]{}, err
	}
	page, err := s.readRun(ctx, l.pool, runID)
	p := part[FeedCursor, Entry]{items: withTexts(page.Entries), more: page.More}
	if n := len(page.Entries); n > 0 {
		p.to.seq = page.Entries[n-1].Seq
	} else {
		p.to.seq = max(after, run.LastSeq) // no event up to there matches
		p.ended = run.Status.Ended()
	}
	p.more = p.more || len(page.Entries) > 0 && run.Status.Ended() // the end is reported without events
	return p, err
}

// FollowProject follows the events of a project from after the cursor. Without a cursor it follows the events that are
// written from now on, and those that still wait for an open transaction. It fails with [entities.ErrInvalid] and
// [ErrCursorLost]. The caller must close the follower.
func (l *Log) FollowProject(
	ctx context.Context, project entities.Project, q EventQuery, from *FeedCursor, with Payloads,
) (*Follower, error) {
	s, err := newFollowSearch(project, q, with)
	if err != nil {
		return nil, err
	}
	var after FeedCursor
	if from != nil {
		after = *from
	}
	now, err := l.endAfter(ctx, project, after)
	if err != nil {
		return nil, fmt.Errorf("follow events: %w", err)
	}
	if from == nil {
		after = now
	}
	source := source[FeedCursor, Entry]{
		project: project, topic: projectTopic(project), at: FeedCursorOf,
		read: func(ctx context.Context, after FeedCursor) (part[FeedCursor, Entry], error) {
			return l.readFeedAfter(ctx, *s, after)
		},
	}
	return l.follow(source, newFollowed(project, "", q, with), after, now, FeedCursor.String), nil
}

// readFeedAfter reads the events of a project after a cursor.
func (l *Log) readFeedAfter(ctx context.Context, s search, after FeedCursor) (part[FeedCursor, Entry], error) {
	s.from = after
	page, h, err := s.readFeed(ctx, l.pool)
	// The end of the transaction that blocks events is not notified.
	p := part[FeedCursor, Entry]{items: withTexts(page.Entries), to: after, more: page.More, blocked: h.blocked}
	if n := len(page.Entries); n > 0 {
		p.to = FeedCursorOf(page.Entries[n-1])
	} else if h.end.Compare(after) > 0 {
		p.to = h.end // no matching event can come before it
	}
	return p, err
}

func entrySize(e Entry) int { return len(e.Payload) + len(e.Extra) + entryBytes }

// Next waits for events and returns them. It returns none if the deadline context ends first, or if no more will come:
// see [Follower.Ended]. With a deadline that has ended, it reads once. It fails with the error of ctx, and with the
// errors of the function that returned the follower. The caller must not change the entries.
func (f *Follower) Next(ctx, deadline context.Context) ([]Entry, error) {
	return f.reader.next(ctx, deadline)
}

// Ended reports whether no more events will come.
func (f *Follower) Ended() bool { return f.reader.ended }

// Cursor returns the follower's position: another follower that starts there continues where this one is.
func (f *Follower) Cursor() string { return f.text(f.reader.at) }

// Close makes the follower leave the list.
func (f *Follower) Close() { f.reader.quit() }
