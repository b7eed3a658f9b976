package hostile

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestHungStepsLeaveRoomForOthers hangs 5,000 steps of one project, more than the server has places for deliveries.
func TestHungStepsLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	f.wantUnharmed(t, func() func() {
		for range 50 {
			f.attacker.start(t, "hang", 100)
		}
		harness.Eventually(t, "1,000 steps hang", func() bool { return f.function.hanging.Load() >= 1000 })
		return func() {}
	})
}
