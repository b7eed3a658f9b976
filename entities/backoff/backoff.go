// Package backoff says how long to wait before what failed is tried again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Pause returns the pause after a number of failures: first, times factor with each further failure, up to longest. It
// is randomly reduced by up to a quarter, so that what failed together is not retried together.
func Pause(first, longest time.Duration, factor float64, failures int) time.Duration {
	pause := min(float64(first), float64(longest))
	for range failures - 1 {
		pause = min(pause*factor, float64(longest))
	}
	d := time.Duration(pause)
	if d < 4 {
		return d
	}
	return d - rand.N(d/4) //nolint:gosec // needs no cryptographic randomness
}
