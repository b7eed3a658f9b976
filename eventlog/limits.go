package eventlog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// Limiter grants slots of limits to what waits for them. The log calls an [Enqueuer] that is one after each commit that
// lets something wait or go.
type Limiter interface {
	// Awaited says that something waits for the uses.
	Awaited(project entities.Project, uses []entities.LimitUse)
	// Freed says that their slots may be free.
	Freed(project entities.Project, uses []entities.LimitUse)
	// Grants reports whether this process grants slots, so that what waits gets them at once.
	Grants() bool
}

// errCreateFirst rolls back an append whose run_started would create a run with limits too: the run is created by
// itself, so that it can wait.
var errCreateFirst = errors.New("create the run first")

// policies are the policies of the workflows of which a call creates runs.
type policies map[string]*limit.Policy

// loadPolicies queues the reads of the policies that a call needs. They are read in the transaction that creates the
// run, so a policy counts for each run that starts after it was put.
func (c *call) loadPolicies(b *pgx.Batch, exists bool) policies {
	found := policies{}
	for i := range c.requests {
		r := &c.requests[i]
		switch {
		case r.Child != nil:
			r = r.Child
		case exists:
			continue
		}
		if _, ok := found[r.Data.WorkflowName]; !ok && (r.Type == entities.EventRunCreated || r.createsRun()) {
			found[r.Data.WorkflowName] = &limit.Policy{}
			limit.LoadPolicy(b, c.project, r.Data.WorkflowName, found[r.Data.WorkflowName])
		}
	}
	return found
}

// apply returns the requests with the limits and the priority that policies give the runs that they create.
func (p policies) apply(requests []Request) ([]Request, error) {
	for i := range requests {
		r := &requests[i]
		changed, err := p.applyTo(*r)
		if err != nil {
			return nil, &RefusedError{i, err}
		}
		if changed.isLimited() || changed.limitsSteps() {
			requests = slices.Clone(requests)
			requests[i] = changed
		}
	}
	return requests, nil
}

func (p policies) applyTo(r Request) (Request, error) {
	if r.Child != nil {
		child, err := p.applyTo(*r.Child)
		r.Child = &child
		return r, err
	}
	policy := p[r.Data.WorkflowName]
	if policy == nil || r.Type != entities.EventRunCreated && !r.createsRun() {
		return r, nil
	}
	subject := limit.Subject{
		Workflow: r.Data.WorkflowName, UniqueKey: r.Data.UniqueKey, Attributes: r.Data.Attributes,
	}
	var err error
	if r.Data.StepLimits, err = policy.StepLimits(subject); err != nil {
		return r, err
	}
	if len(r.Data.StepLimits) > 0 && r.SpecVersion >= entities.SpecInline {
		return r, entities.Invalid("the policy of workflow %s limits steps, which apps of the Workflow SDK 5 execute "+
			"within the calls of their runs, where no limit holds: limit its runs instead", r.Data.WorkflowName)
	}
	uses, err := policy.Uses(subject, r.Data.Limits)
	if err != nil || len(uses) == 0 {
		return r, err
	}
	r.Data.Limits = uses
	if r.Data.PriorityMS == 0 {
		r.Data.PriorityMS = policy.Priority.Milliseconds()
	}
	return r, limit.ValidateUses(uses, time.Duration(r.Data.PriorityMS)*time.Millisecond)
}

// createFirst creates the run of the run_started that carryOut refused with errCreateFirst. That somebody else has
// created it is no error.
func (l *Log) createFirst(ctx context.Context, c call) error {
	for i := range c.requests {
		r := &c.requests[i]
		if !r.createsRun() {
			continue
		}
		first := *r
		first.Type, first.RunID = entities.EventRunCreated, c.runID
		_, err := l.Append(ctx, c.project, first)
		if errors.Is(err, entities.ErrConflict) {
			err = nil
		}
		return err
	}
	return nil
}

// isLimited reports whether the request creates a run that needs slots of limits.
func (r *Request) isLimited() bool {
	return len(r.Data.Limits) > 0 || r.Child != nil && len(r.Child.Data.Limits) > 0
}

