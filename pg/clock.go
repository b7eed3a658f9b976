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

// Clock tells the time of the database by the clock of this process and their difference. What is computed from its
// time, such as the end of a wait, is due when the database says so, even if the clock of this process is wrong.
type Clock struct {
	own        func() time.Time
	difference atomic.Int64
}

// NewClock returns a clock that corrects the given one.
func NewClock(own func() time.Time) *Clock { return &Clock{own: own} }

// Now returns the time of the database, within a tenth of a second if it answers quickly.
func (c *Clock) Now() time.Time { return c.own().Add(time.Duration(c.difference.Load())) }

// Compare compares the clocks once.
func (c *Clock) Compare(ctx context.Context, pool *pgxpool.Pool) error {
	var theirs time.Time
	before := c.own()
	if err := pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	took := c.own().Sub(before)
	d, last := theirs.Sub(before.Add(took/2)), time.Duration(c.difference.Load())
	switch {
	case (d - last).Abs() <= took/2+clockNoise: // a slow answer, as from a busy pool, does not prove a change
	case d.Abs() <= clockNoise:
		c.difference.Store(0)
	default:
		c.difference.Store(int64(d))
	}
	return nil
}

// Run compares the clocks until the context ends. While the database is away, the last difference holds.
func (c *Clock) Run(ctx context.Context, pool *pgxpool.Pool) {
	for sleep(ctx, clockInterval) {
		_ = c.Compare(ctx, pool)
	}
}
