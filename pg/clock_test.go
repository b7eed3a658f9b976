package pg

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestSlowAnswersDoNotMoveTheClock: the clock is that of the database. Answers that waited long, as the first one on a
// new connection, are inexact: a quick one counts instead, and if all are slow, they change nothing. A comparison that
// shows another time does.
func TestSlowAnswersDoNotMoveTheClock(t *testing.T) {
	t.Parallel()
	pool := check.Value(pgxpool.New(t.Context(), testdb.New(t)))(t)
	t.Cleanup(pool.Close)
	const wait = 20 * time.Second // of a slow answer
	var behind time.Duration
	var slow []time.Duration
	var readings int
	start := time.Now()
	c := NewClock(func() time.Duration {
		elapsed := time.Since(start) - behind
		if before := readings%2 == 0; before && len(slow) > 0 { // the reading before the wait
			elapsed, slow = elapsed-slow[0], slow[1:]
		}
		readings++
		return elapsed
	})
	const most = 2 * time.Second // the machine may be busy
	for _, step := range []struct {
		what   string
		behind time.Duration
		slow   []time.Duration
	}{
		{"the first answer is slow", 0, []time.Duration{wait}},
		{"equal clocks", 0, nil},
		{"equal clocks, slow answers", 0, []time.Duration{wait, wait, wait}},
		{"a clock that is behind", time.Minute, nil},
		{"the same clock, slow answers", time.Minute, []time.Duration{wait, wait, wait}},
		{"a correct clock again, after a slow answer", 0, []time.Duration{wait}},
		{"a clock that is behind, and the second answer is the quickest", time.Minute, []time.Duration{wait, time.Second, wait}},
	} {
		behind, slow, readings = step.behind, step.slow, 0
		check.NoError(t, c.Compare(t.Context(), pool))
		if len(slow) > 0 {
			t.Errorf("%s: %d of them were not asked for", step.what, len(slow))
		}
		if off := time.Since(c.Now()); off.Abs() > most {
			t.Errorf("%s: the time is off by %s", step.what, off)
		}
	}
}
