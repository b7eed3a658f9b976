// Package upkeep maintains the runs that package eventlog writes: it verifies their rows against the log and rebuilds
// them, exports and imports whole runs, and deletes expired ones.
//
// The log is the truth and the rows are its fold (I2). Nothing here appends through the decisions of package eventlog:
// verify and rebuild repeat its fold in bounded memory, and an import copies events as they were logged.
//
// It imports packages entities, entities/admin, entities/pg, entities/store, eventlog and eventlog/read.
package upkeep
