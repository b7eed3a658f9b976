package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// Result is what an append did.
type Result struct {
	// Event is the last event appended. For a repeated request it is the event that recorded it before, if that was
	// read.
	Event *entities.Event
	// Repeated is set if the log already recorded the request, so that nothing was written.
	Repeated bool
	// StepCreated is set if a step_started created its step.
	StepCreated bool
	// Run is the run right after the request. It does not include the events of an [InlineStart], which follow.
	Run entities.Run
	// Step, Hook and Wait are the entity that the event is about, after the append. Those of other kinds are nil, as is
	// an entity that no longer exists.
	Step *entities.Step
	Hook *entities.Hook
	Wait *entities.Wait
	// Log is the run's whole log after the append if it is cached, else nil. It must not be modified.
	Log []entities.Event
}

// Page returns a page of [Result.Log], as [read.Log.Events] would with payloads. It reports false if the log is not
// cached, the page is in descending order, or the cursor is invalid; then the log must be read.
func (r Result) Page(p pg.Page) (read.EventPage, bool) {
	from := int64(0)
	if p.Cursor != "" {
		var err error
		if from, err = read.ParseEventCursor(p.Cursor); err != nil {
			return read.EventPage{}, false
		}
	}
	if r.Log == nil || p.Descending {
		return read.EventPage{}, false
	}
	rest := r.Log[min(from, int64(len(r.Log))):]
	n := min(len(rest), p.Limit)
	return read.EventPage{Events: rest[:n], More: n < len(rest)}, true
}

// Append appends the event that a request asks for, updates rows, and enqueues the work that follows, in one
// transaction.
//
// It fails with [entities.ErrInvalid] if the request can never succeed, with the not-found error of a missing entity,
// with [entities.ErrConflict] or [entities.ErrRunEnded] if the transition tables refuse it, with [entities.ErrNotYet]
// if the step is not due, and with a *[admin.QuotaError] if the event would create a run beyond a limit of the project.
// When it fails with one of these, nothing was written.
func (l *Log) Append(ctx context.Context, project entities.Project, r Request) (Result, error) {
	outcomes, err := l.append(ctx, call{project: project, runID: r.RunID, requests: []Request{r}})
	if err == nil {
		err = outcomes[0].Err
	}
	if pg.ViolatedConstraint(err) == "runs_pkey" {
		// The run belongs to another project; otherwise the retry would have found it.
		return Result{}, r.conflict("taken")
	}
	if err != nil {
		return Result{}, fmt.Errorf("append %s: %w", r.Type, err)
	}
	return outcomes[0].Result, nil
}

// AppendAll appends several requests for one run, in their order and in one transaction with what the options add: all
// of them or none. The list of requests may be empty. The run must exist, unless a request creates it.
//
// It fails with a *[RefusedError] about the first request that [Log.Append] would refuse, with the errors of the
// options, and with [entities.ErrRunNotFound].
func (l *Log) AppendAll(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, o AppendOptions,
) ([]Result, error) {
	for _, s := range o.Streams {
		if err := entities.ValidateName("stream name", string(s.Name)); err != nil {
			return nil, err
		}
	}
	outcomes, err := l.append(ctx, call{
		AppendOptions: o, project: project, runID: runID, requests: aboutRun(runID, requests), atomic: true,
	})
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", runID, err)
	}
	results := make([]Result, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Result
	}
	return results, nil
}

// AppendEach appends several requests for one run, in their order and in one transaction with what the options add.
// Each has the outcome that it would have alone with [Log.Append], as long as the refused ones only come too late:
// those with [entities.ErrConflict] or [entities.ErrRunEnded].
//
// Otherwise it fails with a *[RefusedError] about the first other refusal, and nothing is written. It also fails with
// the errors of the options and with [entities.ErrRunNotFound].
func (l *Log) AppendEach(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, o AppendOptions,
) ([]Outcome, error) {
	outcomes, err := l.append(ctx, call{
		AppendOptions: o, project: project, runID: runID, requests: aboutRun(runID, requests), atomic: true, late: true,
	})
	if i := slices.IndexFunc(requests, Request.startsRun); i >= 0 && pg.ViolatedConstraint(err) == "runs_pkey" {
		err = &RefusedError{i, requests[i].conflict("taken")} // by another project
	}
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", runID, err)
	}
	return outcomes, nil
}

