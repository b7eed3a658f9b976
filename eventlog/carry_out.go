package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// carryOut decides on the requests and writes the decision: from the cache if that has the facts, else under the run's
// lock. The calls of this process about one run are serialized here; in Postgres they would wait for each other too,
// but each with a connection of its own. A call that another run has forestalled in taking a key decides again.
func (l *Log) carryOut(ctx context.Context, c call) (decision, error) {
	c.now, c.source, c.consulted = l.Now(), admin.SourceOf(ctx), &consulted{}
	if err := c.validate(); err != nil {
		return decision{}, err
	}
	if c.joins() {
		return l.carryOutJoined(ctx, c)
	}
	return l.carryOutAlone(ctx, c)
}

// carryOutAlone carries out a call when it is its turn.
func (l *Log) carryOutAlone(ctx context.Context, c call) (decision, error) {
	release, err := l.cache.acquire(ctx, c.runID)
	if err != nil {
		return decision{}, err
	}
	defer release()
	return l.write(ctx, c)
}

// write carries out a call about a run that has been acquired.
func (l *Log) write(ctx context.Context, c call) (_ decision, err error) {
	if c.start, err = l.quotas.newStart(ctx, c); err != nil {
		return decision{}, err
	}
	d, ok, err := l.writeAtOnce(ctx, c)
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
		l.AnnounceStream(c.project, s.Name)
	}
	l.notifyLimiter(d)
	for _, victim := range d.victims {
		l.cache.runs.Remove(victim.after.Run.ID)
		l.Announce(c.project, victim.after.Run.ID, false)
	}
	if len(d.events) > 0 {
		l.Announce(c.project, c.runID, d.closesCalls())
	}
	for _, step := range d.replies() {
		l.AnnounceReply(c.project, c.runID, step)
	}
	return d, nil
}

// writeAtOnce is [Log.appendOptimistic], and fails as [Log.findStarted] does if that reports false.
func (l *Log) writeAtOnce(ctx context.Context, c call) (decision, bool, error) {
	d, ok, err := l.appendOptimistic(ctx, c)
	if !ok && err == nil {
		err = l.findStarted(ctx, c)
	}
	return d, ok, err
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

// maxOptimistic is the most requests that one conditional statement writes; all those about steps count once. The text
// of the statement depends on the requests, so that a longer one would rarely find a prepared plan.
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
	d, err := c.conclude(f)
	unwritten := err != nil && len(d.events) == 0
	switch {
	case unwritten && len(c.requests) == 1 && !c.hasOptions() && l.cache.knowsEntity(&c.requests[0]):
		return l.confirmUnchanged(ctx, d, err)
	case err != nil || len(d.events) == 0 || len(d.children) > 0 || slices.ContainsFunc(d.outcomes, Outcome.refused):
		return decision{}, false, nil
	}
	if limited != nil {
		return l.createLimited(ctx, c, f, d, limited)
	}
	c, f, d = l.follow(ctx, c, f, d)
	return l.writeOptimistic(ctx, c, f, d, l.group, d.requireNoLimit)
}

// conclude decides on the requests, and fails if the decision is not to be written: for a request that is refused, or
// for a limit that refuses the run or step that one creates. With facts from the cache, a failure is a reason to look
// again under the lock.
func (c call) conclude(f facts) (decision, error) {
	d := c.decide(f)
	if err := c.accept(d); err != nil {
		return d, err
	}
	f.stepGate.share(&d)
	if err := f.gate.admit(&d, c.requests); err != nil {
		return d, err
	}
	if err := c.start.admit(d); err != nil {
		// Only a first request creates a run, and only a last one continues it as another.
		return d, &RefusedError{max(0, len(c.requests)-1), err}
	}
	return d, nil
}

// needsLock reports whether the call can only be decided under the run's lock, although all facts about it are cached.
func (c call) needsLock(f facts) bool {
	_, locked := c.With.(UnderLock)
	return locked || len(c.Streams) > 0 || c.rootOf(f) != "" || c.exceeds(f.Snapshot) || f.mustGateSteps(c.requests)
}

// writeOptimistic writes a decision with one statement of the group, which applies only if the facts from the cache are
// still true, and what is required about the limits of the run. It reports false if it did not apply.
func (l *Log) writeOptimistic(
	ctx context.Context, c call, f facts, d decision, group *pg.GroupCommit, limits func(*pg.Conditional),
) (decision, bool, error) {
	var s pg.Conditional
	if c.addTo(&s, d); s.NeedsLock() {
		return decision{}, false, nil
	}
	ended, ok := l.enqueueOptimistic(&s, c, &d)
	if !ok {
		return decision{}, false, nil
	}
	c.addDecision(&s, f, d, xidOfNow, limits)
	written, err := group.ExecuteConditional(ctx, &s)
	if pg.Retryable(err) {
		return decision{}, false, nil
	}
	if written || err != nil {
		ended(err)
	}
	return d, written, err
}

// confirmUnchanged checks that the run's log is as long as it is in the cache, on which the outcome of a decision that
// writes nothing relies.
func (l *Log) confirmUnchanged(ctx context.Context, d decision, outcome error) (decision, bool, error) {
	unchanged, err := store.IsUnchanged(ctx, pg.NewPool(l.pool), d.before.Run)
	if err != nil || !unchanged {
		return decision{}, false, err
	}
	return d, true, outcome
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
	if c.events() >= longCall {
		if err := l.long.Take(ctx, string(c.project), 1, longFactor); err != nil {
			return decision{}, fmt.Errorf("wait to append: %w", err)
		}
		defer l.long.Release(string(c.project), 1)
	}
	var d decision
	var f *facts
	var check func([]Request) error
	var kept func() error
	requests := c.requests
	err := pg.Pipelined{
		First: func(b *pgx.Batch) {
			f = lockAndRead(b, c)
			kept = blob.Lock(b, slices.Collect(maps.Values(c.blobs)))
			check = UnderLock{}.Lock(b)
			if c.With != nil {
				check = c.With.Lock(b)
			}
		},
		Then: func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error) {
			c.requests = slices.Clone(requests) // each try completes them anew
			c.start.reset()
			if err = check(c.requests); err != nil {
				return nil, err
			}
			if err = kept(); err != nil {
				return nil, err
			}
			if err = l.readMore(ctx, tx, &c, f); err != nil {
				return nil, err
			}
			if d, err = c.conclude(*f); err != nil {
				return nil, err
			}
			return l.writeLocked(ctx, tx, last, c, *f, &d)
		},
	}.Run(ctx, l.pool)
	return d, err
}

// writeLocked queues the statement of a decision, and enqueues the work that follows. For a run that the server
// continues it enqueues first: the queue decides which work starts in this process, and the events of those starts
// become part of the decision.
func (l *Log) writeLocked(
	ctx context.Context, tx pgx.Tx, last *pgx.Batch, c call, f facts, d *decision,
) (ended func(error), err error) {
	var s pg.Conditional
	starts := d.serverDriven()
	if starts {
		if ended, err = l.enqueueLocked(ctx, tx, &s, c, d); err != nil {
			return nil, err
		}
	}
	c.addDecision(&s, f, *d, xidInOrder, f.gate.addTo)
	c.addTo(&s, *d)
	for _, victim := range d.victims {
		victim.queueAlone(last) // first: their tokens are then free
	}
	s.QueueLocked(last)
	d.queueNext(last)
	if !starts && len(d.messages) > 0 {
		_, ended, err = l.enqueuer.Enqueue(ctx, tx, last, d.messages)
	}
	return ended, err
}