// limitsSteps reports whether the request creates a run with limits for its steps.
func (r *Request) limitsSteps() bool {
	return len(r.Data.StepLimits) > 0 || r.Child != nil && len(r.Child.Data.StepLimits) > 0
}

// withLimits returns what the request says about a step. If the server executes it, that has the limits that the
// request names, and those that the policy of the workflow gives the step.
func (f facts) withLimits(r *Request) *entities.StepSpec {
	if r.Type != entities.EventStepCreated || r.Data.Step == nil || r.Data.Step.DeploymentID == "" {
		return r.Data.Step
	}
	spec := *r.Data.Step
	for _, p := range f.Run.StepLimits {
		if p.Step != r.Data.StepName {
			continue
		}
		spec.Limits = limit.Join(spec.Limits, p.Limits)
		spec.PriorityMS = cmp.Or(spec.PriorityMS, p.PriorityMS)
	}
	return &spec
}

// newStep returns what the request says about the step that it creates, with all of its limits; nil if it creates none.
func (f facts) newStep(r *Request) *entities.StepSpec {
	if _, exists := f.Steps[entities.StepID(r.CorrelationID)]; exists || f.Run == nil {
		return nil
	}
	return f.withLimits(r)
}

// stepUses returns the limits of the steps that the requests create: those that they name, and all.
func (f facts) stepUses(requests []Request) (named, all []entities.LimitUse) {
	for i := range requests {
		r := &requests[i]
		if spec := f.newStep(r); spec != nil {
			named, all = append(named, r.Data.Step.Limits...), append(all, spec.Limits...)
		}
	}
	return named, all
}

// mustGateSteps reports whether a step that the requests create may share the slots of its run or of its ancestors, or
// needs too many limits.
func (f facts) mustGateSteps(requests []Request) bool {
	for i := range requests {
		r := &requests[i]
		if spec := f.newStep(r); spec != nil && len(spec.Limits) > limit.MaxUses {
			return true
		}
	}
	_, all := f.stepUses(requests)
	if len(all) > 0 && f.Run.ParentID != "" && !f.Run.Detached {
		return true
	}
	return slices.ContainsFunc(all, func(u entities.LimitUse) bool { return limit.MayShare(u, f.Run.Limits) })
}

// stepGate has what decides, in a transaction that holds the lock on the run, about the limits of the steps that it
// creates. It is nil if they have none.
type stepGate struct {
	limit.Settings

	ancestors []entities.LimitUse
}

// openStepGate reads the limits that the steps need which the call creates, and those whose slots they share.
func (c *call) openStepGate(ctx context.Context, tx pgx.Tx, f *facts) (*stepGate, error) {
	_, all := f.stepUses(c.requests)
	if len(all) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	g := &stepGate{Settings: limit.LoadSettings(&b, c.project, all)}
	limit.LoadAncestors(&b, c.project, c.runID, &g.ancestors)
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return nil, err
	}
	for i := range c.requests {
		r := &c.requests[i]
		if spec := f.newStep(r); spec != nil {
			if err := g.check(r.Data.Step.Limits, spec.Limits); err != nil {
				return nil, &RefusedError{i, err}
			}
		}
	}
	return g, nil
}

// check refuses a step whose limits can never be met: those that it names, or all with those of the policy.
func (g *stepGate) check(named, all []entities.LimitUse) error {
	if err := g.Check(named); err != nil {
		return err
	}
	if err := limit.ValidateUses(all, 0); err != nil {
		return err
	}
	return g.CheckCosts(all)
}

// share takes from the work of steps the limits whose slots the run or its ancestors hold.
func (g *stepGate) share(d *decision) {
	if g != nil {
		unshare(d.messages, func(uses []entities.LimitUse) []entities.LimitUse { return g.Unshared(uses, g.ancestors) })
	}
}

// unshare leaves work those of its limits that rest returns: others hold slots of the rest already.
func unshare(work []message.Message, rest func([]entities.LimitUse) []entities.LimitUse) {
	for i, m := range work {
		if m.Limits == nil {
			continue
		}
		if uses := rest(m.Limits.Uses); len(uses) > 0 {
			limits := *m.Limits
			limits.Uses = uses
			work[i].Limits = &limits
		} else {
			work[i].Limits, work[i].Gated = nil, false
		}
	}
}

