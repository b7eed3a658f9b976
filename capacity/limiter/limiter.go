// Package limiter grants places of limits to what waits for them. Package capacity/limit says how that is exact.
//
// Whoever commits something that waits calls [Limiter.Look] afterwards, and whoever commits what frees places calls
// [Limiter.Freed]. Both commits precede both looks, so the later look sees both, and nothing waits that could go. If a
// process dies in between, or a look fails, [Limiter.LookAtAll] makes up for it: each process looks once a second if
// its heartbeat says that something waits, which costs an idle server no statement.
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
	// topic is the hub's topic for hints to processes that grant places.
	topic = "limits"
	// soon is how far a look may be planned ahead. Looks further off are those of the heartbeat.
	soon = time.Second
	// manyDecided is how many grants and refusals of one pass suggest that there is more to decide.
	manyDecided = 500
	// pause is how long a process grants nothing after a round of passes. Under load, the next pass then grants to more,
	// and costs about the same.
	pause = 2 * time.Millisecond
)

// Admit queues the statements that make begin what places are granted to. The function that it returns must be called
// when the transaction has ended.
type Admit func(b *pgx.Batch, project entities.Project, granted []limit.Granted) (ended func(error))

// Expire ends the waits of steps whose deadline has passed.
type Expire func(context.Context) error

// Limiter grants places, one pass of a project at a time: what is committed meanwhile is granted together by the next
// one. No project waits for the pass of another.
type Limiter struct {
	pool  *pgxpool.Pool
	hub   *pg.Hub
	admit Admit
	// expire is called with each look at all that waits.
	expire Expire

	running atomic.Int32 // how many loops run in this process
	news    chan struct{}

	mu   sync.Mutex
	todo work
	// passing has the projects of which a pass is under way, and whether there is more to do when it ends.
	passing map[entities.Project]bool
}

// work is what the next round has to do.
type work struct {
	// awaited has the places for which something waits, and freed those that may be free.
	awaited, freed marks
	// all is set if any place may be granted.
	all bool
}

// marks are places that may be granted, by project.
type marks map[entities.Project]map[limit.Place]bool

func (m marks) add(project entities.Project, places []limit.Place) {
	if len(places) > 0 && m[project] == nil {
		m[project] = map[limit.Place]bool{}
	}
	for _, p := range places {
		m[project][p] = true
	}
}

// of returns the places of a project.
func (m marks) of(project entities.Project) []limit.Place {
	return slices.Collect(maps.Keys(m[project]))
}

func newWork() work { return work{awaited: marks{}, freed: marks{}} }

// projects returns the projects in which places may be granted.
func (w work) projects() map[entities.Project]bool {
	list := map[entities.Project]bool{}
	for _, m := range []marks{w.awaited, w.freed} {
		for project := range m {
			list[project] = true
		}
	}
	return list
}

// New returns a limiter that grants nothing until it runs.
func New(pool *pgxpool.Pool, hub *pg.Hub, admit Admit, expire Expire) *Limiter {
	return &Limiter{
		pool: pool, hub: hub, admit: admit, expire: expire, news: make(chan struct{}, 1), todo: newWork(),
		passing: map[entities.Project]bool{},
	}
}

// Running reports whether this process grants places.
func (l *Limiter) Running() bool { return l.running.Load() > 0 }

// Look says that something waits for the uses.
func (l *Limiter) Look(project entities.Project, uses []entities.LimitUse) {
	l.note(func() { l.todo.awaited.add(project, placesOf(uses)) })
}

// Freed says that places of the uses may be free. The next round asks first whether something waits for them.
func (l *Limiter) Freed(project entities.Project, uses []entities.LimitUse) {
	l.note(func() { l.todo.freed.add(project, placesOf(uses)) })
}

func placesOf(uses []entities.LimitUse) []limit.Place {
	places := make([]limit.Place, len(uses))
	for i, u := range uses {
		places[i] = limit.Place{Name: u.Name, Key: u.Key}
	}
	return places
}

// note changes what the next round does. If this process grants nothing, it tells the others.
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

// LookEverywhere says that any place may be granted now, to all processes that grant places.
func (l *Limiter) LookEverywhere() { l.hub.Publish(topic) }

// LookAtAll says that any place may be granted now.
func (l *Limiter) LookAtAll() {
	l.plan(func() { l.todo.all = true })
}

func (l *Limiter) poke() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// Run grants places until the context ends.
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
			l.LookAtAll()
		case <-l.news:
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

// round begins a pass for each project in which places may be granted. A part that fails keeps no other from its turn,
// and is repeated by the next round.
func (l *Limiter) round(ctx context.Context, passes *sync.WaitGroup, failed func(error)) {
	todo := l.take()
	if todo.all {
		if err := errors.Join(l.expire(ctx), l.addWaiting(ctx, todo.awaited)); err != nil {
			failed(err)
		}
	}
	for project := range todo.projects() {
		awaited, freed := todo.awaited.of(project), todo.freed.of(project)
		if !l.begin(project, awaited, freed) {
			continue
		}
		passes.Go(func() {
			defer l.end(project)
			err := rescue.Do(ctx, "limits", func() error {
				return l.visit(share.For(ctx, string(project)), project, awaited, freed)
			})
			if err != nil {
				failed(err)
			}
			rest(ctx)
		})
	}
}

// begin reports whether a pass of the project may begin. While another one is under way, the places are kept for the
// next one.
func (l *Limiter) begin(project entities.Project, awaited, freed []limit.Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.passing[project]; ok {
		l.todo.awaited.add(project, awaited)
		l.todo.freed.add(project, freed)
		l.passing[project] = true
		return false
	}
	l.passing[project] = false
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

// visit makes a pass for a project. Whether something waits for the freed places is asked first: usually nothing does.
func (l *Limiter) visit(ctx context.Context, project entities.Project, awaited, freed []limit.Place) error {
	places := marks{}
	places.add(project, awaited)
	var err error
	if len(freed) > 0 {
		var found map[entities.Project][]limit.Place
		found, err = limit.AwaitedOf(ctx, l.pool, map[entities.Project][]limit.Place{project: freed})
		if err != nil {
			l.keep(func() { l.todo.freed.add(project, freed) })
		}
		places.add(project, found[project])
	}
	if len(places) == 0 {
		return err
	}
	return errors.Join(err, l.pass(ctx, project, places.of(project)))
}

// addWaiting adds the places that something waits for.
func (l *Limiter) addWaiting(ctx context.Context, to marks) error {
	waiting, err := limit.AllWaiting(ctx, l.pool)
	if err != nil {
		l.keep(func() { l.todo.all = true })
	}
	for project, places := range waiting {
		to.add(project, places)
	}
	return err
}

func (l *Limiter) take() work {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := l.todo
	l.todo = newWork()
	return todo
}

func (l *Limiter) pass(ctx context.Context, project entities.Project, places []limit.Place) error {
	passed, err := limit.Pass(ctx, l.pool, project, places, func(b *pgx.Batch, granted []limit.Granted) func(error) {
		return l.admit(b, project, granted)
	})
	again := func() { l.todo.awaited.add(project, places) }
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
