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
	// retryPause is about how long the second retry waits; each further one waits twice as long.
	retryPause      = 10 * time.Millisecond
	rollbackTimeout = 5 * time.Second
)

// InTx runs fn in a transaction, commits it when fn returns nil and rolls it back otherwise. A deadlock, a
// serialization failure or a lost race to create a run makes it try again, so fn must have no effects but
// those of the transaction. In the module only this file begins transactions.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return retry(ctx, func() error { return InTxOnce(ctx, pool, pgx.TxOptions{}, fn) })
}

// again tries a transaction until it has got through, or there is no sense in it.
func retry(ctx context.Context, tx func() error) error {
	for try := 1; ; try++ {
		err := tx()
		if err == nil || try == maxTries || !Retryable(err) {
			return err
		}
		if try > 1 { // not by chance: somebody is in the way, who should not be met in step
			d := retryPause << (try - 2)
			Sleep(ctx, d/2+rand.N(d)) //nolint:gosec // chance enough
		}
	}
}

// InTxThen is [InTx] for a transaction that something follows. What fn returns is called once the transaction is over:
// with nil when it was committed, and else with why it was not. Of that only the database is certain, for it may be
// the answer to the commit that got lost.
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

// steps is a transaction that waits for the database no more often than it needs answers: its first statements go with
// its begin, and its last with the commit.
type Pipelined struct {
	// first queues the statements that the begin takes along.
	First func(*pgx.Batch)
	// then goes on when they were executed. What it queues goes with the commit. What it returns is called in the end,
	// as with [InTxThen].
	Then func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error)
}

// run is [InTxThen] for a transaction in steps.
func (s Pipelined) Run(ctx context.Context, pool *pgxpool.Pool) error {
	var ended func(error)
	err := retry(ctx, func() (err error) {
		ended, err = s.try(ctx, pool)
		return err
	})
	if ended != nil {
		ended(err)
	}
	return err
}

func (s Pipelined) try(ctx context.Context, pool *pgxpool.Pool) (ended func(error), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer conn.Release()
	var first, last pgx.Batch
	first.BeginTx(pgx.TxOptions{})
	s.First(&first)
	begun := conn.SendBatch(ctx, &first)
	tx := begun.Tx()
	defer func() {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			rollback(ctx, tx)
		}
	}()
	if err := begun.Close(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	if ended, err = s.Then(ctx, tx, &last); err != nil {
		return nil, err
	}
	last.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != `COMMIT` {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	if err := conn.SendBatch(ctx, &last).Close(); err != nil {
		return ended, fmt.Errorf("commit: %w", err)
	}
	return ended, nil
}

// SendQueued executes what was queued so far, and empties the batch.
func SendQueued(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	queued := *b
	*b = pgx.Batch{}
	return tx.SendBatch(ctx, &queued).Close()
}

// rollback ends a transaction, if it has not ended. Its caller may be gone; the connection must come back clean all
// the same.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// InSnapshot runs fn in a transaction that only reads, and in which all reads see the same moment.
func InSnapshot(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return InTxOnce(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
}

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

func Retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	const serializationFailure, deadlock = "40001", "40P01"
	return pg.Code == serializationFailure || pg.Code == deadlock ||
		ViolatedConstraint(err) == "runs_pkey" // another transaction created the run between our read and our insert
}

// violated is the name of the constraint that an error is about; empty when it is about none.
func ViolatedConstraint(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	return pg.ConstraintName
}
