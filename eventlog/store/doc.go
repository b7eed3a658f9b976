// Package store contains the SQL of the entities' tables: runs, steps, hooks, waits, attributes, streams and signals.
// Each table has a file; run_list.go, retention.go and upkeep.go are about several. The package makes no decisions:
// package eventlog decides, and calls it.
//
// Functions come in five kinds, told apart by their parameters:
//
//   - Reads take a [pg.Querier] and return rows (RunByID, ListRuns, …).
//   - Loads and locks take a *pgx.Batch: they queue a read whose result is stored when the batch is sent (LoadSteps,
//     LockRun, …).
//   - Writes of an append take a [pg.Writer]. They only add a statement to it; eventlog executes it, in the transaction
//     of the append (InsertStep, UpdateStep, …).
//   - Require functions add a condition to a [pg.Conditional].
//   - The upkeep of rows (rebuild, import, retention) queues statements on a *pgx.Batch, or executes them through a
//     [pg.Querier] if nothing else belongs into the transaction (DeleteOrphans, DeleteSpentSignals, …).
//
// # Locks
//
// The run's row is the one lock of the write path. Appends take it FOR NO KEY UPDATE ([LockRun]), which lets the
// foreign keys of other tables, which lock it FOR KEY SHARE, pass. A transaction that only needs the run to stay as it
// is takes it FOR SHARE ([LockRunShared]). Lock order: the run's row, the names of hook tokens (advisory locks,
// [LockToken]), streams. No transaction waits for a run while it holds the lock on another one.
//
// # Plans
//
// Statements are prepared once per connection, and Postgres may keep a plan that it made when a table was small.
// Several statements are therefore written so that only one index fits them; [OfRun] says how. Partial indexes are used
// only if the statement repeats their condition literally, which explains conditions that others imply, such as that a
// signal is not the empty text. Tests count the blocks that each list reads.
package store
