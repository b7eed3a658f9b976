// Package backoff says how long to wait before what failed is tried again.
package backoff

import "time"

// Pause returns the pause after a number of failures: first, times factor with each further failure, up to longest.
func Pause(first, longest time.Duration, factor float64, failures int) time.Duration {
	pause := min(float64(first), float64(longest))
	for range failures - 1 {
		pause = min(pause*factor, float64(longest))
	}
	return time.Duration(pause)
}
