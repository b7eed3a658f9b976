// Package engine continues the runs that the server drives. It has a handler for each kind of work that the queue
// delivers for them.
//
// A run has a driver. Runs of the Workflow SDK are continued by that client, runs started at /v1 by the server. What
// the server still has to do for its runs is stored as work: messages with a kind and a subject. They are written in
// the transaction of the event that makes them necessary, and are leased, delayed, taken over and parked like all
// messages:
//
//	work              subject        handler
//	run               -              calls the run's function: there are new events, or a wait is over
//	step              step           calls the function that executes the step
//	deadline          -              fails the run if it has not ended, or asks it to cancel
//	cancel            grace          asks the run to cancel; without a subject: ends it, since its grace is over
//	report            step           gives the result of a child run to the parent's step
//	end               -              cancels the children of an ended run
//	emit              run and step   posts a signal that a run has sent
//	signal, lookback  signal, hook   gives a signal to triggers and waiting hooks, or earlier signals to a new hook
//	trigger           trigger, event starts the run of a trigger; see package triggers
//
// Work is unique by run, kind and subject, so at most one delivery at a time invokes a run. An event that needs an
// invocation while one is under way marks its work; the answer's transaction then makes the work due again instead of
// deleting it. Work that failed waits for its backoff, and then sees all events there are.
//
// # Invocations
//
// An invocation has three parts: its start, a call, and its end.
//
//   - The start is recorded in the log: run_started and the waits that are over, or step_started for an attempt of a
//     step.
//   - The call carries the log, read after that commit. The function answers with commands. Package contract turns them
//     into requests to the log; they depend on nothing but the command and the run.
//   - One transaction appends the requests and ends or suspends the work. It first checks that the lease is still
//     valid, so that a late answer is refused as a whole. Commands are applied once per ID, so repeating an answer
//     changes nothing. An answer after which the run would have nothing to wait for is refused (I5).
//
// During the call, the function may send commands in requests of its own. Their transaction extends the lease. In a
// process that handles the whole run it is one statement, which requires what is said below.
//
// An answer may say what the run awaits. Package eventlog then decides with each event whether the run is invoked; see
// its file await.go.
//
// # Inline starts
//
// The next work nearly always starts in the process that made it necessary. The transaction then leases the work to
// this process and records its start as well: it stores the work, decides about the start on top of the events decided
// before, and writes everything at once. So a run of three steps takes eight transactions: its start, four answers and
// three results.
//
// Each of them is one statement when one process handles the whole run. Besides the length of the log, the statement
// requires that the lease is valid, that there are no unseen events, and that the process has a row in processes;
// otherwise it does nothing, and the append starts over with the run locked. An answer that ends the run also requires
// that no open child has to end with it. A child can start meanwhile in a transaction that holds a shared lock on the
// parent and does not change the length of its log. So another statement locks the run in the same round trip before,
// and the one after it sees all children.
//
// Work that the process cannot start, because it has no free slot or no row in processes, starts in a transaction of
// its own when a process claims it. So does repeated work. Therefore a start in the log does not mean that the call was
// made. If the answer to the commit got lost, or all slots are taken by then, the process releases the lease, and the
// next holder continues the same attempt; an attempt whose call did not reach its function is continued in the same
// way. If the process died, the next holder starts the work once more. Neither is counted: the attempt number that a
// function receives, and maxAttempts, count calls that were made. Only a step with one attempt is not started once
// more, since nobody knows whether its call was made.
//
// # Short waits
//
// An answer that has the run wait for a few seconds ends the work in the same statement, and the process keeps the time
// in memory. When it has come, one statement ends the wait, leases the work to the process and records its start; see
// short_wait.go. It requires that the work is as the answer left it. The work itself is due a little later than the
// wait ends, so that it gets a ticket only if the process has died or has no slot.
//
// # Flows
//
// The function of a flow is in this process, so that it can be asked before new events are written. When a run is
// created, or the engine records the result of a step or the end of a child, the state of the flow at hand takes in the
// new events and says what follows. The statement that writes the events also writes that, and enqueues no invocation:
// a flow of three steps takes four transactions and three calls. The state counts only if the statement applied. It
// applies if the log is still as long as when the flow decided, if no process is invoking the run, and if something is
// under way for the run afterwards.
//
// Otherwise the new events leave an invocation as for any function, whose answer the flow gives with the log: if the
// result comes to a server that does not have the state or the run at hand, if two servers append at once, and if what
// follows is a child, a hook, a cancellation, or more than one statement has. Results that others than the engine
// record, such as those of async steps, and ends of waits always have the run invoked. The decisions are the same.
package engine
