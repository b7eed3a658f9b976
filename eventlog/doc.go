// Package eventlog says what happens: it appends events to runs and does all that follows from them, and
// it answers questions about the log. It is the sole writer of events, of entity rows and of streams.
//
// It imports package entities, and nothing else of the module.
//
// Every append is one transaction of six steps, in this order:
//
//	lock the run → decide (pure) → append events → update entity rows → enqueue what follows → commit
//
// Rows are never computed beside the log: [Snapshot.Apply] folds the decided events into what was read
// under the lock, and the difference is what is written, so that rows equal the fold of the log (I2).
//
// Lock order: the run's row, then the names of hook tokens (advisory locks), then streams. Nothing waits for
// a run while it holds another.
package eventlog
