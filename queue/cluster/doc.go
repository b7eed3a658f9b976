// Package cluster makes the server processes of one database do each other's work when one dies. Each process sends
// heartbeats, the others take over from a process that died, and one process at a time sweeps for stranded runs.
//
// # Dead, slow and frozen processes
//
// Every process beats once a second, on a connection of its own, so that a busy pool cannot delay the beat. One
// statement writes the process's row in processes, and returns the processes whose beats are missing and when the next
// message is due: a message whose hint got lost is found with the next beat, and an idle process need not search for
// due messages itself. The same connection holds an advisory lock, which Postgres frees when the process is gone.
//
// A process is dead when its beats have been missing for 2.5 s and its lock is free, or when its beats have been
// missing for 15 s. A process that is merely slow still holds its lock, so it keeps its leases for those 15 s. A
// process that was away itself, because it was frozen or could not reach the database, suspects nobody until its own
// beats have been steady for as long as the others' have been missing.
//
// One statement takes over ([TakeOver]): it deletes the row of the dead process, ends the leases that the process held,
// deletes the tickets it was using, and makes the messages due. Only the process that deletes the row takes over. A
// delivery lost this way is not counted: a server that keeps crashing must not use up the deliveries of a healthy
// message.
//
// A function reaches the queue through any server: the death of the server that made the call says nothing about its
// work. The client of @stepwell/world and the Go SDK say after a second and then every three that their function works
// (kept_until).
// If it did until its server died, the lease stays with the function, for [KeptLease] after each time. A lease that
// another client has extended stays as well, until it runs out (protocol §5.5).
//
// A server that shuts down leaves the leases that outlast its grace period to their functions, until 40 s after the
// call, or for 15 s if the functions say that they work. They last for [KeptLease] once calls of the same deployment
// are cut off or refused: then the functions have probably died with their app.
//
// A process that was frozen and continues finds its receipt handles dead. Every change of a lease names its handle, and
// every claim a ticket's number, and the process that took over has used both up. Postgres has ended the transactions
// it was in (idle_in_transaction_session_timeout). A process that was only cut off from the database has no row any
// more, so it claims nothing until its next beat.
//
// # Stranded runs
//
// A run that has not ended must have a way to move (I5):
//
//   - a message about it that is due, leased, retried after a failure, or parked,
//   - a wait or a step's retry that is not due yet, or
//   - an open hook, if a delivery has seen all results of steps and all payloads of hooks.
//
// A run whose function has said what it awaits moves when that ends: the steps that it awaits must be open, and it has
// a message if it awaits a time.
//
// A message whose delay is not over is no way to move: what the run waits for has its own time, and a message that
// comes later than that comes too late. Clients of the 5.x line send such messages as backstops, due in 15 minutes.
//
// A run without a way to move is stranded, 30 s after the time of what it waits for. This happens when a client dies
// between writing an event and sending the message that belongs to it. The sweeper then enqueues what the client would
// have sent: a continuation, with which the client replays the log and sends whatever is missing. For a run that the
// server continues it enqueues the missing work. Before that it deletes idempotency keys whose messages are gone, since
// the queue would otherwise drop the client's repeated messages as duplicates.
//
// The sweeper knows which events a run has seen without asking it: each delivery notes how long the run's log is when
// it starts, and its acknowledgement stores that length for runs with hooks. A later payload has been seen by no
// delivery.
//
// A sweep reads 1,000 open runs every 10 s, whatever the number of servers, and continues where the last one
// stopped. A sweep over 1,000 runs without a message takes about 25 ms; a run with a message costs a single index
// probe. The index over the open runs has only columns that change once in a run's life: indexing updated_at would make
// every event more expensive. A batch that fails is skipped until the next round. A run that does not move is woken
// again after 1, 2, 4, … minutes, at most every hour; meanwhile stepwell_runs_stranded counts it.
package cluster
