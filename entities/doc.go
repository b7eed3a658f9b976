// Package entities says what exists in Stepwell: runs, steps, hooks, waits, streams and events, with
// their IDs, statuses, errors and transition tables, and the SQL of each entity's own table.
//
// It imports nothing else of the module. Its write functions only queue statements on a batch; package
// eventlog is the one that sends such batches, inside its transaction.
package entities
