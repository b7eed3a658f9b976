package eventlog

import (
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// knownPolicies is how many policies a process remembers, and knownFull how many slots that were full.
	knownPolicies = 1024
	knownFull     = 4096
	// fullTime is how long slots count as full after a start could not take one.
	fullTime = time.Second
)

// limitedStarts is what a process remembers to create runs with limits by one conditional statement. If something is
// out of date, the statement does not apply.
type limitedStarts struct {
	// group commits the starts that take their slots at once.
	group    *pg.GroupCommit
	policies *lru.Cache[workflowKey, *limit.Policy]
	// full has when starts failed to take slots.
	full *lru.Cache[bucketKey, time.Time]
}

// workflowKey identifies a workflow of a project, and bucketKey the slots of a limit with one key.
type (
	workflowKey struct {
		project  entities.Project
		workflow string
	}
	bucketKey struct {
		project entities.Project
		limit.Bucket
	}
)

func newLimitedStarts(pool *pgxpool.Pool) limitedStarts {
	s := limitedStarts{group: pg.NewSerialCommit(pool)}
	s.policies, _ = lru.New[workflowKey, *limit.Policy](knownPolicies) // fails only for a size below 1
	s.full, _ = lru.New[bucketKey, time.Time](knownFull)
	return s
}

// remember keeps the policies that were read.
func (s limitedStarts) remember(project entities.Project, found policies) {
	for workflow, p := range found {
		key := workflowKey{project, workflow}
		if len(p.Limits)+len(p.Steps) == 0 {
			s.policies.Remove(key)
		} else {
			s.policies.Add(key, p)
		}
	}
}

// mayTake reports whether a start is to try to take slots: it may begin at once, and nobody failed at that lately.
func (s limitedStarts) mayTake(project entities.Project, start limit.Start, now time.Time) bool {
	return start.NotBefore == nil && !slices.ContainsFunc(start.Uses, func(u entities.LimitUse) bool {
		failed, ok := s.full.Get(bucketKey{project, limit.Bucket{Name: u.Name, Key: u.Key}})
		return ok && now.Sub(failed) < fullTime
	})
}

// failedToTake notes that a start could not take slots.
func (s limitedStarts) failedToTake(project entities.Project, start limit.Start, now time.Time) {
	for _, u := range start.Uses {
		s.full.Add(bucketKey{project, limit.Bucket{Name: u.Name, Key: u.Key}}, now)
	}
}

// limitedStart gives the request of a call that creates a run the limits of the policy that this process remembers. It
// returns nil if the run has none, and reports false if the limits must decide in a transaction that locks them.
func (l *Log) limitedStart(c *call, exists bool) (s *limit.OptimisticStart, ok bool) {
	if exists || len(c.requests) != 1 || c.requests[0].Type != entities.EventRunCreated {
		return nil, !slices.ContainsFunc(c.requests, Request.isLimited)
	}
	r := c.requests[0]
	policy, known := l.limited.policies.Get(workflowKey{c.project, r.Data.WorkflowName})
	if !known && !r.isLimited() {
		return nil, true
	}
	if r.Data.ParentID != "" || l.limiter == nil || !l.limiter.Grants() {
		return nil, false
	}
	requests, err := policies{r.Data.WorkflowName: policy}.apply(c.requests)
	if err != nil {
		return nil, false // a policy that has changed may allow it
	}
	c.requests, r = requests, requests[0]
	return &limit.OptimisticStart{Policy: policy, Start: limit.Start{
		RunID: r.RunID, Uses: r.Data.Limits, Priority: time.Duration(r.Data.PriorityMS) * time.Millisecond,
		NotBefore: r.Data.StartAt,
	}}, true
}

// createLimited writes a decision that creates a run with limits. If the slots that the run needs may be free, it
// takes them in the statement that creates it. Else the run waits, and a pass grants slots to all that were created
// meanwhile. CreateLimited reports false if the limits must decide in a transaction that locks them.
func (l *Log) createLimited(
	ctx context.Context, c call, f facts, d decision, start *limit.OptimisticStart,
) (decision, bool, error) {
	workflow := d.after.Run.WorkflowName
	if len(start.Uses) == 0 { // only its steps have limits
		return l.writeOptimistic(ctx, c, f, d, l.group,
			func(s *pg.Conditional) { start.RequirePolicy(s, c.project, workflow) })
	}
	if l.limited.mayTake(c.project, start.Start, c.now) {
		written, ok, err := l.writeOptimistic(ctx, c, f, d, l.limited.group,
			func(s *pg.Conditional) { start.Take(s, c.project, workflow) })
		if ok || err != nil {
			return written, ok, err
		}
		l.limited.failedToTake(c.project, start.Start, c.now)
		d = c.decide(f)
	}
	d.makeWait()
	return l.writeOptimistic(ctx, c, f, d, l.group, func(s *pg.Conditional) { start.Wait(s, c.project, workflow) })
}

// makeWait has the run that the decision creates wait for its slots.
func (d *decision) makeWait() {
	d.waits = true
	for i, m := range d.messages {
		if m.RunID == d.after.Run.ID && m.Work == message.WorkRun {
			d.messages[i].Gated = true
		}
	}
}
