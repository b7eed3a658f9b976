// Package limiter grants slots of limits to what waits for them. Package capacity/limit says how that is exact.
//
// [Limiter.Awaited] follows each commit of something that waits, and [Limiter.Freed] each commit that frees slots. Both
// commits precede both passes, so the later pass sees both, and nothing waits that could go. If a process dies in
// between, or a pass fails, [Limiter.CheckAll] makes up for it: each process calls it once a second if its heartbeat
// says that something waits, which costs an idle server no statement. It reads what waits in pages, project by project,
// so that thousands of keys of one project keep no other from its slots.
package limiter

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// topic is the hub's topic for hints to processes that grant slots.
	topic = "limits"
	// soon is how far a pass may be planned ahead. What is further off is found after a heartbeat.
	soon = time.Second
	// manyDecided is how many grants and refusals of one pass suggest that there is more to decide.
	manyDecided = 500
	// keysPerScan is how many keys that wait a pass of a project reads at once, and scanPause how long it is until the
	// next ones are read: 10,000 keys take two seconds.
	keysPerScan = 1000
	scanPause   = 200 * time.Millisecond
	// pause is how long a process grants nothing after a round of passes. Under load, the next pass then grants to more,
	// and costs about the same.
	pause = 2 * time.Millisecond
)

// Admit queues the statements that make begin what slots are granted to. The function that it returns must be called
// when the transaction has ended.
type Admit func(b *pgx.Batch, project entities.Project, granted []limit.Granted) (ended func(error))

// Expire ends the waits of steps whose deadline has passed.
type Expire func(context.Context) error

// Limiter grants slots, one pass of a project at a time: what is committed meanwhile is granted together by the next
// one. No project waits for the pass of another.
type Limiter struct {
	pool  *pgxpool.Pool
	hub   *pg.Hub
	admit Admit
	// expire is called before all that waits is read.
	expire Expire

	running atomic.Int32 // how many loops run in this process
	wake    chan struct{}

	mu   sync.Mutex
	todo work
	// passing has the projects of which a pass is under way, and whether there is more to do when it ends.
	passing map[entities.Project]bool
	// scanning has the projects of which all that waits is read.
	scanning map[entities.Project]*scan
}

// scan is a read of all that waits in a project.
type scan struct {
	after limit.Bucket // the next page begins
	again bool         // another scan follows: slots before that page may be free
}

// work is what the next round has to do.
type work struct {
	// awaited has the slots for which something waits, and freed those that may be free.
	awaited, freed marks
	// scans has the projects of which a page of what waits is read.
	scans map[entities.Project]bool
	// all is set if any slot may be granted.
	all bool
}

// part is what the next round has to do in one project.
type part struct {
	project        entities.Project
	awaited, freed []limit.Bucket
	scan           bool
}

// marks are slots that may be granted, by project.
type marks map[entities.Project]map[limit.Bucket]bool

func (m marks) add(project entities.Project, buckets []limit.Bucket) {
	if len(buckets) > 0 && m[project] == nil {
		m[project] = map[limit.Bucket]bool{}
	}
	for _, p := range buckets {
		m[project][p] = true
	}
}

// of returns the slots of a project.
func (m marks) of(project entities.Project) []limit.Bucket {
	return slices.Collect(maps.Keys(m[project]))
}

func newWork() work {
	return work{awaited: marks{}, freed: marks{}, scans: map[entities.Project]bool{}}
}

// parts divides the work by project.
func (w work) parts() []part {
	projects := maps.Clone(w.scans)
	for _, m := range []marks{w.awaited, w.freed} {
		for project := range m {
			projects[project] = true
		}
	}
	var list []part
	for project := range projects {
		list = append(list, part{project, w.awaited.of(project), w.freed.of(project), w.scans[project]})
	}
	return list
}

// add adds the part.
func (w work) add(p part) {
	w.awaited.add(p.project, p.awaited)
	w.freed.add(p.project, p.freed)
	if p.scan {
		w.scans[p.project] = true
	}
}

// New returns a limiter that grants nothing until it runs.
func New(pool *pgxpool.Pool, hub *pg.Hub, admit Admit, expire Expire) *Limiter {
	return &Limiter{
		pool: pool, hub: hub, admit: admit, expire: expire, wake: make(chan struct{}, 1), todo: newWork(),
		passing: map[entities.Project]bool{}, scanning: map[entities.Project]*scan{},
	}
}

// Running reports whether this process grants slots.
func (l *Limiter) Running() bool { return l.running.Load() > 0 }

// Awaited says that something waits for the uses.
func (l *Limiter) Awaited(project entities.Project, uses []entities.LimitUse) {
	l.note(func() { l.todo.awaited.add(project, bucketsOf(uses)) })
}

// Freed says that slots of the uses may be free. The next round asks first whether something waits for them.
func (l *Limiter) Freed(project entities.Project, uses []entities.LimitUse) {
	l.note(func() { l.todo.freed.add(project, bucketsOf(uses)) })
}

func bucketsOf(uses []entities.LimitUse) []limit.Bucket {
	buckets := make([]limit.Bucket, len(uses))
	for i, u := range uses {
		buckets[i] = limit.Bucket{Name: u.Name, Key: u.Key}
	}
	return buckets
}

// note changes what the next round does. If this process grants nothing, it notifies the others.
func (l *Limiter) note(change func()) {
	if !l.Running() {
		l.hub.Publish(topic)
		return
	}
	l.plan(change)
}