// admission decides about the limited runs that a locked append creates.
type admission struct {
	gate      *limit.Gate
	ancestors []entities.LimitUse
	// writes are queued when the rows of the runs are there.
	writes []func(*pgx.Batch)
}

// openGate reads, in the transaction that holds the lock on the run, what limits need: whether the run waits if it is
// to start, and what decides about the runs that the call creates. It gives the requests the limits of these. The
// admission is nil if no limited run is created.
func (l *Log) openGate(ctx context.Context, tx pgx.Tx, c *call, f *facts) (*admission, error) {
	var b pgx.Batch
	if f.Run != nil && len(f.Run.Limits) > 0 && f.Run.Status == entities.RunPending {
		limit.LoadWaits(&b, c.runID, &f.waits)
	}
	found := c.loadPolicies(&b, f.Run != nil)
	c.start.load(&b, l.quotas, c, *f)
	if err := pg.SendQueued(ctx, tx, &b); err != nil || len(found) == 0 {
		return nil, err
	}
	if err := c.start.placeChildren(c, *f); err != nil {
		return nil, err
	}
	l.limited.remember(c.project, found)
	var err error
	if c.requests, err = found.apply(c.requests); err != nil {
		return nil, err
	}
	uses, parent, err := c.uses(f.Run != nil)
	if err != nil || len(uses) == 0 {
		return nil, err
	}
	a := &admission{}
	if parent != "" {
		limit.LoadAncestors(&b, c.project, parent, &a.ancestors)
	}
	if parent == c.runID && f.Run == nil { // a fork, whose row is not there yet
		a.ancestors = slices.Clone(c.requests[0].Data.Limits)
	}
	// A run with a parent is created under a lock on that, so it waits for no limit's lock.
	a.gate = limit.OpenGate(&b, c.project, uses, parent == "")
	err = pg.SendQueued(ctx, tx, &b)
	c.requests = a.share(c.requests)
	return a, err
}

// uses returns the limits of the runs that the call creates, and the parent that they have, if any.
func (c *call) uses(exists bool) (uses []entities.LimitUse, parent entities.RunID, err error) {
	for i := range c.requests {
		r := &c.requests[i]
		switch {
		case r.Child != nil && len(r.Child.Data.Limits) > 0:
			uses, parent = append(uses, r.Child.Data.Limits...), c.runID
		case exists || len(r.Data.Limits) == 0:
		case r.createsRun():
			return nil, "", errCreateFirst
		default:
			uses, parent = append(uses, r.Data.Limits...), r.Data.ParentID
		}
	}
	return uses, parent, nil
}

// share takes the limits from the requests of children whose slots an ancestor has: they share them, unless they go on
// after the parent or need more slots. A limit that is only a rate has no slots to share.
func (a *admission) share(requests []Request) []Request {
	if a == nil || len(a.ancestors) == 0 {
		return requests
	}
	requests = slices.Clone(requests)
	for i := range requests {
		r := &requests[i]
		if r.Child != nil {
			child := *r.Child
			child.Data.Limits = a.unshared(child.Data)
			requests[i].Child = &child
		} else {
			requests[i].Data.Limits = a.unshared(r.Data)
		}
	}
	return requests
}

func (a *admission) unshared(d entities.EventData) []entities.LimitUse {
	if d.ParentID == "" || d.Detached {
		return d.Limits
	}
	return a.gate.Known().Unshared(d.Limits, a.ancestors)
}

// admit decides about the runs that the decision creates. The messages of those that wait are sent when slots are
// granted to them.
func (a *admission) admit(d *decision, requests []Request) error {
	if a == nil {
		return nil
	}
	a.writes = nil
	if err := a.admitRun(d, d); err != nil {
		return &RefusedError{0, err}
	}
	if d.waits && len(d.children) > 0 {
		return &RefusedError{0, &entities.ForkRefusedError{Reason: entities.ForkLimits, Text: "the run has to wait for " +
			"slots of its limits, and child runs that were open there would not: try again when there are some"}}
	}
	for i := range d.children {
		child := &d.children[i]
		if err := a.admitRun(d, child); err != nil {
			return &RefusedError{slices.IndexFunc(requests, func(r Request) bool {
				return r.Child != nil && r.Child.RunID == child.after.Run.ID
			}), err}
		}
	}
	return nil
}

