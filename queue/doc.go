// Package queue stores messages until the functions they are for have acknowledged them, and delivers them by HTTP.
//
// A message may also be a piece of work that the server does itself. The queue delivers work to a [Handler] of its kind
// and knows nothing else about it; package queue/engine has the handlers.
//
// It imports packages entities, eventlog, queue/cluster, queue/contract, queue/egress, queue/signing and queue/tickets.
//
// A message is a row, and the row is the promise (I6). When its due_at passes, the message gets a new ticket: a River
// job that may deliver it once. This covers a delay that is over, a lease that ran out, and a ticket that was lost with
// its process:
//
//	         send                  claim                     acknowledge
//	(delayed) ──due──▶ (ticketed) ──────▶ (leased) ──────────────────────▶ gone
//	    ▲                  ▲  │ due          │  │
//	    │                  └──┘              │  └─ due, given back: a new ticket, or parked
//	    └────────────────────────────────────┘     after too many deliveries
//	           failed: due after the backoff
//
// A ticket has a number, and a claim uses the number up: of all tickets with the same number, one delivers. A claim
// makes a fresh receipt handle. To acknowledge, extend or release the message one must show the handle, so a stale
// delivery can change nothing.
//
// A process that both accepts and delivers needs no ticket: it stores the message leased to itself, and delivers it
// right after the commit (dispatcher.go). Tickets are for messages that are due later, that come from another process,
// or for which the process has no place.
//
// The lease is held by the process that makes the call, and lost with it, until the function extends it: from then on
// the lease is the function's own. Package queue/cluster describes how processes detect each other's death.
//
// A [Worker] delivers until it is stopped. A [Drainer] delivers until there is nothing left to do, in environments
// where code runs only during requests. Both run the same loop (loop.go).
//
// All times are the database's, so that processes with different clocks agree on what is due.
package queue
