package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// AwaitDurable waits until everything that is visible now is as durable as the database's settings demand of a commit.
// An answer that reports what an earlier request wrote, without writing anything itself, needs it.
//
// With a synchronous standby, rows can be visible before they are on the standby: their session stopped waiting when
// its client gave up, or the primary crashed while it waited. A failover loses them. The standby receives the log in
// order, so a commit of our own that waits for the standby covers them. Without synchronous standbys this is one short
// read.
func AwaitDurable(ctx context.Context, pool *pgxpool.Pool) error {
	// A transactional message is the smallest write. A transaction that writes nothing would not wait.
	_, err := pool.Exec(ctx, `
		SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
			THEN pg_logical_emit_message(true, 'stepwell', ''::text) END`)
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return nil
}
