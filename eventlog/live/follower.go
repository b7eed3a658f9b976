package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// minPollInterval is the least time between two reads, so that many small changes are read together.
	minPollInterval = 250 * time.Millisecond
	// pollInterval is how often a follower reads without a hint, which may be lost, and what no event says.
	pollInterval = 30 * time.Second
	// topicsInterval is how often a follower reads the versions of topics, and the least time between two lists of topics
	// that a viewer is sent.
	topicsInterval = 5 * time.Second
	// blockedPause is the same while an open transaction holds up more than one read can return.
	blockedPause = 5 * time.Second

	defaultViewers  = 500
	viewersPerOwner = 8
)

// Options configures [Followers].
type Options[R any] struct {
	Log *read.Log
	// Rows reads the runs with these IDs, as far as the project has them.
	Rows func(context.Context, entities.Project, []entities.RunID) ([]Row[R], error)
	// BlockedRuns returns the runs that their functions refuse, each with the number of failed calls. No event says that
	// it has changed.
	BlockedRuns func(context.Context, entities.Project) (map[entities.RunID]int, error)
	// Versions returns the versions of the topics, apart from [Runs]. They may be older than the call, and not newer.
	Versions func(context.Context, entities.Project) (Versions, error)
	// Viewers limits the viewers of all projects; 0 means 500, and less than 0 that there are none.
	Viewers int
	// PollInterval is how often a follower reads without a hint; 0 means every 30 s.
	PollInterval time.Duration
	// TopicsInterval is how often it reads the versions of the topics; 0 means every 5 s.
	TopicsInterval time.Duration
}

// Followers are the followers of this process, by project. A project has one while it has viewers.
type Followers[R any] struct {
	options Options[R]

	mu      sync.Mutex
	open    map[entities.Project]*follower[R]
	viewers int
	owners  map[string]int
}

// New returns followers without viewers.
func New[R any](o Options[R]) *Followers[R] {
	o.Viewers, o.PollInterval = cmp.Or(o.Viewers, defaultViewers), cmp.Or(o.PollInterval, pollInterval)
	o.TopicsInterval = cmp.Or(o.TopicsInterval, topicsInterval)
	return &Followers[R]{options: o, open: map[entities.Project]*follower[R]{}, owners: map[string]int{}}
}

// ErrTooMany is returned if the process, or the owner of a viewer, has as many viewers as it may have; a [TooManyError]
// has the time to wait.
var ErrTooMany = errors.New("there are too many live views here: read again from time to time instead")

// TooManyError is an [ErrTooMany] with the time after which there may be room.
type TooManyError struct{ RetryAfter time.Duration }

func (e *TooManyError) Error() string { return ErrTooMany.Error() }

// Is reports whether the target is [ErrTooMany].
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// retryAfter is the Retry-After of a viewer beyond the limit.
const retryAfter = 15 * time.Second

// Join adds a viewer, which the caller must close. It fails with a [TooManyError], [entities.ErrInvalid] and
// [entities.ErrRunNotFound].
func (fs *Followers[R]) Join(ctx context.Context, project entities.Project, w Wants) (*Viewer[R], error) {
	if w.Runs != nil {
		if err := w.Runs.Validate(); err != nil {
			return nil, err
		}
	}
	if err := fs.enter(w.Owner); err != nil {
		return nil, err
	}
	begin, err := fs.placeFor(ctx, project, w)
	if err != nil {
		fs.exit(w.Owner)
		return nil, err
	}
	v := newViewer[R](w, begin)
	fs.addViewer(project, v)
	if err := fs.catchUp(ctx, project, v); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// placeFor returns where a viewer begins. It keeps the versions of topics that it knows, and is sent those that differ
// later.
func (fs *Followers[R]) placeFor(ctx context.Context, project entities.Project, w Wants) (Place, error) {
	p := Place{}
	if w.From != nil {
		p.Versions = w.From.Versions
	}
	var err error
	if w.Topics && p.Versions == nil {
		if p.Versions, err = fs.options.Versions(ctx, project); err != nil {
			return p, err
		}
	}
	p.Cursor, err = fs.options.Log.EndOfChanges(ctx, project)
	return p, err
}

func (fs *Followers[R]) enter(owner string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.viewers >= fs.options.Viewers || owner != "" && fs.owners[owner] >= viewersPerOwner {
		return &TooManyError{retryAfter}
	}
	fs.viewers++
	fs.owners[owner]++
	return nil
}

func (fs *Followers[R]) exit(owner string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.viewers--
	if fs.owners[owner]--; fs.owners[owner] == 0 {
		delete(fs.owners, owner)
	}
}

// addViewer adds the viewer to the project's follower. The first viewer starts it.
func (fs *Followers[R]) addViewer(project entities.Project, v *Viewer[R]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[project]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background()) //nolint:gosec // the last viewer calls stop
		f = &follower[R]{
			Options: fs.options, project: project, stop: stop, cursor: v.begin.Cursor, viewers: map[*Viewer[R]]struct{}{},
			sent: map[entities.RunID]int64{},
		}
		fs.open[project] = f
		go fs.follow(ctx, f)
	}
	f.mu.Lock()
	f.viewers[v] = struct{}{}
	f.mu.Unlock()
	v.leave = sync.OnceFunc(func() {
		fs.remove(f, v)
		fs.exit(v.wants.Owner)
	})
}