// AppendBatch appends several requests for one run, in their order and in one transaction. Each is appended or refused
// on its own, with the outcome that [Log.Append] would return, except that a request fails if an earlier one about the
// same entity has failed (protocol §3.13). All have one fence, which is that of the first.
//
// The whole batch fails, and nothing is written, with [entities.ErrInvalid] if a request can never succeed or is not
// allowed in a batch, with [entities.ErrSuperseded], and with [entities.ErrRunNotFound].
func (l *Log) AppendBatch(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request,
) ([]Outcome, error) {
	requests = aboutRun(runID, requests)
	if err := validateBatch(requests); err != nil {
		return nil, err
	}
	outcomes, err := l.append(ctx, call{project: project, runID: runID, requests: requests, block: true})
	if err != nil {
		return nil, fmt.Errorf("append batch: %w", err)
	}
	for _, o := range outcomes {
		if errors.Is(o.Err, entities.ErrRunNotFound) {
			return nil, fmt.Errorf("append batch: %w", o.Err)
		}
	}
	return outcomes, nil
}

// aboutRun returns copies of the requests, with the run's ID.
func aboutRun(runID entities.RunID, requests []Request) []Request {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].RunID = runID
	}
	return requests
}

// append carries out a call and reports it to the observer.
func (l *Log) append(ctx context.Context, c call) ([]Outcome, error) {
	if err := l.noteBuilds(ctx, c); err != nil {
		return nil, err
	}
	ctx, done := l.observer.Append(ctx, c.runID, c.requests)
	d, err := l.carryOut(ctx, c)
	if errors.Is(err, errCreateFirst) {
		if err = l.createFirst(ctx, c); err == nil {
			d, err = l.carryOut(ctx, c)
		}
	}
	if err != nil {
		done(Appended{Err: err})
		return nil, err
	}
	done(d.appended())
	return d.outcomes, nil
}

// carryOut decides on the requests and writes the decision: from the cache if that has the facts, else under the run's
// lock. The calls of this process about one run are serialized here; in Postgres they would wait for each other too,
// but each with a connection of its own.
func (l *Log) carryOut(ctx context.Context, c call) (decision, error) {
	c.now, c.source, c.consulted = l.Now(), admin.SourceOf(ctx), &consulted{}
	if err := c.validate(); err != nil {
		return decision{}, err
	}
	release, err := l.cache.acquire(ctx, c.runID)
	if err != nil {
		return decision{}, err
	}
	defer release()
	if c.start, err = l.quotas.newStart(ctx, c); err != nil {
		return decision{}, err
	}
	d, ok, err := l.appendOptimistic(ctx, c)
	for !ok && (err == nil || c.start.lostKey(err)) {
		d, err = l.appendLocked(ctx, c)
		ok = err == nil
	}
	c.start.end(d, err)
	c.consulted.end(d, err)
	if err != nil && !errors.Is(err, errUnwritten) {
		l.cache.runs.Remove(c.runID) // the commit may have succeeded nevertheless
		return decision{}, l.whenDurable(ctx, err)
	}
	l.cache.store(d, c.now)
	for i, o := range d.outcomes {
		if o.Err == nil {
			d.outcomes[i].Log = l.cache.logOf(d.after.Run)
		}
	}
	if err != nil {
		return d, l.whenDurable(ctx, nil)
	}
	for _, s := range c.Streams {
		l.hub.Publish(read.StreamTopic(c.project, s.Name))
	}
	l.notifyLimiter(d)
	for _, victim := range d.victims {
		l.cache.runs.Remove(victim.after.Run.ID)
		l.Announce(c.project, victim.after.Run.ID, false)
	}
	if len(d.events) > 0 {
		l.Announce(c.project, c.runID, d.closesCalls())
	}
	return d, nil
}

// whenDurable returns the outcome of a request that wrote nothing, once the events that it is based on are durable. An
// outcome from which a client cannot conclude that an event exists is returned at once.
func (l *Log) whenDurable(ctx context.Context, outcome error) error {
	reported := []error{nil, entities.ErrConflict, entities.ErrRunEnded, entities.ErrKeyTaken, entities.ErrSuperseded}
	if !slices.ContainsFunc(reported, func(err error) bool { return errors.Is(outcome, err) }) {
		return outcome
	}
	if err := l.durability.Await(ctx); err != nil {
		return err
	}
	return outcome
}