// admitRun decides about one run, if the decision of creates it; d has the messages.
func (a *admission) admitRun(d, of *decision) error {
	run := of.after.Run
	if of.before.Run != nil || run == nil || len(run.Limits) == 0 || run.Status.Ended() {
		return nil
	}
	if err := a.gate.Known().Check(run.Limits); err != nil {
		return err
	}
	created := of.events[0].Data
	start := limit.Start{
		RunID: run.ID, Uses: run.Limits, Priority: time.Duration(created.PriorityMS) * time.Millisecond,
		NotBefore: created.StartAt,
	}
	admitted, err := a.gate.Admit(start, run.ParentID != "")
	if err != nil {
		return err
	}
	if run.StartedAt != nil && !admitted.Granted {
		return &waitsError{run.ID}
	}
	a.writes = append(a.writes, func(b *pgx.Batch) { a.gate.Insert(b, start, admitted) })
	of.waits = !admitted.Granted
	if err := d.gate(run, of.waits); err != nil {
		return err
	}
	for _, id := range admitted.Cancel {
		d.messages = append(d.messages, replaced(run, id))
	}
	return nil
}

// gate has the work of a new run wait for its slots, or not: its first invocation, and of a fork the steps that are
// open. A fork with a step that waits for other slots has to start at once, since the step would not wait for the run.
func (d *decision) gate(run *entities.Run, waits bool) error {
	for i, m := range d.messages {
		if m.RunID != run.ID || m.Work != message.WorkRun && m.Work != message.WorkStep {
			continue
		}
		if m.Limits != nil && waits {
			return &entities.ForkRefusedError{Reason: entities.ForkLimits, Text: "the run has to wait for slots of its " +
				"limits, and step " + m.Subject + ", which is open, for slots of others: try again when there are some"}
		}
		if m.Limits == nil {
			d.messages[i].Gated = waits
		}
	}
	return nil
}

// replaced returns the work that cancels another run because of a new one.
func replaced(run *entities.Run, id entities.RunID) message.Message {
	m := work(run, message.WorkCancel, "0s")
	m.RunID, m.Body = id, []byte("replaced by run "+string(run.ID)+", which needs its slot of a limit")
	return m
}

// addTo adds the permits to the append's statement.
func (a *admission) addTo(s *pg.Conditional) {
	if a == nil {
		return
	}
	for _, w := range a.writes {
		s.UnderLock(w)
	}
	s.UnderLock(a.gate.Write)
}

// notifyLimiter says to the limiter what a committed decision lets wait or go.
func (l *Log) notifyLimiter(d decision) {
	if l.limiter == nil || d.after.Run == nil {
		return
	}
	run := d.after.Run
	if d.waits {
		l.limiter.Awaited(run.Project, run.Limits)
	}
	if d.endsRun() {
		freed := slices.Clone(run.Limits)
		for _, step := range run.StepLimits {
			freed = append(freed, step.Limits...)
		}
		if len(freed) > 0 {
			l.limiter.Freed(run.Project, freed)
		}
	}
	for _, m := range d.messages {
		if m.Limits != nil {
			l.limiter.Awaited(m.Project, m.Limits.Uses)
		}
	}
	for _, child := range d.children {
		l.notifyLimiter(child)
	}
}

// endWait has the messages sent of a run that ends before it got the slots that it waited for, so that its function
// learns of the end.
func (d *decision) endWait() {
	run := d.after.Run
	if len(run.Limits) == 0 || run.StartedAt != nil {
		return
	}
	end := work(run, message.WorkEnd, "")
	end.Gated = true
	d.messages = append(slices.DeleteFunc(d.messages, func(m message.Message) bool {
		return m.RunID == run.ID && m.Work == message.WorkEnd
	}), end)
}
