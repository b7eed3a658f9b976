// Package engine replays a workflow against the log of its run.
//
// It imports only the standard library, and neither reads the clock nor does I/O: time comes from the log, and effects
// from the functions it is given. So the same log gives the same commands.
//
// # Rounds
//
// The code of a workflow runs in coroutines, of which one runs at a time (coroutine.go). An invocation is a loop of
// rounds, and a round has four parts:
//
//  1. All coroutines run, in the order of their creation, until all of them rest.
//  2. What they asked for since the last rest is matched with the log (match.go). If they disagree, the code has
//     changed in a way that does not fit the run, and nothing is written or begun.
//  3. What is not in the log yet becomes commands, and inline operations begin. What must be on disk before is written
//     (effects.go).
//  4. The next event or inline result is delivered (order.go).
//
// # The order of deliveries
//
// World events are those that others cause: results of remote steps and children, ends of waits, payloads of hooks.
// They are delivered in the order of the log. The result of an inline operation is recorded by the function itself,
// when it writes to the log, so its event may stand behind world events that the code had not seen. Each recorded
// result therefore says how much of the log had been delivered before it (seen). A replay delivers it after the world
// events up to that position, and before those beyond.
//
// Live and replayed, the sequence of deliveries is the same function of the log. The same sequence makes the same code
// ask for the same things, however the run was divided into invocations.
//
// # Invocations
//
// An invocation ends when all coroutines wait for world events. Its answer says for which (await.go). Then either all
// coroutines are ended, and the next invocation begins from the log, or they stay as they are and the next invocation
// goes on with the new events, if these show that the answer was not lost (warm.go).
//
// An inline operation whose attempt fails is tried again: a step by the server, anything else by later invocations. Its
// failed attempts are in the log and change nothing for the code.
package engine
