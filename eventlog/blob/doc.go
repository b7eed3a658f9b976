// Package blob keeps large payloads as objects in a bucket or a folder, and their references in the log.
//
// A blob exists from its row on. The row is committed before the object is written; the statement that appends the
// event claims it for the event's run; and the object is deleted before the row. So each object has a row, whatever
// crashes:
//
//	row, without a run → object → event and claim, in one transaction
//	run is deleted, or the append failed → the row has no run → doomed → object is deleted → row is deleted
//
// [Store.Sweep] finds by the rows alone what no run has. It dooms a blob before it deletes anything, and a claim fails
// for a doomed blob: so nothing that an event names is ever deleted. A blob belongs to one run.
//
// An object never changes. Its key is random, so that a database that was restored does not write over objects of the
// history that was lost.
package blob
