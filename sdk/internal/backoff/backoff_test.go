package backoff_test

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/backoff"
)

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
		{time.Second, time.Minute, 2, 10_000, time.Minute},
		{time.Second, time.Hour, 1.5, 3, 2250 * time.Millisecond},
		{time.Hour, time.Minute, 2, 1, time.Minute},
	} {
		if got := backoff.Pause(tt.first, tt.longest, tt.factor, tt.failures); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}
