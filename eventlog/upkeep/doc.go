// Package upkeep maintains the runs that package eventlog writes: it verifies their rows against the log and rebuilds
// them, exports and imports whole runs, and deletes expired ones.
//
// The log is the truth and the rows are its fold (I2). Package eventlog updates both in one transaction, so they differ
// only after damage: a restored backup, a statement by hand, a bug. [Maintainer.Verify] finds the difference and
// [Maintainer.Rebuild] repairs it.
//
// Nothing here appends through the decisions of package eventlog. Verify and rebuild repeat its fold in an order that
// needs bounded memory (fold.go). They check with its transition tables that each event was legal, because a fold of
// illegal events means nothing. An import copies events as they were logged and then rebuilds the rows.
//
// [Retention] is the only code that deletes events. It deletes whole runs, never a part of one. With an archive it
// deletes a run only if the archived file has the run's present [RunSize].
//
// All of it may run beside live traffic and in several processes at once. Verify and export take no locks. Rebuild
// takes the lock of one run, as an append does. Retention skips runs and streams that others have locked.
package upkeep
