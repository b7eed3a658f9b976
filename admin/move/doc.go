// Package move moves a project from the database of one cell to that of another one, while others use both. It has
// connections to both; the cells know nothing of each other.
//
//  1. The target's transaction begins, with a lock on the project's name: one command at a time moves or gives up.
//  2. The fence: the source notes the departure, and its triggers refuse every write of the project from then on.
//     Making them waits for the transactions that have written before.
//  3. The copy: all rows of the project, from one snapshot of the source, and the arrival, are committed in the target.
//     That is the point of no return: whether the target has the arrival decides where the project is.
//  4. The source is marked, so that it refuses requests and says where they belong, and its rows are deleted in
//     batches.
//
// A command that dies before the commit leaves the fence, and one after it a source that refuses writes, which is where
// another one goes on. Every step may be repeated.
//
// It may import pg and admin.
package move
