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
	// manyFailed is how many starts with any keys fail in a row before a limit counts as full for all keys: its total may
	// be, and an attempt with another key costs as much as one that succeeds.
	manyFailed = 8
)

// limitedStarts is what a process remembers to create runs with limits by one conditional statement. If something is
// out of date, the statement does not apply.
type limitedStarts struct {
	// group commits the starts that take their slots at once.
	group    *pg.GroupCommit
	policies *lru.Cache[workflowKey, *limit.Policy]
	// full has when starts failed to take slots.
	full *lru.Cache[bucketKey, time.Time]
	// failing has how many starts in a row failed to take slots of a limit, whatever their keys.
	failing *lru.Cache[limitKey, failures]
}

// failures are attempts in a row that failed, and when the last one did.
type failures struct {
	n    int
	last time.Time
}

// workflowKey identifies a workflow of a project, limitKey a limit, and bucketKey the slots of a limit with one key.
type (
	workflowKey struct {
		project  entities.Project
		workflow string
	}
	limitKey struct {
		project entities.Project
		name    string
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
	s.failing, _ = lru.New[limitKey, failures](knownPolicies)
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
		row, _ := s.failing.Get(limitKey{project, u.Name})
		return ok && now.Sub(failed) < fullTime || row.n >= manyFailed && now.Sub(row.last) < fullTime
	})
}

// tried notes whether a start could take slots.
func (s limitedStarts) tried(project entities.Project, start limit.Start, now time.Time, took bool) {
	for _, u := range start.Uses {
		name := limitKey{project, u.Name}
		if took {
			s.failing.Remove(name)
			continue
		}
		row, _ := s.failing.Get(name)
		if now.Sub(row.last) >= fullTime {
			row.n = 0
		}
		s.failing.Add(name, failures{row.n + 1, now})
		s.full.Add(bucketKey{project, limit.Bucket{Name: u.Name, Key: u.Key}}, now)
	}
}

// limitedStart gives the request of a call that creates a run the limits of the policy that this process remembers. It
// returns nil if the run has none, and reports false if the limits must decide in a transaction that locks them.
func (l *Log) limitedStart(c *call, exists bool) (s *limit.OptimisticStart, ok bool) {
	if exists || len(c.requests) != 1 || c.requests[0].Type != entities.EventRunCreated {
		return nil, !anyOf(c.requests, (*Request).isLimited)
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
	var besides pg.Conditional
	if c.addTo(&besides, d); besides.NeedsLock() { // which says nothing about the slots
		return decision{}, false, nil
	}
	if l.limited.mayTake(c.project, start.Start, c.now) {
		written, ok, err := l.writeOptimistic(ctx, c, f, d, l.limited.group,
			func(s *pg.Conditional) { start.Take(s, c.project, workflow) })
		if err != nil {
			return written, ok, err
		}
		if l.limited.tried(c.project, start.Start, c.now, ok); ok {
			return written, ok, nil
		}
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

// startsLimited reports whether the decision starts a run that may wait for slots.
func (d decision) startsLimited() bool {
	return d.before.Run != nil && len(d.before.Run.Limits) > 0 && d.before.Run.Status == entities.RunPending &&
		d.after.Run.Status != entities.RunPending && !d.after.Run.Status.Ended()
}

// requireNoLimit makes a conditional statement depend on that no limit keeps the run from beginning: one that it
// creates needs no slots, and one that it starts has them.
func (d decision) requireNoLimit(s *pg.Conditional) {
	switch run := d.after.Run; {
	case d.before.Run == nil:
		limit.RequireNoPolicy(s, run.Project, run.WorkflowName)
	case d.startsLimited():
		limit.RequireGranted(s, run.ID)
	}
}

// waitsError refuses to start a run that waits for slots of limits.
type waitsError struct{ runID entities.RunID }

func (e *waitsError) Error() string {
	return "run " + string(e.runID) + " waits for slots of its limits: it starts when it has them"
}

// Is makes errors.Is(err, entities.ErrNotYet) true.
func (e *waitsError) Is(target error) bool { return target == entities.ErrNotYet }
