// Package read answers questions about the log: it reads events by run, by project and by position, the history of
// hooks and waits, and streams; it follows logs as they grow, and waits for the ends of runs. It writes no events, but
// does write [Streams], which are not part of the log.
//
// Package eventlog embeds [Log].
//
// Lists of events come in two orders. The log of a run is ordered by the positions of its events. The events of a
// project are ordered by transaction, run and position, and an event is listed only once no open transaction can add
// one before it. Readers that keep a cursor therefore miss nothing in either order.
//
// Readers that wait subscribe to the notifications that follow a commit. Notifications may get lost, so readers also
// poll, every few seconds. Those that wait at the end of the same list share one subscription, one poll and what it
// reads: see tail. All together they use a limited part of the connections.
package read
