package pg

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestSlowAnswersDoNotMoveTheClock: the clock is that of the database. A comparison that waited long for a connection is
// inexact and does not change it; one that shows another time does.
func TestSlowAnswersDoNotMoveTheClock(t *testing.T) {
	t.Parallel()
	pool := check.Value(pgxpool.New(t.Context(), testdb.New(t)))(t)
	t.Cleanup(pool.Close)
	var behind, waited time.Duration
	start := time.Now()
	c := NewClock(func() time.Duration {
		elapsed := time.Since(start) - behind - waited
		waited = 0 // only the first reading of a comparison is from before the wait
		return elapsed
	})
	const most = 2 * time.Second // the machine may be busy
	for _, step := range []struct {
		what           string
		behind, waited time.Duration
	}{
		{"equal clocks", 0, 0},
		{"equal clocks, slow answer", 0, 20 * time.Second},
		{"a clock that is behind", time.Minute, 0},
		{"the same clock, slow answer", time.Minute, 20 * time.Second},
		{"a correct clock again", 0, 0},
	} {
		behind, waited = step.behind, step.waited
		check.NoError(t, c.Compare(t.Context(), pool))
		if off := time.Since(c.Now()); off.Abs() > most {
			t.Errorf("%s: the time is off by %s", step.what, off)
		}
	}
}