func (fs *Followers[R]) remove(f *follower[R], v *Viewer[R]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.viewers, v)
	if len(f.viewers) == 0 {
		f.stop()
		if fs.open[f.project] == f {
			delete(fs.open, f.project)
		}
	}
}

// follow runs a follower. If it fails, so do its viewers; those that join later have a new one.
func (fs *Followers[R]) follow(ctx context.Context, f *follower[R]) {
	err := rescue.Do(ctx, "live", func() error { return f.run(ctx) })
	fs.mu.Lock()
	if fs.open[f.project] == f {
		delete(fs.open, f.project)
	}
	fs.mu.Unlock()
	for _, v := range f.all() {
		v.fail(err)
	}
}

// catchUp sends a viewer that has joined what it has missed. The follower may send it the same.
func (fs *Followers[R]) catchUp(ctx context.Context, project entities.Project, v *Viewer[R]) error {
	changed, err := fs.missed(ctx, project, v)
	if err != nil {
		return err
	}
	l := found[R]{cursor: v.begin.Cursor, parts: map[entities.RunID]Part{}}
	if v.wants.Run != "" {
		changed[v.wants.Run] = true
	}
	if len(changed) == 0 {
		return nil
	}
	rows, err := fs.options.Rows(ctx, project, slices.Collect(maps.Keys(changed)))
	if err != nil {
		return err
	}
	found := v.wants.Run == ""
	for _, row := range rows {
		if row.Run.ID == v.wants.Run {
			found = true
			if row.Run.LastSeq > v.wants.After {
				l.parts[row.Run.ID] = Part{From: v.wants.After + 1, To: row.Run.LastSeq}
			}
		}
	}
	if !found {
		return fmt.Errorf("watch run %s: %w", v.wants.Run, entities.ErrRunNotFound)
	}
	l.rows = rows
	v.add(l)
	return nil
}

// missed returns the runs of the list that have changed since a viewer left, if they can be sent: then it has resumed.
func (fs *Followers[R]) missed(
	ctx context.Context, project entities.Project, v *Viewer[R],
) (map[entities.RunID]bool, error) {
	changed := map[entities.RunID]bool{}
	if v.wants.From == nil {
		return changed, nil
	}
	c, err := fs.options.Log.Changes(ctx, project, v.wants.From.Cursor)
	if errors.Is(err, read.ErrCursorLost) {
		return changed, nil
	}
	if err != nil {
		return nil, err
	}
	v.resumed = !c.More && !c.Blocked && (v.wants.From.Versions != nil || !v.wants.Topics)
	if v.resumed {
		v.addTopics(v.begin.Versions, len(c.List) > 0)
	}
	if !v.resumed || v.wants.Runs == nil {
		return changed, nil
	}
	for _, e := range c.List {
		changed[e.RunID] = true
	}
	blocked, err := fs.options.BlockedRuns(ctx, project) // no event says what has been blocked meanwhile
	for id := range blocked {
		changed[id] = true
	}
	return changed, err
}

// follower reads what happens in a project for all its viewers in this process.
type follower[R any] struct {
	Options[R]

	project entities.Project
	stop    func()

	// cursor is where the next read begins, sent the position up to which viewers know the late changes of a run,
	// blocked what the last slow poll found, and active whether something happened to runs since viewers were sent
	// topics. They belong to run.
	cursor  read.FeedCursor
	sent    map[entities.RunID]int64
	blocked map[entities.RunID]int
	active  bool

	mu      sync.Mutex
	viewers map[*Viewer[R]]struct{}
}

func (f *follower[R]) all() []*Viewer[R] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.viewers))
}

// run reads whenever there is a hint, until the context ends or a read fails.
func (f *follower[R]) run(ctx context.Context) error {
	hints, cancel := f.Log.SubscribeProject(f.project)
	defer cancel()
	poll := time.NewTicker(f.PollInterval)
	defer poll.Stop()
	topics := time.NewTicker(f.TopicsInterval)
	defer topics.Stop()
	blocked, err := f.BlockedRuns(ctx, f.project)
	if err != nil {
		return err
	}
	f.blocked = blocked
	for {
		c, err := f.read(ctx, nil)
		if err != nil {
			return err
		}
		if c.More {
			continue
		}
		pause := minPollInterval
		if c.Blocked {
			pause = blockedPause
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		if err := f.wait(ctx, hints, poll.C, topics.C); err != nil {
			return err
		}
	}
}

// wait returns when it is time to read what has happened. Meanwhile it sends viewers the topics that have changed.
func (f *follower[R]) wait(ctx context.Context, hints <-chan struct{}, poll, topics <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hints:
			return nil
		case <-poll:
			return f.readBlocked(ctx)
		case <-topics:
			if err := f.readVersions(ctx); err != nil {
				return err
			}
		}
	}
}

