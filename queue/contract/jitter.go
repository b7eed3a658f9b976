package contract

import (
	"math/rand/v2"
	"time"
)

// Jitter reduces d randomly by up to a quarter, so that calls that failed together are not retried together.
func Jitter(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d - rand.N(d/4) //nolint:gosec // needs no cryptographic randomness
}
