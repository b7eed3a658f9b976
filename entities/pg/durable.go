package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Durable is an expression that makes the commit of a statement wait until everything that is visible to it is as
// durable as the database's settings demand. See [AwaitDurable], which is for answers that read nothing more.
//
// A transactional message is the smallest write. A transaction that writes nothing would not wait.
const Durable = `CASE WHEN current_setting('synchronous_standby_names') <> ''
	THEN pg_logical_emit_message(true, 'stepwell', ''::text) END`

// AwaitDurable waits until everything that is visible now is as durable as the database's settings demand of a commit.
// An answer that reports what an earlier request wrote, without writing anything itself, needs it.
//
// With a synchronous standby, rows can be visible before they are on the standby: their session stopped waiting when
// its client gave up, or the primary crashed while it waited. A failover loses them. The standby receives the log in
// order, so a commit of our own that waits for the standby covers them. Without synchronous standbys this is one short
// read.
func AwaitDurable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `SELECT `+Durable)
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return nil
}
