package pg

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// recheckStandbys is how long a database without synchronous standbys is not asked again whether it has some.
const recheckStandbys = 10 * time.Second

// Durability waits for what others have written. An answer that reports what an earlier request wrote, without writing
// anything itself, needs it.
type Durability struct {
	pool *pgxpool.Pool
	now  func() time.Time
	// asynchronous is until when the database counts as one without synchronous standbys, in nanoseconds since 1970.
	asynchronous atomic.Int64
}

// NewDurability returns a Durability for the pool's database. Now is its clock.
func NewDurability(pool *pgxpool.Pool, now func() time.Time) *Durability {
	return &Durability{pool: pool, now: now}
}

// Await waits until everything that is visible now is as durable as the database's settings demand of a commit.
//
// With a synchronous standby, rows can be visible before they are on the standby: their session stopped waiting when
// its client gave up, or the primary crashed while it waited. A failover loses them. The standby receives the log in
// order, so a commit of our own that waits for the standby covers them. Without synchronous standbys this costs one
// short read every ten seconds.
func (d *Durability) Await(ctx context.Context) error {
	if d.now().UnixNano() < d.asynchronous.Load() {
		return nil
	}
	// A transactional message is the smallest write. A transaction that writes nothing would not wait.
	var synchronous bool
	err := d.pool.QueryRow(ctx, `
		SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
			THEN pg_logical_emit_message(true, 'stepwell', ''::text) IS NOT NULL ELSE false END`).Scan(&synchronous)
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	if !synchronous {
		d.asynchronous.Store(d.now().Add(recheckStandbys).UnixNano())
	}
	return nil
}
