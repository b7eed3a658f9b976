// Package pg is Stepwell's toolkit for Postgres: transactions, reading rows and pages, statements that apply only if
// a run is unchanged, group commit, and notifications between processes. It knows no table but runs, whose row is the
// lock of the write path.
//
// No other package begins transactions.
//
// # Reading
//
// Functions that read take a [Querier], which a pool, a connection and a transaction implement. [CollectOne],
// [CollectAll] and [CollectPage] turn rows into structs, [CollectValue] and [CollectColumn] into single values;
// [LoadInto], [LoadEach] and [LoadOf] are for queries that are queued on a batch. A list is read by [Page] and cursor.
// [Pool] is a pool whose single statements survive changes of the schema.
//
// # Writing
//
// A function that changes the rows of a run adds a [Write] to a [Writer]. The caller chooses how the writes are
// executed:
//
//   - [Batch] sends them one after the other, in a transaction that holds the lock on the run's row.
//   - [Conditional] makes one statement of them that takes no lock beforehand and applies only if the run is unchanged
//     since it was read (compare-and-set). It can be a transaction by itself.
//
// [GroupCommit] lets statements of different requests share one transaction, and so one round trip and one write of
// the WAL to disk.
//
// # Transactions
//
// [InTx] runs a function in a transaction and retries conflicts; [InTxBatch] is for a transaction that only executes
// statements. [InTxThen] also reports the outcome to the code that prepared the transaction, [Pipelined] and
// [CheckThen] save its round trips, and [InSnapshot] is for consistent reads.
//
// # Notifications
//
// [Hub] tells other processes that there is something new. Hints may be lost: they only make polling faster.
package pg
