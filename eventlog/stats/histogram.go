package stats

import (
	"math"
	"time"
)

// histogram counts durations by their class.
type histogram map[int16]int64

// upperBound returns the longest duration of a class. The first class is 1.
func upperBound(class int16) time.Duration {
	return time.Duration(math.Pow(2, float64(class-1)/2) * float64(time.Millisecond))
}

// Percentiles say how long something took. They are exact to ±19 %; a duration of less than 1 ms counts as 1 ms.
type Percentiles struct {
	P50, P95, P99 time.Duration
}

// percentiles returns nil if nothing was counted.
func (h histogram) percentiles() *Percentiles {
	total := int64(0)
	for _, count := range h {
		total += count
	}
	if total == 0 {
		return nil
	}
	return &Percentiles{h.quantile(total, 0.5), h.quantile(total, 0.95), h.quantile(total, 0.99)}
}

// quantile returns the middle, by proportion, of the class in which the quantile of all durations is.
func (h histogram) quantile(total int64, q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(total)))
	for class := int16(1); ; class++ {
		if rank -= h[class]; rank > 0 {
			continue
		}
		if class == 1 {
			return upperBound(class)
		}
		return time.Duration(float64(upperBound(class)) / math.Pow(2, 0.25))
	}
}
