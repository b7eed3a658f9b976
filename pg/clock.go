package pg

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// clockInterval is how often [Clock.Run] compares the clocks.
	clockInterval = 30 * time.Second
	// clockNoise is the difference up to which the clocks count as equal.
	clockNoise = 100 * time.Millisecond
)

// Clock tells the time of the database, by a time that it read there and the time that has passed since. What is
// computed from it, such as the end of a wait, is due when the database says so. The clock of this process has no part
// in it, however wrong that is and whenever somebody sets it.
type Clock struct {
	elapsed func() time.Duration
	zero    atomic.Int64 // the time of the database when elapsed was 0, in ns since 1970
}

// NewClock returns a clock that [Clock.Compare] must set. Elapsed is the time since a fixed moment, by a clock that
// nobody sets.
func NewClock(elapsed func() time.Duration) *Clock { return &Clock{elapsed: elapsed} }

// Now returns the time of the database, within a tenth of a second if it answers quickly.
func (c *Clock) Now() time.Time { return time.Unix(0, c.zero.Load()).Add(c.elapsed()) }

// Compare compares the clock with the database's once, and sets it if they differ.
func (c *Clock) Compare(ctx context.Context, pool *pgxpool.Pool) error {
	var theirs time.Time
	before := c.elapsed()
	if err := pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	took := c.elapsed() - before
	zero := theirs.UnixNano() - int64(before+took/2)
	// A slow answer, as from a busy pool, does not prove a change.
	if time.Duration(zero-c.zero.Load()).Abs() > took/2+clockNoise {
		c.zero.Store(zero)
	}
	return nil
}

// Run compares the clocks until the context ends. While the database is away, the last time that was read holds.
func (c *Clock) Run(ctx context.Context, pool *pgxpool.Pool) {
	for sleep(ctx, clockInterval) {
		_ = c.Compare(ctx, pool)
	}
}
