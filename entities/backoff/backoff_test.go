package backoff_test

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/backoff"
)

// TestPause draws each pause many times: none is longer than the table's or shorter by more than a quarter, and they
// differ.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		first, longest time.Duration
		factor         float64
		failures       int
		want           time.Duration
	}{
		{time.Second, time.Minute, 2, 1, time.Second},
		{time.Second, time.Minute, 2, 4, 8 * time.Second},
		{time.Second, time.Minute, 2, 7, time.Minute},
		{time.Second, time.Minute, 2, 10_000, time.Minute},
		{time.Second, time.Hour, 1.5, 3, 2250 * time.Millisecond},
		{time.Second, time.Hour, 1, 9, time.Second},
		{time.Second, time.Hour, 1000, 2000, time.Hour},
		{time.Hour, time.Minute, 2, 1, time.Minute},
		{0, time.Minute, 2, 2000, 0},
	} {
		least, most := tt.want, time.Duration(0)
		for range 50 {
			d := backoff.Pause(tt.first, tt.longest, tt.factor, tt.failures)
			least, most = min(least, d), max(most, d)
		}
		if most > tt.want || least < tt.want*3/4 {
			t.Errorf("%+v: got %s to %s", tt, least, most)
		}
		if least == most && tt.want > 0 {
			t.Errorf("%+v: it is always %s, want it spread", tt, least)
		}
	}
}