// AwaitDurability waits until everything that is visible now is as durable as a commit: see [pg.Durability.Await].
func (l *Log) AwaitDurability(ctx context.Context) error { return l.durability.Await(ctx) }

// maxOptimistic is the most requests that one conditional statement writes; those that create a step and those about
// its first attempt count once. The text of the statement depends on the requests, so that a longer one would rarely
// find a prepared plan.
const maxOptimistic = 16

// appendOptimistic decides from the cache and writes the decision with one statement, which applies only if the run's
// log is as long as it is in the cache. It reports false, having written nothing, if the cache is stale or lacks a
// fact; then the run must be locked.
//
// If the decision is to write nothing, a read checks that the cache is up to date. A decision that refuses some of
// several requests, or that creates children, always takes the lock.
func (l *Log) appendOptimistic(ctx context.Context, c call) (decision, bool, error) {
	f, ok := l.cache.facts(c.project, c.requests, c.now)
	if !ok {
		return decision{}, false, nil
	}
	limited, ok := l.limitedStart(&c, f.Run != nil)
	if !ok || c.needsLock(f) || !l.cache.addAwaited(c.Await, c.requests, &f) {
		return decision{}, false, nil
	}
	d := c.decide(f)
	switch {
	case len(d.events) == 0 && len(c.requests) == 1 && !c.hasOptions() && l.cache.knowsEntity(c.requests[0]):
		return l.confirmUnchanged(ctx, c, d)
	case len(d.events) == 0 || len(d.children) > 0 || slices.ContainsFunc(d.outcomes, Outcome.refused):
		return decision{}, false, nil
	case c.start.admit(d) != nil: // unless the run exists
		return decision{}, false, nil
	}
	if limited != nil {
		return l.createLimited(ctx, c, f, d, limited)
	}
	c, f, d = l.follow(ctx, c, f, d)
	return l.writeOptimistic(ctx, c, f, d, l.group, d.requireNoLimit)
}

// needsLock reports whether the call can only be decided under the run's lock, although all facts about it are cached.
func (c call) needsLock(f facts) bool {
	return c.rootOf(f) != "" || c.exceeds(f.Snapshot) || f.needLock(c.requests)
}

// needLock is [call.needsLock] as to what the requests are.
func (f facts) needLock(requests []Request) bool {
	return f.mustGateSteps(requests) || f.usesMemos(requests)
}

// writeOptimistic writes a decision with one statement of the group, which applies only if the facts from the cache are
// still true, and what the function admit adds about the limits of the run.
func (l *Log) writeOptimistic(
	ctx context.Context, c call, f facts, d decision, group *pg.GroupCommit, admit func(*pg.Conditional),
) (decision, bool, error) {
	var s pg.Conditional
	ended, ok := l.enqueueOptimistic(&s, &d, c)
	if !ok {
		return decision{}, false, nil
	}
	named, all := f.stepUses(c.requests)
	if len(named) > 0 {
		limit.RequireKnown(&s, c.project, named)
	}
	if len(all) > len(named) { // with those of the policy
		limit.RequireFits(&s, c.project, all)
	}
	admit(&s)
	d.addTo(&s, f, xidOfNow)
	d.requireMovement(&s)
	if d.endsRun() {
		trigger.RequireNoneOnEnd(&s, c.project, d.after.Run.WorkflowName)
	}
	written, err := group.ExecuteConditional(ctx, &s)
	if pg.Retryable(err) {
		return decision{}, false, nil
	}
	if written || err != nil {
		ended(err)
	}
	return d, written, err
}

// confirmUnchanged checks that the run's log is as long as it is in the cache, which a decision to write nothing relies
// on.
func (l *Log) confirmUnchanged(ctx context.Context, c call, d decision) (decision, bool, error) {
	unchanged, err := store.IsUnchanged(ctx, pg.NewPool(l.pool), d.before.Run)
	if err != nil || !unchanged {
		return decision{}, false, err
	}
	if err := c.accept(d); err != nil {
		return d, true, err
	}
	return d, true, errUnwritten
}

