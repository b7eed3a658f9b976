// Package limit has limits on what is under way at once and on what begins in a time: their settings, the decision who
// is next, and the rows of what holds a slot or waits for one.
//
// A limit is a name in a project. A run names the limits that it needs, each with a key, or the policy of its workflow
// does. It has a permit for each: a row of the table permits, which waits or is granted. The run begins when all of its
// permits are granted, at once and all together.
//
// A step that the server calls needs slots for each attempt. Its permits belong to its message, which is due only when
// they are granted, and wait again after a failed attempt. They are never granted in the transaction that creates the
// step, so that this locks no limit, but by a pass after it.
//
// # Never more than allowed
//
// Slots are granted under a lock on the limit's row, and what is held is counted in a statement after the one that
// obtained the lock. Postgres lets a lock go after the commit is visible, so that count sees every grant there was. A
// release takes no lock: it deletes the permit, and a count that does not see that yet is only too high.
//
// A new run that finds room takes its slots alone: one statement of its transaction tries the locks, and the next one
// counts and grants ([OptimisticStart.Take]). All others wait for a pass, which does so for many ([Pass]).
//
// Counting in the statement that waits for the lock would be wrong. Its snapshot is from before the wait, so it misses
// the grants of the transaction that it waited for.
//
// # Nothing is left behind
//
// A permit refers to its run and its message by foreign keys that delete it with them.
//
// # Who is next
//
// [Grant] decides that. It is pure.
package limit
