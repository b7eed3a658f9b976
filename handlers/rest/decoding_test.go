package rest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestDecodingLeavesTimeToOthers: a slot of a project stays empty for as long as it was used; others have slots.
func TestDecodingLeavesTimeToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDecoding(2, time.Now)
		start := time.Now()
		for _, c := range []struct {
			project entities.Project
			want    time.Duration // since the start, at the end
		}{
			{"busy", time.Second}, {"other", 2 * time.Second}, {"busy", 3 * time.Second}, {"busy", 5 * time.Second},
		} {
			check.NoError(t, d.do(t.Context(), c.project, func() { time.Sleep(time.Second) }))
			check.Equal(t, fmt.Sprintf("decoding for %s", c.project), time.Since(start), c.want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.do(ctx, "busy", func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a client that left while it waited", err)
		}
		time.Sleep(time.Minute)
		check.Equal(t, "slots are free", d.slots.Free(), 2)
	})
}

// TestDecodingSlots: a project has an eighth of the processors, which is slots for a quarter of them, half of the time.
func TestDecodingSlots(t *testing.T) {
	t.Parallel()
	for processors, want := range map[int]int64{1: 1, 2: 1, 4: 1, 6: 1, 8: 2, 16: 4, 64: 16} {
		d := newDecoding(processors, time.Now)
		if got := d.slots.Room("p", decodingFactor); got != want || d.slots.Free() != 2*want {
			t.Errorf("%d processors: a project has %d of %d slots, want %d of %d",
				processors, got, d.slots.Free(), want, 2*want)
		}
	}
}
