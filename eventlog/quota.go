package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// quotaTTL is how long a process relies on what it has read about a project's limits and their use. Meanwhile it counts
// its own starts, so only those of other processes, and runs with a parent, may exceed the limit.
const quotaTTL = 5 * time.Second

// quotas refuses new runs of projects that have reached a limit (see [admin.Limits]). No transaction writes a counter
// for that, and a project without limits costs one small read per [quotaTTL].
type quotas struct {
	pool *pgxpool.Pool

	mu       sync.Mutex
	projects map[entities.Project]*quota // as many as there are projects
}

func newQuotas(pool *pgxpool.Pool) *quotas {
	return &quotas{pool: pool, projects: map[entities.Project]*quota{}}
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

// newStart is a call that may start a run. Its methods do nothing on nil, which stands for any other call.
type newStart struct {
	quota    *quota
	now      time.Time
	admitted bool
}

// newStart returns the start that a call may be, or nil. The caller must call end.
func (q *quotas) newStart(ctx context.Context, c call) (*newStart, error) {
	if !slices.ContainsFunc(c.requests, Request.startsRun) {
		return nil, nil
	}
	project, err := q.of(ctx, c.project, c.now)
	return &newStart{quota: project, now: c.now}, err
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

// CheckStart fails with a *[admin.QuotaError] if the project may not start a run now.
func (l *Log) CheckStart(ctx context.Context, project entities.Project) error {
	now := l.Now()
	q, err := l.quotas.of(ctx, project, now)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.check(now)
}

// check returns why the project may not start a run, or nil. The caller holds the mutex.
func (q *quota) check(now time.Time) error {
	today := q.started + q.starting
	if q.read.StartsToday != nil {
		today += *q.read.StartsToday
	}
	return q.read.CheckStart(today, now)
}

// startsRun reports whether the request creates its run if that does not exist, and is not part of a run under way: a
// run with a parent is never refused.
func (r Request) startsRun() bool {
	return (r.Type == entities.EventRunCreated || r.createsRun()) && r.Data.ParentID == ""
}

// admit refuses a decision that creates a run beyond a limit with a *[admin.QuotaError]. A transaction that is tried
// again is admitted once.
func (s *newStart) admit(d decision) error {
	if s == nil || s.admitted || d.before.Run != nil || d.after.Run == nil {
		return nil
	}
	q := s.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.check(s.now); err != nil {
		return err
	}
	q.starting++
	s.admitted = true
	return nil
}

// end counts the run if the call has created it.
func (s *newStart) end(d decision, err error) {
	if s == nil || !s.admitted {
		return
	}
	s.quota.mu.Lock()
	defer s.quota.mu.Unlock()
	s.quota.starting--
	if err == nil && d.before.Run == nil && d.after.Run != nil {
		s.quota.started++
	}
}
