package share

import "context"

// largeValue is from how many bytes a value is work that a processor does for long: half a millisecond or more.
const largeValue = 64 << 10

// Processors bounds the work with large values. Goroutines have no priorities: each one that computes for long delays
// all others that get ready by up to 10 ms, each time, and a run that waits a dozen times for a dozen of them takes
// seconds. So large values have half of the processors, in turns for the projects that use them.
type Processors struct{ slots *Pool }

// NewProcessors returns the slots for work with large values on so many processors.
func NewProcessors(n int) *Processors { return &Processors{NewPool(max(1, int64(n)/2))} }

// Use does work with a value of so many bytes: at once if they are few, and else when the key of the context may. It
// fails only if the context ends before. The work must not use a slot itself.
func (p *Processors) Use(ctx context.Context, bytes int64, work func() error) error {
	if bytes < largeValue {
		return work()
	}
	key := KeyOf(ctx)
	if err := p.slots.Take(ctx, key, 1, 1); err != nil {
		return err
	}
	defer p.slots.Release(key, 1)
	return work()
}