// readVersions sends viewers the topics whose versions have changed.
func (f *follower[R]) readVersions(ctx context.Context) error {
	viewers := slices.DeleteFunc(f.all(), func(v *Viewer[R]) bool { return !v.wants.Topics })
	if len(viewers) == 0 {
		return nil
	}
	now, err := f.Versions(ctx, f.project)
	if err != nil {
		return err
	}
	for _, v := range viewers {
		v.addTopics(now, f.active)
	}
	f.active = false
	return nil
}

// readBlocked sends the states of the runs of which something has changed without an event.
func (f *follower[R]) readBlocked(ctx context.Context) error {
	blocked, err := f.BlockedRuns(ctx, f.project)
	if err != nil {
		return err
	}
	var changed []entities.RunID
	for id, was := range f.blocked {
		if blocked[id] != was {
			changed = append(changed, id)
		}
	}
	for id := range blocked {
		if _, ok := f.blocked[id]; !ok {
			changed = append(changed, id)
		}
	}
	f.blocked = blocked
	if len(changed) > 0 {
		_, err = f.read(ctx, changed)
	}
	return err
}

// span is a part of a run's log that is new, with both ends.
type span struct{ from, to int64 }

// read reads what has happened since the last read and sends it to the viewers, with the states of the other runs. If
// there may be changes that it cannot read because of an open transaction, the viewers read anew what they show.
func (f *follower[R]) read(ctx context.Context, others []entities.RunID) (read.Changes, error) {
	c, err := f.Log.Changes(ctx, f.project, f.cursor)
	if err != nil {
		return c, err
	}
	fresh := f.fresh(c)
	f.cursor = c.To
	f.active = f.active || len(fresh) > 0 || len(others) > 0 || c.Blocked
	l := found[R]{cursor: c.To, reset: c.Blocked}
	ids, watched := f.wanted(fresh, others)
	if l.parts, err = f.parts(ctx, fresh, watched); err != nil {
		return c, err
	}
	if len(ids) > 0 { // after the logs, so that no state is older than its log
		if l.rows, err = f.Rows(ctx, f.project, ids); err != nil {
			return c, err
		}
	}
	for _, v := range f.all() {
		v.add(l)
	}
	return c, nil
}

// fresh returns which parts of logs viewers do not know yet, and remembers them if they will be read again.
func (f *follower[R]) fresh(c read.Changes) map[entities.RunID]span {
	parts, late := map[entities.RunID]span{}, map[entities.RunID]int64{}
	for _, e := range c.List {
		if e.Late {
			late[e.RunID] = max(late[e.RunID], e.Seq)
		}
		if e.Seq <= f.sent[e.RunID] {
			continue
		}
		p, ok := parts[e.RunID]
		if !ok {
			p = span{e.Seq, e.Seq}
		}
		parts[e.RunID] = span{min(p.from, e.Seq), max(p.to, e.Seq)}
	}
	f.sent = late
	return parts
}

// wanted returns the runs whose states some viewer wants, and those whose logs some viewer follows.
func (f *follower[R]) wanted(
	fresh map[entities.RunID]span, others []entities.RunID,
) (ids []entities.RunID, watched map[entities.RunID]bool) {
	lists := false
	watched = map[entities.RunID]bool{}
	for _, v := range f.all() {
		lists = lists || v.wants.Runs != nil
		watched[v.wants.Run] = true
	}
	ids = append(slices.Collect(maps.Keys(fresh)), others...)
	return slices.DeleteFunc(ids, func(id entities.RunID) bool { return !lists && !watched[id] }), watched
}

// parts reads the new events of the runs that somebody follows.
func (f *follower[R]) parts(
	ctx context.Context, fresh map[entities.RunID]span, watched map[entities.RunID]bool,
) (map[entities.RunID]Part, error) {
	parts := map[entities.RunID]Part{}
	for id, s := range fresh {
		if !watched[id] {
			continue
		}
		p := Part{From: s.from, To: s.to}
		if s.to-s.from < maxEvents {
			page, err := f.Log.RunEvents(ctx, f.project, id,
				read.EventQuery{After: s.from - 1}, pg.Page{Limit: maxEvents}, read.WithoutPayloads)
			if err != nil && !errors.Is(err, entities.ErrRunNotFound) {
				return nil, err
			}
			if n := len(page.Entries); n > 0 {
				p.Events, p.To = page.Entries, page.Entries[n-1].Seq
			}
		}
		parts[id] = p
	}
	return parts, nil
}
