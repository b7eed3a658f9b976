package pg

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// clockInterval is how often [Clock.Run] compares the clocks.
	clockInterval = 30 * time.Second
	// clockNoise is the difference up to which the clocks count as equal, besides half of the time that the answer took.
	clockNoise = 10 * time.Millisecond
	// promptAnswer is the time of an answer that is not worth another try, of which there are clockTries.
	promptAnswer = time.Millisecond
	clockTries   = 3
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

// Now returns the time of the database, within a hundredth of a second if it answers quickly.
func (c *Clock) Now() time.Time { return time.Unix(0, c.zero.Load()).Add(c.elapsed()) }

// Compare compares the clock with the database's, and sets it if they differ. Of some answers it takes the quickest:
// the first one on a new connection is slow, and where within that time the database read its clock is unknown.
func (c *Clock) Compare(ctx context.Context, pool *pgxpool.Pool) error {
	best := clockReading{took: math.MaxInt64}
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		for try := 0; try < clockTries && best.took > promptAnswer; try++ {
			r, err := c.read(ctx, conn)
			if err != nil {
				return err
			}
			if r.took < best.took {
				best = r
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	// A slow answer, as from a busy database, does not prove a change.
	if time.Duration(best.zero-c.zero.Load()).Abs() > best.took/2+clockNoise {
		c.zero.Store(best.zero)
	}
	return nil
}

// clockReading is what an answer of the database tells: its time when elapsed was 0, plus or minus half of the time
// that the answer took.
type clockReading struct {
	zero int64
	took time.Duration
}

func (c *Clock) read(ctx context.Context, conn *pgxpool.Conn) (r clockReading, err error) {
	var theirs time.Time
	before := c.elapsed()
	err = conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs)
	r.took = c.elapsed() - before
	r.zero = theirs.UnixNano() - int64(before+r.took/2)
	return r, err
}

// Run compares the clocks until the context ends. While the database is away, the last time that was read holds.
func (c *Clock) Run(ctx context.Context, pool *pgxpool.Pool) {
	for sleep(ctx, clockInterval) {
		_ = c.Compare(ctx, pool)
	}
}
