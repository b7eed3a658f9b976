// Package queue stores messages until their functions acknowledge them, and delivers them by HTTP.
//
// A message may also be a piece of work that the server does itself. The queue passes work to the [Handler] of its kind
// and knows nothing else about it; package engine has the handlers.
//
// A message is a row, and it is delivered as long as its row exists (I6). When its due_at passes, the message gets a
// new ticket: a River job that may deliver it once. One rule covers the end of a delay, an expired lease, and a ticket
// lost with its process:
//
//	         send                  claim                     acknowledge
//	(delayed) ──due──▶ (ticketed) ──────▶ (leased) ──────────────────────▶ gone
//	    ▲                  ▲  │ due          │  │
//	    │                  └──┘              │  └─ expired or released: a new ticket, or parked
//	    └────────────────────────────────────┘     after too many deliveries
//	           failed: due after the backoff
//
// Tickets are numbered, and a claim increments the message's number, so only one of several tickets with the same
// number delivers. Each claim makes a new receipt handle. Acknowledging, extending and releasing a message require its
// current handle, so a stale delivery cannot change anything.
//
// A process that both accepts and delivers messages needs no ticket: it stores the message leased to itself and
// delivers it right after the commit (dispatcher.go). Tickets are for messages that are due later, that were sent by
// another process, or that arrive when the process has no free slot.
//
// # Fairness
//
// Projects share the slots for deliveries, the memory for bodies, and the slots to start a delivery (capacity/share).
// A project may hold four times as much as is free, so that one alone gets nearly everything and a newcomer always
// finds something. Deliveries of messages without a ticket, and of those with one, have half of the slots each: a
// stream of new messages cannot starve the old ones.
//
// The loop issues tickets project by project, for as many messages as there are slots in its process, and at most 100
// that wait to be used (issue.go). So a project with a large backlog has few tickets ahead of another's. A process that
// fetches a ticket without having a slot for it gives the ticket up, and the message gets another one.
//
// The calling process holds the lease until the function extends it; from then on the function does. A dead process
// therefore loses only the leases that its functions have not extended. Package queue/cluster describes how processes
// detect each other's death.
//
// A [Worker] delivers until it is stopped. A [Drainer] delivers until it is idle, for environments where code runs only
// during requests. Both run the same loop (loop.go).
//
// All times are the database's, so that processes with different clocks agree on which messages are due.
package queue
