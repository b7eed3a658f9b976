// Package eventlog appends events to runs, updates the rows of their entities, and enqueues the work that follows. It
// is the only writer of events and of entity rows. Package read, below it, reads the log.
//
// It reaches the queue through [Enqueuer].
//
// Every append takes the same steps, and commits once:
//
//	facts → decide (pure) → write events, rows and messages → commit → announce
//
// The facts are the run and those of its entities that the requests are about. They come from one of two places:
//
//   - From the cache of runs that this process has just appended to. Then one conditional statement writes the
//     decision, and it applies only if the run's log is still as long as it is in the cache. The rows of a run are the
//     fold of its log, so the lock would have led to the same decision.
//   - From a read under the lock on the run's row, if the cache is stale or lacks a fact, or the statement did not
//     apply. Then the same writes are executed one by one in the transaction that holds the lock.
//
// What else the transaction does, such as to end the delivery that asked for the append, its [Companion] says: for a
// transaction that holds the lock, and for a conditional statement.
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
