package read

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// pollSpacing is the least time between two polls without a notification, of all readers of a project together.
	// Each of n readers of different lists polls at most every n times as long.
	pollSpacing = 10 * time.Millisecond
	// perReader is how much longer each reader makes the pause between two reads of its list, so that the more readers
	// there are to send to, the more items they are sent at once.
	perReader = 300 * time.Microsecond
	// leastPause is the shortest pause; shorter ones are left out.
	leastPause = 5 * time.Millisecond
	// keptBytes is how much a tail keeps for its readers, so that those who are slow need not read again. It keeps at
	// least the items that it read last.
	keptBytes = 128 << 10
)

// live is what all readers share that wait for new items in one process. The readers of logs have one, those of streams
// another.
type live struct {
	// connections is how many of the database's connections they may use together, a quarter, so that they never keep an
	// append waiting. A project that is alone leaves one of them to others.
	connections *share.Pool
	factor      int64 // of connections

	mu      sync.Mutex
	waiting map[entities.Project]int // tails, and readers that wait for the end of a run
}

func newLive(pool *pgxpool.Pool) *live {
	connections := max(2, int64(pool.Config().MaxConns)/4)
	return &live{
		connections: share.NewPool(connections), factor: connections - 1, waiting: map[entities.Project]int{},
	}
}

// withConnection calls read when the project may use a connection, and returns its results or the error of the context.
func withConnection[T any](
	ctx context.Context, l *live, project entities.Project, read func() (T, error),
) (result T, err error) {
	if err := l.connections.Take(ctx, string(project), 1, l.factor); err != nil {
		return result, err
	}
	defer l.connections.Release(string(project), 1)
	return read()
}

// enter counts a tail or a reader of the project until leave is called.
func (l *live) enter(project entities.Project) (leave func()) {
	l.add(project, 1)
	return func() { l.add(project, -1) }
}

func (l *live) add(project entities.Project, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[project] += n; l.waiting[project] == 0 {
		delete(l.waiting, project)
	}
}

func (l *live) count(project entities.Project) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[project]
}

// poll returns how often a reader reads without a notification: as often as asked, or more rarely if there are many.
func (l *live) poll(project entities.Project, interval time.Duration) time.Duration {
	return max(interval, time.Duration(l.count(project))*pollSpacing)
}

// part is a part of a growing list: all items from after one position up to another.
type part[P, T any] struct {
	items    []T
	from, to P
	// more is set if further items can be read at once; ended if no more will come; blocked if there are some that
	// cannot be read yet, which will not be notified.
	more, ended, blocked bool
}

// source is a growing list in the database.
type source[P, T any] struct {
	project entities.Project
	topic   string // of notifications
	// read reads the items after a position, at most a page.
	read    func(ctx context.Context, after P) (part[P, T], error)
	compare func(a, b P) int
	at      func(T) P   // the position of an item
	size    func(T) int // in bytes
	// pollEvery is how often it is read without a notification.
	pollEvery time.Duration
	// pause is the least time between two reads, and perList how much longer it is for each other list of the project
	// that is followed.
	pause, perList time.Duration
}

// tail is the end of a growing list, which the readers of this process who wait there share: one of them reads the
// database for all. Readers further back read on their own. A tail keeps little: the newest items.
type tail[P, T any] struct {
	source[P, T]

	live          *live
	leave         func()
	notifications <-chan struct{}
	unsubscribe   func()
	readers       atomic.Int64

	// lead holds an item while a reader has the lead: it waits for notifications and reads. The fields below belong to
	// the leader.
	lead    chan struct{}
	due     bool             // there may be items that no notification announces
	blocked time.Duration    // how long to wait for blocked items; 0 if there are none
	paused  <-chan time.Time // receives an item when the next read is allowed; nil if it is
	// nextPoll receives an item when it is time to read the list without a notification. It outlives a change of leader.
	nextPoll <-chan time.Time

	mu      sync.Mutex
	last    part[P, T]    // the newest items
	changed chan struct{} // closed when last has changed
}

// tails are the open tails, by what they are the end of.
type tails[K comparable, P, T any] struct {
	mu   sync.Mutex
	open map[K]*tail[P, T]
}

// join returns a reader that starts at a position. If the list has no tail yet, it begins at the position end.
func (ts *tails[K, P, T]) join(l *live, hub *pg.Hub, key K, s source[P, T], start, end P) *tailReader[P, T] {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.open[key]
	if t == nil {
		t = &tail[P, T]{
			source: s, live: l, leave: l.enter(s.project), lead: make(chan struct{}, 1), due: true,
			last: part[P, T]{from: end, to: end}, changed: make(chan struct{}),
		}
		t.notifications, t.unsubscribe = hub.Subscribe(s.topic)
		if ts.open == nil {
			ts.open = map[K]*tail[P, T]{}
		}
		ts.open[key] = t
	}
	t.readers.Add(1)
	return &tailReader[P, T]{tail: t, at: start, quit: sync.OnceFunc(func() { ts.quit(key, t) })}
}

func (ts *tails[K, P, T]) quit(key K, t *tail[P, T]) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.readers.Add(-1) == 0 {
		delete(ts.open, key)
		t.unsubscribe()
		t.leave()
	}
}

// tailReader reads a list from a position on, and waits at its end. It is not safe for concurrent use.
type tailReader[P, T any] struct {
	tail  *tail[P, T]
	at    P // all items up to there were read
	ended bool
	quit  func()
}

