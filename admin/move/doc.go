// Package move moves a project from the database of one cell to that of another one, while others use both. It has
// connections to both; the cells know nothing of each other.
//
//  1. A transaction of the target begins, with a lock on the project's name: one command at a time moves or gives up.
//  2. Ahead: runs that have ended, with all that belongs to them, are copied in small transactions while the project is
//     used. Triggers of the source note which of them change from then on, and which runs end, and those are copied
//     again, until few are left. In the target it is as if the project had left: nobody reads or touches its rows.
//  3. The fence: the source notes the departure, and its triggers refuse every write of the project from then on.
//     Making them waits for the transactions that have written before.
//  4. The rest: open runs, what has changed since, and the rows of the project that are not of runs, from one snapshot
//     of the source, and the arrival, are committed in the target by the transaction that began first. That is the
//     point of no return: whether the target has the arrival decides where the project is.
//  5. The source is marked, so that it refuses requests and says where they belong, and its rows are deleted in
//     batches.
//
// A command that dies ahead of the fence leaves copies that nobody sees, one after it the fence, and one after the
// commit a source that refuses writes. Another one goes on there. Every step may be repeated.
//
// How far the copy is stands in the target, and changes in the transactions that copy. Changes are known by the
// transactions that made them: what a snapshot may not have seen, because its transaction was open, is copied again.
//
// It may import pg, admin and admin/encryption.
package move
