package pgtx_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/pgtx"
)

// The parts of an app that are not of interest here.
type (
	Order   struct{ ID string }
	Receipt struct{ Number int }
)

var (
	pool     *pgxpool.Pool
	stepwell struct{ IdempotencyKey func(context.Context) string } // the Go SDK
)

func insertReceipt(context.Context, pgx.Tx, Order) (Receipt, error) { return Receipt{}, nil }

func ExampleStepwell_StartTx() {
	ctx, id, total, order := context.Background(), "12345", 5, Order{ID: "12345"}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, total); err != nil {
			return err
		}
		_, err := pgtx.Default.StartTx(ctx, tx, pgtx.Start{Workflow: "order", Input: order})
		return err
	})
	_ = err
}

func charge(ctx context.Context, order Order) (Receipt, error) {
	return pgtx.Step(ctx, pool, pgtx.Default, stepwell.IdempotencyKey(ctx), func(ctx context.Context, tx pgx.Tx) (Receipt, error) {
		return insertReceipt(ctx, tx, order)
	})
}

func ExampleStep() { _ = charge }