// next waits for items and returns them. It returns none if the deadline ends first, or if no more will come. If the
// deadline has ended already, it reads once. It fails with the error of ctx, and those of reading.
func (r *tailReader[P, T]) next(ctx, deadline context.Context) ([]T, error) {
	once, stuck := deadline.Err() != nil, false
	for {
		items, changed, behind := r.take()
		if r.answers(items) {
			return items, nil
		}
		if behind {
			items, err := r.readBehind(ctx)
			if err != nil || once || r.answers(items) {
				return items, err
			}
			if stuck && waitForNotification(deadline, changed, r.tail.pollEvery) != nil {
				return nil, ctx.Err()
			}
			stuck = true // unless the reader is at the tail now, the list has become shorter
			continue
		}
		limit := deadline
		if once {
			limit = ctx
		}
		if !r.awaitLead(ctx, limit, changed) {
			if ctx.Err() != nil || limit.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		err := r.tail.update(ctx, deadline, once)
		<-r.tail.lead
		if err != nil {
			return nil, err
		}
		if deadline.Err() != nil {
			items, _, _ = r.take()
			return items, ctx.Err()
		}
	}
}

// answers reports whether the items need not be waited for any more: there are some, or no more will come.
func (r *tailReader[P, T]) answers(items []T) bool { return len(items) > 0 || r.ended }

// awaitLead waits until the reader has the lead, and returns true, or until the tail has changed or a context ends.
func (r *tailReader[P, T]) awaitLead(ctx, limit context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-limit.Done():
	case <-changed:
	case r.tail.lead <- struct{}{}:
		return true
	}
	return false
}

// take returns the items after the reader's position that the tail has, and a channel that is closed when it has
// others. Behind is set if the tail has only later ones.
func (r *tailReader[P, T]) take() (items []T, changed <-chan struct{}, behind bool) {
	t := r.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	last, changed := t.last, t.changed
	if t.compare(r.at, last.from) < 0 {
		return nil, changed, true
	}
	for i, item := range last.items {
		if t.compare(t.at(item), r.at) > 0 {
			items = last.items[i:]
			break
		}
	}
	if t.compare(last.to, r.at) > 0 {
		r.at = last.to
	}
	r.ended = last.ended && len(items) == 0
	if t.readers.Load() == 1 {
		t.last.from, t.last.items = last.to, nil // nobody else needs them
	}
	return items, changed, false
}

// readBehind reads the items after the reader's position, which is before the tail.
func (r *tailReader[P, T]) readBehind(ctx context.Context) ([]T, error) {
	p, err := r.tail.fetch(ctx, r.at)
	if err != nil {
		return nil, err
	}
	if r.tail.compare(p.to, r.at) > 0 {
		r.at = p.to
	}
	r.ended = p.ended
	return p.items, nil
}

// fetch reads items with one of the connections that readers may use.
func (t *tail[P, T]) fetch(ctx context.Context, after P) (part[P, T], error) {
	return withConnection(ctx, t.live, t.project, func() (part[P, T], error) { return t.read(ctx, after) })
}

// update reads the next items for all readers, once there may be some. It returns without when the deadline ends
// before, unless it is to read at once. The caller has the lead.
func (t *tail[P, T]) update(ctx, deadline context.Context, atOnce bool) error {
	quiet := false
	if !t.due && !atOnce {
		if t.nextPoll == nil {
			t.nextPoll = time.After(cmp.Or(t.blocked, t.live.poll(t.project, t.pollEvery)))
		}
		select {
		case <-deadline.Done():
			return ctx.Err()
		case <-t.notifications:
		case <-t.nextPoll:
			quiet = true
		}
		t.due, t.nextPoll = true, nil
	}
	if t.paused != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.paused:
			t.paused = nil
		}
	}
	p, err := t.fetch(ctx, t.last.to) // only the leader changes it
	if err != nil {
		return err
	}
	if t.due = p.more; !p.more {
		t.paused = t.nextPause()
	}
	t.setBlocked(p)
	t.publish(p, quiet)
	return nil
}

// nextPause returns a channel that receives an item when the next read is allowed; nil if it is allowed at once.
func (t *tail[P, T]) nextPause() <-chan time.Time {
	pause := t.pause + time.Duration(t.readers.Load()-1)*perReader +
		time.Duration(t.live.count(t.project)-1)*t.perList
	if pause < leastPause {
		return nil
	}
	return time.After(pause)
}

// setBlocked sets how long to wait for blocked items. The time doubles while none come.
func (t *tail[P, T]) setBlocked(p part[P, T]) {
	switch {
	case !p.blocked:
		t.blocked = 0
	case t.blocked == 0 || len(p.items) > 0:
		t.blocked = 2 * followPause
	default:
		t.blocked = min(2*t.blocked, t.pollEvery)
	}
}

// publish adds the items that follow the newest ones. Readers are woken only if there is something for them. If it is
// quiet, they all have the old items by now.
func (t *tail[P, T]) publish(p part[P, T], quiet bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.last
	p.from = old.to
	if t.compare(old.to, p.to) > 0 {
		p.to = old.to
	}
	switch {
	case quiet:
	case t.bytes(old.items)+t.bytes(p.items) <= keptBytes:
		p.from, p.items = old.from, append(old.items[:len(old.items):len(old.items)], p.items...)
	}
	t.last = p
	if len(p.items) > 0 || p.ended {
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

func (t *tail[P, T]) bytes(items []T) (n int) {
	for _, item := range items {
		n += t.size(item)
	}
	return n
}