const (
	// longCall is from how many requests an append occupies Postgres for long: a tenth of a second and more.
	longCall = 100
	// longPerProcessor is how many such appends run at once, by processor. With the factor longFactor, a project runs half
	// of them: those of others find processors of Postgres idle.
	longPerProcessor, longFactor = 2, 1
)

// appendLocked locks the run, reads the facts, and writes the decision in the same transaction.
func (l *Log) appendLocked(ctx context.Context, c call) (decision, error) {
	if len(c.requests) >= longCall {
		if err := l.long.Take(ctx, string(c.project), 1, longFactor); err != nil {
			return decision{}, fmt.Errorf("wait to append: %w", err)
		}
		defer l.long.Release(string(c.project), 1)
	}
	var d decision
	var f *facts
	var check func([]Request) error
	requests := c.requests
	err := pg.Pipelined{
		First: func(b *pgx.Batch) {
			f = lockAndRead(b, c)
			check = UnderLock{}.Lock(b)
			if c.With != nil {
				check = c.With.Lock(b)
			}
		},
		Then: func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error) {
			c.requests = slices.Clone(requests) // each try completes them anew
			c.start.reset()
			if err := check(c.requests); err != nil {
				return nil, err
			}
			gate, err := l.openGate(ctx, tx, &c, f)
			if err != nil {
				return nil, err
			}
			steps, err := c.openStepGate(ctx, tx, f)
			if err != nil {
				return nil, err
			}
			if err := c.findKnown(ctx, tx, f); err != nil {
				return nil, err
			}
			if err := c.readVictims(ctx, tx, f); err != nil {
				return nil, err
			}
			d = c.decide(*f)
			if err := c.accept(d); err != nil {
				return nil, err
			}
			steps.share(&d)
			if err := gate.admit(&d, c.requests); err != nil {
				return nil, err
			}
			if err := c.start.admit(d); err != nil {
				return nil, &RefusedError{0, err} // only a first request creates a run
			}
			if ended, err = l.enqueueLocked(ctx, tx, last, *f, &d, c); err != nil {
				return nil, err
			}
			gate.write(last)
			c.keepOutputs(last, d)
			c.finish(last)
			return ended, nil
		},
	}.Run(ctx, l.pool)
	return d, err
}

// MaxBatch is the most requests one batch may have.
const MaxBatch = 1000

// allowedInBatch has the types that are allowed in a batch: those whose decision needs only the rows of the run, its
// steps and its waits.
var allowedInBatch = map[entities.EventType]bool{
	entities.EventStepCreated:   true,
	entities.EventStepStarted:   true,
	entities.EventStepCompleted: true,
	entities.EventStepFailed:    true,
	entities.EventStepRetrying:  true,
	entities.EventWaitCreated:   true,
	entities.EventWaitCompleted: true,
	entities.EventRunCompleted:  true,
	entities.EventRunFailed:     true,
}

// validateBatch checks that the events are allowed in a batch: of one entity at most one, unless they are in-band.
func validateBatch(requests []Request) error {
	if n := len(requests); n < 1 || n > MaxBatch {
		return entities.Invalid("a batch must have 1 to %d events, not %d", MaxBatch, n)
	}
	for i, r := range requests {
		if !allowedInBatch[r.Type] {
			return entities.Invalid("event %d of the batch: %q is not allowed in a batch", i, r.Type)
		}
		if r.Type == entities.EventStepStarted && len(r.Payload) > 0 {
			return entities.Invalid("event %d of the batch: a step_started in a batch must not have input; "+
				"put a step_created before it", i)
		}
		if !r.sameFence(requests[0]) {
			return entities.Invalid("event %d of the batch: inBand and expectedSeqInBand differ from those of event 0", i)
		}
	}
	if !requests[0].InBand {
		return onePerEntity(requests)
	}
	return nil
}

// continuesStepOf reports whether r is about an attempt at the step that before creates. What it depends on follows
// from the creation.
func (r Request) continuesStepOf(before Request) bool {
	switch r.Type {
	case entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed, entities.EventStepRetrying:
		return before.Type == entities.EventStepCreated && before.CorrelationID == r.CorrelationID
	default:
		return false
	}
}

// startsStepOf reports whether r starts the step that before creates.
func (r Request) startsStepOf(before Request) bool {
	return r.Type == entities.EventStepStarted && r.continuesStepOf(before)
}
