package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pipelined is a transaction that pipelines its statements: the first ones are sent together with BEGIN, and the last
// ones together with COMMIT. A transaction that reads once and then writes takes two round trips instead of four.
type Pipelined struct {
	// First queues the statements that are sent with BEGIN.
	First func(*pgx.Batch)
	// Then is called after they were executed. The statements that it queues on last are sent with COMMIT. The function
	// ended that it returns is called after the transaction, as with [InTxThen].
	Then func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error)
}

// Run runs the transaction, with retries, as [InTxThen] does.
func (p Pipelined) Run(ctx context.Context, pool *pgxpool.Pool) error {
	var ended func(error)
	err := retry(ctx, pool, func() (err error) {
		ended, err = p.try(ctx, pool)
		return err
	})
	if ended != nil {
		ended(err)
	}
	return err
}

// CheckThen runs a pipelined transaction that first locks and reads, and then writes. Lock queues the former and
// returns the check of what they found; if it fails, nothing is written.
func CheckThen(
	ctx context.Context, pool *pgxpool.Pool, lock func(*pgx.Batch) (check func() error), write func(*pgx.Batch),
) error {
	var check func() error
	return Pipelined{
		First: func(b *pgx.Batch) { check = lock(b) },
		Then: func(_ context.Context, _ pgx.Tx, last *pgx.Batch) (func(error), error) {
			if err := check(); err != nil {
				return nil, err
			}
			write(last)
			return nil, nil
		},
	}.Run(ctx, pool)
}

// NoCheck is a check for [CheckThen] that queues nothing and never fails.
func NoCheck(*pgx.Batch) (check func() error) { return func() error { return nil } }

// maxAgain is how often [Again] calls in all.
const maxAgain = 10

// Again repeats what has read something that was changed meanwhile, as isChanged says of its error.
func Again(isChanged func(error) bool, do func() error) (err error) {
	for range maxAgain {
		if err = do(); !isChanged(err) {
			return err
		}
	}
	return err
}

func (p Pipelined) try(ctx context.Context, pool *pgxpool.Pool) (ended func(error), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer conn.Release()
	var first, last pgx.Batch
	first.BeginTx(pgx.TxOptions{})
	p.First(&first)
	begun := conn.SendBatch(ctx, &first)
	tx := begun.Tx()
	defer func() {
		// The transaction may be open even after an error of the first batch.
		if conn.Conn().PgConn().TxStatus() != 'I' {
			rollback(ctx, tx)
		}
	}()
	if err := begun.Close(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	if ended, err = p.Then(ctx, tx, &last); err != nil {
		return nil, err
	}
	last.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != `COMMIT` { // Postgres answers ROLLBACK to the COMMIT of a failed transaction
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	if err := conn.SendBatch(ctx, &last).Close(); err != nil {
		return ended, fmt.Errorf("commit: %w", err)
	}
	return ended, nil
}
