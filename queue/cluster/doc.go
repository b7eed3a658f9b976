// Package cluster has the server processes of one database look after each other's work: each shows by its heartbeat
// that it lives, the others take over from one that died, and one at a time sweeps for runs that have no way to move.
//
// It imports packages entities, eventlog, queue/continuation and queue/tickets.
package cluster
