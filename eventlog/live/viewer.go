package live

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

const (
	// maxKept is the most runs whose state is kept for a viewer that has not taken it yet.
	maxKept = 200
	// maxEvents is the most events of a run that a viewer is sent at once.
	maxEvents = 100
)

// Wants is what a viewer wants to be sent.
type Wants struct {
	// Owner identifies whose viewers are counted together; empty for nobody's.
	Owner string
	// Run is a run of which the viewer knows the events up to After; empty for none.
	Run   entities.RunID
	After int64
	// Runs selects runs whose last state the viewer is sent; nil for none.
	Runs *store.RunFilter
	// Topics asks for the topics of what has changed, apart from the runs that are sent.
	Topics bool
	// From is the place up to which the viewer has been sent everything; nil if it reads anew.
	From *Place
}

// Row is a run in the form R that viewers are sent.
type Row[R any] struct {
	Run   entities.Run
	Shown R
}

// Gone is a run that may have matched a viewer's filter and does not any more.
type Gone struct {
	ID      entities.RunID
	LastSeq int64
}

// Part is a part of a run's log, with both ends. Events are its events without payloads, or nil if they are too many:
// the viewer reads those that it shows.
type Part struct {
	From, To int64
	Events   []read.Entry
}

// Update is what a viewer is sent at once.
type Update[R any] struct {
	// Place is where a viewer continues that was sent this.
	Place
	// Reset is set if too much has happened to send: the viewer reads anew what it shows.
	Reset bool
	// Runs are the last states of runs that match the filter.
	Runs []Row[R]
	Gone []Gone
	// Log is what is new in the log of the run, and Run its last state; nil if there is nothing new.
	Log *Part
	Run *Row[R]
	// Topics are those of what has changed.
	Topics []string
}

// Viewer takes what it is sent by [Viewer.Next]. What it has not taken yet takes bounded memory: a newer state replaces
// an older one.
type Viewer[R any] struct {
	wants   Wants
	resumed bool
	begin   Place
	leave   func()
	ready   chan struct{} // holds one item while there is something to take

	mu sync.Mutex
	// update is what the viewer is sent next, except for the lists of runs, which are changed.
	update  Update[R]
	changed map[entities.RunID]Row[R]
	err     error
}

func newViewer[R any](w Wants, begin Place) *Viewer[R] {
	v := &Viewer[R]{wants: w, begin: begin, ready: make(chan struct{}, 1), changed: map[entities.RunID]Row[R]{}}
	v.update.Place = begin
	return v
}

// Begin returns where a viewer continues that has been sent nothing yet.
func (v *Viewer[R]) Begin() Place {
	if v.resumed {
		return *v.wants.From
	}
	return v.begin
}

// Resumed reports whether the viewer is sent all that happened since the cursor it wanted to continue at. If not, it
// reads anew what it shows.
func (v *Viewer[R]) Resumed() bool { return v.resumed }

// Close makes the viewer leave.
func (v *Viewer[R]) Close() { v.leave() }

// Next waits until there is something to send, and returns it. If the deadline ends first, ok is false and the update
// has only the cursor, before which everything has been sent. It fails with the error of ctx, and if the database
// cannot be read.
func (v *Viewer[R]) Next(ctx, deadline context.Context) (n Update[R], ok bool, err error) {
	select {
	case <-ctx.Done():
		return n, false, ctx.Err()
	case <-deadline.Done():
	case <-v.ready:
	}
	if ctx.Err() != nil {
		return n, false, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	n, ok = v.take()
	return n, ok && v.err == nil, v.err
}

// take returns what the viewer has not been sent, and reports whether that is anything. The caller holds the lock.
func (v *Viewer[R]) take() (n Update[R], ok bool) {
	ok = v.hasUpdate()
	n = v.update
	for id, row := range v.changed {
		if v.wants.Runs.Matches(row.Run) {
			n.Runs = append(n.Runs, row)
		} else {
			n.Gone = append(n.Gone, Gone{id, row.Run.LastSeq})
		}
	}
	v.update = Update[R]{Place: n.Place}
	clear(v.changed)
	select {
	case <-v.ready:
	default:
	}
	return n, ok
}

// found is what a follower has found in one read.
type found[R any] struct {
	cursor read.FeedCursor
	// reset says that it may lack changes.
	reset bool
	rows  []Row[R]
	parts map[entities.RunID]Part
}

// add adds what a follower has found.
func (v *Viewer[R]) add(l found[R]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.cursor.Compare(v.update.Cursor) > 0 {
		v.update.Cursor = l.cursor
	}
	if l.reset {
		v.reset()
	}
	for _, row := range l.rows {
		v.addRow(row)
	}
	if p, ok := l.parts[v.wants.Run]; ok {
		v.addPart(p)
	}
	v.wake()
}

// wake marks the viewer as ready if there is something to take. The caller holds the lock.
func (v *Viewer[R]) wake() {
	if !v.hasUpdate() && v.err == nil {
		return
	}
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

func (v *Viewer[R]) hasUpdate() bool {
	return len(v.changed) > 0 || v.update.Run != nil || v.update.Log != nil || len(v.update.Topics) > 0 || v.update.Reset
}

// addTopics adds the topics of which the viewer knows other versions, and that of runs if something happened to them.
func (v *Viewer[R]) addTopics(now Versions, runs bool) {
	if !v.wants.Topics {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	topics := now.Changed(v.update.Versions)
	if runs {
		topics = append(topics, Runs)
	}
	v.update.Topics = slices.Compact(slices.Sorted(slices.Values(append(topics, v.update.Topics...))))
	v.update.Versions = now
	v.wake()
}

func (v *Viewer[R]) addRow(row Row[R]) {
	if row.Run.ID == v.wants.Run && (v.update.Run == nil || v.update.Run.Run.LastSeq <= row.Run.LastSeq) {
		v.update.Run = &row
	}
	if v.wants.Runs == nil || v.update.Reset || !v.wants.Runs.MayMatch(row.Run) {
		return
	}
	if old, ok := v.changed[row.Run.ID]; ok && old.Run.LastSeq > row.Run.LastSeq {
		return
	}
	v.changed[row.Run.ID] = row
	if len(v.changed) > maxKept {
		v.reset()
	}
}

// reset drops the states that are kept: the viewer will read anew.
func (v *Viewer[R]) reset() {
	v.update.Reset = true
	clear(v.changed)
}

// addPart adds a part of the log to the one that is kept.
func (v *Viewer[R]) addPart(p Part) {
	old := v.update.Log
	if old == nil {
		v.update.Log = &p
		return
	}
	joined := Part{From: min(old.From, p.From), To: max(old.To, p.To)}
	if joined.To-joined.From < maxEvents {
		joined.Events = join(old.Events, p.Events)
		if int64(len(joined.Events)) != joined.To-joined.From+1 { // one of them is not known
			joined.Events = nil
		}
	}
	v.update.Log = &joined
}

// join returns the events of two parts, which may overlap.
func join(a, b []read.Entry) []read.Entry {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b read.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(all, func(a, b read.Entry) bool { return a.Seq == b.Seq })
}

// fail ends the viewer.
func (v *Viewer[R]) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
	v.wake()
}
