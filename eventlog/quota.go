package eventlog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// quotaTTL is how long a process relies on what it has read about a project's limits and their use. Meanwhile it counts
// its own starts, so only those of other processes may exceed the limit.
const quotaTTL = 4 * time.Second

// quotas refuses new runs of projects that have reached a limit (see [admin.Limits]). No transaction writes a counter
// for that, and a project without limits costs one small read per [quotaTTL].
type quotas struct {
	pool *pgxpool.Pool

	mu       sync.Mutex
	projects map[entities.Project]*quota // as many as there are projects
	trees    *lru.Cache[entities.RunID, *tree]
}

func newQuotas(pool *pgxpool.Pool) *quotas {
	q := &quotas{pool: pool, projects: map[entities.Project]*quota{}}
	q.trees, _ = lru.New[entities.RunID, *tree](knownTrees) // fails only for a size below 1
	return q
}

// quota is what this process knows about one project.
type quota struct {
	reading chan struct{} // holds an item while a goroutine reads

	mu     sync.Mutex
	read   admin.ListedProject
	readAt time.Time
	// started counts the runs that this process has started since the last read, and starting the appends in progress
	// that create one. A run may be counted both here and by the read, but never by neither.
	started, starting int64
}

// fresh reports whether what was read is recent enough, and of the same day.
func (q *quota) fresh(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return now.Sub(q.readAt).Abs() < quotaTTL && admin.Day(now).Equal(admin.Day(q.readAt))
}

// refresh reads the project unless that was done lately. Only one goroutine reads at a time.
func (q *quota) refresh(ctx context.Context, pool *pgxpool.Pool, name entities.Project, now time.Time) error {
	if q.fresh(now) {
		return nil
	}
	select {
	case q.reading <- struct{}{}:
		defer func() { <-q.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if q.fresh(now) {
		return nil
	}
	q.mu.Lock()
	counted := q.started // their commits precede the read
	q.mu.Unlock()
	read, err := admin.ProjectByName(ctx, pg.NewPool(pool), name, now)
	if err != nil && !errors.Is(err, admin.ErrProjectNotFound) {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read, q.readAt = read, now
	q.started -= counted
	return nil
}

// newStart is a call that may start runs. Its methods do nothing on nil, which stands for any other call.
type newStart struct {
	project entities.Project
	quota   *quota
	now     time.Time
	// admitted is how many runs the call may create.
	admitted int64
	// below is set if the runs that the call creates are below a root.
	below *below
	// holders are the live runs that have the keys of those that the call creates for its run.
	holders map[store.UniqueKey]entities.RunID
}

// newStart returns the start that a call may be, or nil. The caller must call end.
func (q *quotas) newStart(ctx context.Context, c call) (*newStart, error) {
	starts := func(r Request) bool { return r.startsRun() || r.Child != nil || r.Continue != nil }
	if !slices.ContainsFunc(c.requests, starts) {
		return nil, nil
	}
	project, err := q.of(ctx, c.project, c.now)
	return &newStart{project: c.project, quota: project, now: c.now}, err
}

// of returns what is known about a project, read lately.
func (q *quotas) of(ctx context.Context, name entities.Project, now time.Time) (*quota, error) {
	q.mu.Lock()
	project, ok := q.projects[name]
	if !ok {
		project = &quota{reading: make(chan struct{}, 1)}
		q.projects[name] = project
	}
	q.mu.Unlock()
	return project, project.refresh(ctx, q.pool, name, now)
}

// CheckMessage refuses a message about a run that does not exist and may not be created, with a *[admin.QuotaError]. A
// client that starts a run sends its run_created and its first message at the same time, and takes the run for started
// if only one of them is accepted.
func (l *Log) CheckMessage(ctx context.Context, project entities.Project, id entities.RunID) error {
	now := l.Now()
	q, err := l.quotas.of(ctx, project, now)
	if err != nil {
		return err
	}
	q.mu.Lock()
	refusal, unknown := q.check(now), q.starting > 0 // the run may be one of those
	q.mu.Unlock()
	if refusal == nil || unknown {
		return nil
	}
	_, err = store.RunByID(ctx, pg.NewPool(l.pool), project, id)
	if errors.Is(err, entities.ErrRunNotFound) {
		return refusal
	}
	return err
}

// CheckStart fails with a *[admin.QuotaError] if the project may not start a run with the data now. It does not look at
// the other runs of its tree.
func (l *Log) CheckStart(ctx context.Context, project entities.Project, data entities.EventData) error {
	now := l.Now()
	q, err := l.quotas.of(ctx, project, now)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return cmp.Or(q.check(now), q.read.CheckTree(project, data.RootID, data.Depth, 0))
}

// check returns why the project may not start a run, or nil. The caller holds the mutex.
func (q *quota) check(now time.Time) error { return q.read.CheckStart(q.today(), now) }

// checkChild is check for a run that another one starts. The caller holds the mutex.
func (q *quota) checkChild(now time.Time) error { return q.read.CheckQuotas(q.today(), now) }

// today returns how many runs the project has started today. The caller holds the mutex.
func (q *quota) today() int64 {
	today := q.started + q.starting
	if q.read.StartsToday != nil {
		today += *q.read.StartsToday
	}
	return today
}

// limits returns the limits of the project.
func (q *quota) limits() admin.Limits {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.read.Limits
}

// startsRun reports whether the request creates its run if that does not exist.
func (r *Request) startsRun() bool { return r.Type == entities.EventRunCreated || r.createsRun() }

// admit refuses a decision that creates its run, or the one that this continues as, beyond a limit with a
// *[admin.QuotaError]. If the run is below a root, that must be loaded.
func (s *newStart) admit(d decision) error {
	if s != nil && d.next != nil { // in its tree, it takes the place of the run
		return s.take("", 0, (*quota).checkChild)
	}
	if s == nil || d.before.Run != nil || d.after.Run == nil {
		return nil
	}
	return s.take(d.after.Run.RootID, d.after.Run.Depth, (*quota).check)
}

// take counts a run as one that starts, or fails with a *[admin.QuotaError].
func (s *newStart) take(root entities.RunID, depth int, check func(*quota, time.Time) error) error {
	q := s.quota
	if root != "" {
		if err := s.below.take(s.project, q.limits(), depth, s.now); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := check(q, s.now); err != nil {
		return err
	}
	q.starting++
	s.admitted++
	return nil
}

// reset forgets what was admitted: the call is decided anew.
func (s *newStart) reset() {
	if s == nil {
		return
	}
	s.quota.mu.Lock()
	s.quota.starting -= s.admitted
	s.quota.mu.Unlock()
	s.admitted = 0
	s.below.end(0)
	s.below, s.holders = nil, nil
}

// end counts the runs that the call has created.
func (s *newStart) end(d decision, err error) {
	if s == nil {
		return
	}
	var created int64
	if err == nil {
		created = d.created()
	}
	s.quota.mu.Lock()
	s.quota.starting -= s.admitted
	s.quota.started += created
	s.quota.mu.Unlock()
	s.below.end(created)
}

// created returns how many runs the decision creates.
func (d decision) created() int64 {
	n := int64(len(d.children))
	if d.before != nil && d.before.Run == nil && d.after.Run != nil || d.next != nil {
		n++
	}
	return n
}
