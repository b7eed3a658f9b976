// Package eventlog appends events to runs, updates the rows of their entities, and enqueues the work that follows. It
// is the only writer of events and of entity rows. Package read, below it, reads the log.
//
// It reaches the queue through [Enqueuer].
//
// Every append takes the same steps, and commits once:
//
//	facts → decide (pure) → one statement: events, rows, messages → commit → announce
//
// The facts are the run and those of its entities that the requests are about. They come from one of two places, and
// only in that do appends differ:
//
//   - From the cache of runs that this process has just appended to. Then the statement applies only if the run's log
//     is still as long as it is in the cache. The rows of a run are the fold of its log, so the lock would have led to
//     the same decision. Other conditions stand for what would have been read under the lock: that a lease is live, or
//     that no limit keeps the run from beginning.
//   - From reads under the lock on the run's row, if the cache is stale or lacks a fact, or the statement did not
//     apply. Then the conditions hold, and the writes of the statement are executed one by one in the transaction that
//     holds the lock. So are those that need it: see [pg.Conditional.UnderLock].
//
// What else the transaction does, such as to end the delivery that asked for the append, its [Companion] adds to the
// statement.
//
// # Why an event is accepted
//
// These functions decide, in this order. Each refuses by an error of its own.
//
//	Request.validate    the request can succeed at all
//	Companion.Lock      the caller may write: it has the lease, and knows of the writes of others
//	facts.checkFence    the orchestrator knows of all in-band writes
//	decide              the transition tables allow the event in the status of the run and the entity
//	call.accept         no other request of the call is refused
//	admission.admit     the limits of runs have room, or the run waits
//	newStart.admit      the project may start runs
//
// [Snapshot.Apply] then folds the event into the rows, nextWork says which work follows, and call.addDecision adds all
// of that to the statement.
//
// What follows from the events of a run whose function is in this process may become part of the decision: see
// [Follow].
//
// Invariants that this package keeps:
//
//   - I1: the log of a run is dense from 1, and readers see a prefix of it. Positions follow from the run's last_seq,
//     which only one append at a time can advance.
//   - I2: rows equal the fold of the log at every commit. [Snapshot.Apply] folds the decided events into the facts, and
//     the difference is written; no row is computed in any other way.
//   - I8: nothing is announced before the commit. Subscribers and local workers are notified after it.
//
// Locks are taken in this order: the run's row, hook tokens (advisory locks, in the order of the tokens), the expired
// hook that held a token, then streams and messages. No transaction waits for a run while it holds another: [Log.Start]
// locks the parent of a run that does not exist yet.
package eventlog
