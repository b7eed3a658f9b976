package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxTries = 5
	// retryPause is about how long the second retry waits; each further retry waits twice as long as the one before.
	retryPause      = 10 * time.Millisecond
	rollbackTimeout = 5 * time.Second
)

// InTx runs fn in a transaction, commits it if fn returns nil and rolls it back otherwise. After a deadlock, a
// serialization failure, a lost race to create a run or to claim a key, [ErrTryAgain], or a stale plan (see [Pool]) it
// tries again, up to five times in all. So fn may run more than once, and must have no effects but those of the
// transaction.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return retry(ctx, pool, func() error { return InTxOnce(ctx, pool, pgx.TxOptions{}, fn) })
}

// InTxBatch is [InTx] for a transaction that only executes statements: those that fn queues.
func InTxBatch(ctx context.Context, pool *pgxpool.Pool, fn func(*pgx.Batch)) error {
	return InTx(ctx, pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		fn(&b)
		return tx.SendBatch(ctx, &b).Close()
	})
}

// InTxThen is [InTx] for work that must learn the outcome, such as a cache that fn has prepared an entry for. The
// function ended that the last try of fn returned is called after the transaction: with nil if it was committed, else
// with the error. An error does not prove that nothing was written: the answer to the commit may be what got lost.
func InTxThen(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) (ended func(error), err error)) error {
	var ended func(error)
	err := InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		ended, err = fn(tx)
		return err
	})
	if ended != nil {
		ended(err)
	}
	return err
}

// InTxOnce is [InTx] with options and without retries.
func InTxOnce(ctx context.Context, pool *pgxpool.Pool, o pgx.TxOptions, fn func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, o)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer rollback(ctx, tx)
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// InSnapshot runs fn in a read-only transaction whose queries all see the database as it was at the first of them.
func InSnapshot(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return InTxOnce(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
}

// SendQueued executes the statements queued on the batch and empties it. It does nothing for an empty batch.
func SendQueued(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	queued := *b
	*b = pgx.Batch{}
	return tx.SendBatch(ctx, &queued).Close()
}

// ErrTryAgain is the error of a transaction that found, under its locks, that it must begin with other ones.
var ErrTryAgain = errors.New("try again")

// Retryable reports whether a transaction that failed with the error may succeed if it is tried again.
func Retryable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	const serializationFailure, deadlock = "40001", "40P01"
	return errors.Is(err, ErrTryAgain) || ok && (pg.Code == serializationFailure || pg.Code == deadlock ||
		// Another transaction created the run, or claimed the key, between our read and our insert.
		pg.ConstraintName == "runs_pkey" || pg.ConstraintName == "message_keys_pkey")
}

// ViolatedConstraint returns the name of the constraint that the error is about; empty for other errors.
func ViolatedConstraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.ConstraintName
	}
	return ""
}

// retry calls tx until it succeeds, fails with an error that is not [Retryable], or has failed maxTries times.
func retry(ctx context.Context, pool *pgxpool.Pool, tx func() error) error {
	for try := 1; ; try++ {
		err := replan(pool, tx)
		if err == nil || try == maxTries || !Retryable(err) {
			return err
		}
		if try > 1 { // a second conflict is no accident: back off, with jitter to get out of step with the other side
			d := retryPause << (try - 2)
			sleep(ctx, d/2+rand.N(d)) //nolint:gosec // jitter needs no cryptographic randomness
		}
	}
}

// rollback rolls the transaction back if it has not ended. The caller's context may have ended; the connection must
// nevertheless return to the pool without an open transaction.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