// plan changes what the next round does, and has it begin.
func (l *Limiter) plan(change func()) {
	l.keep(change)
	l.poke()
}

// keep changes what the next round does.
func (l *Limiter) keep(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// CheckEverywhere says that any slot may be granted now, to all processes that grant slots.
func (l *Limiter) CheckEverywhere() { l.hub.Publish(topic) }

// CheckAll says that any slot may be granted now.
func (l *Limiter) CheckAll() {
	l.plan(func() { l.todo.all = true })
}

func (l *Limiter) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run grants slots until the context ends.
func (l *Limiter) Run(ctx context.Context, logger *slog.Logger) {
	l.running.Add(1)
	defer l.running.Add(-1)
	hints, cancel := l.hub.Subscribe(topic)
	defer cancel()
	var passes sync.WaitGroup
	defer passes.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hints:
			l.CheckAll()
		case <-l.wake:
			l.round(context.WithoutCancel(ctx), &passes, func(err error) {
				logger.ErrorContext(ctx, "grant permits", "error", err)
			})
			rest(ctx)
		}
	}
}

// rest waits until the next round may begin.
func rest(ctx context.Context) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// round begins a pass for each project in which slots may be granted. A part that fails keeps no other from its
// pass, and is repeated by the next round.
func (l *Limiter) round(ctx context.Context, passes *sync.WaitGroup, failed func(error)) {
	todo := l.take()
	if todo.all {
		if err := errors.Join(l.expire(ctx), l.scanAll(ctx, todo)); err != nil {
			failed(err)
		}
	}
	for _, p := range todo.parts() {
		if !l.begin(p) {
			continue
		}
		passes.Go(func() {
			defer l.end(p.project)
			err := rescue.Do(ctx, "limits", func() error {
				return l.visit(share.For(ctx, string(p.project)), p)
			})
			if err != nil {
				failed(err)
			}
			rest(ctx)
		})
	}
}

// begin reports whether a pass of the project may begin. While another one is under way, the part is kept for the next
// one.
func (l *Limiter) begin(p part) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.passing[p.project]; ok {
		l.todo.add(p)
		l.passing[p.project] = true
		return false
	}
	l.passing[p.project] = false
	return true
}

// end ends a pass of the project.
func (l *Limiter) end(project entities.Project) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.passing[project] {
		l.poke()
	}
	delete(l.passing, project)
}

// visit makes a pass for a project. Whether something waits for the freed slots is asked first: usually nothing does.
func (l *Limiter) visit(ctx context.Context, p part) error {
	buckets := marks{}
	buckets.add(p.project, p.awaited)
	var failed error
	if p.scan {
		var found []limit.Bucket
		found, failed = l.page(ctx, p.project)
		buckets.add(p.project, found)
	}
	if len(p.freed) > 0 {
		found, err := limit.AwaitedOf(ctx, l.pool, p.project, p.freed)
		if err != nil {
			l.keep(func() { l.todo.freed.add(p.project, p.freed) })
			failed = errors.Join(failed, err)
		}
		buckets.add(p.project, found)
	}
	if len(buckets) == 0 {
		return failed
	}
	return errors.Join(failed, l.pass(ctx, p.project, buckets.of(p.project)))
}

// scanAll adds the projects in which something waits. If a scan of one is under way, another one follows.
func (l *Limiter) scanAll(ctx context.Context, to work) error {
	projects, err := limit.AwaitingProjects(ctx, l.pool)
	if err != nil {
		l.keep(func() { l.todo.all = true })
	}
	l.keep(func() {
		for _, project := range projects {
			if s, ok := l.scanning[project]; ok {
				s.again = true
				continue
			}
			l.scanning[project] = &scan{}
			to.scans[project] = true
		}
	})
	return err
}

// page reads the next page of what waits in a project, and plans the one after it. After an error the next scan begins
// anew.
func (l *Limiter) page(ctx context.Context, project entities.Project) (page []limit.Bucket, err error) {
	var after limit.Bucket
	l.keep(func() { after = l.scanning[project].after })
	page, err = limit.AwaitedPage(ctx, l.pool, project, after, keysPerScan)
	l.keep(func() {
		switch s := l.scanning[project]; {
		case err == nil && len(page) == keysPerScan:
			s.after = page[len(page)-1]
			time.AfterFunc(scanPause, func() { l.plan(func() { l.todo.scans[project] = true }) })
		case err == nil && s.again:
			*s = scan{}
			l.todo.scans[project] = true
			l.poke()
		default:
			delete(l.scanning, project)
		}
	})
	return page, err
}

func (l *Limiter) take() work {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := l.todo
	l.todo = newWork()
	return todo
}

func (l *Limiter) pass(ctx context.Context, project entities.Project, buckets []limit.Bucket) error {
	passed, err := limit.Pass(ctx, l.pool, project, buckets, func(b *pgx.Batch, granted []limit.Granted) func(error) {
		return l.admit(b, project, granted)
	})
	again := func() { l.todo.awaited.add(project, buckets) }
	if err != nil {
		l.keep(again) // without a round at once, which would fail as well
		return err
	}
	if passed.Granted+passed.Refused >= manyDecided {
		l.plan(again)
	}
	if passed.Next > 0 && passed.Next < soon {
		time.AfterFunc(passed.Next, func() { l.plan(again) })
	}
	return nil
}
