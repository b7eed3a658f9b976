// Package queue says when work runs: it keeps messages until the functions they are for have
// acknowledged them, and delivers them by HTTP.
//
// It imports packages entities, eventlog, queue/condition, queue/contract, queue/egress and queue/signing.
//
// A message is a row; the row is the promise (I6). Its due_at is the one instant that matters: when it
// passes, the message gets a new ticket, a River job that may deliver it once. That holds for a delay
// that is over, for a lease that ran out, and for a ticket that got lost with its process:
//
//	         send                  claim                     acknowledge
//	(delayed) ──due──▶ (ticketed) ──────▶ (leased) ──────────────────────▶ gone
//	    ▲                  ▲  │ due          │  │
//	    │                  └──┘              │  └─ due, given back: a new ticket, or parked
//	    └────────────────────────────────────┘     after too many deliveries
//	           failed: due after the backoff
//
// A ticket has a number, and a claim uses it up: of any number of tickets with it, one delivers. A claim
// makes a fresh receipt handle; whoever acknowledges, extends or gives back must show it, so a stale
// delivery can change nothing.
//
// What a process accepts that delivers as well needs no ticket: it is stored leased to that process, and delivered as
// soon as it is committed (direct.go). Tickets are for what comes later, for what comes from elsewhere, and for what
// there is no place for.
//
// The lease is held by the process that makes the call, and lost with it, until the function extends it:
// from then on the lease is the function's own. See process.go for how processes know of each other.
//
// All times are the database's, so processes whose clocks differ agree on what is due.
package queue
