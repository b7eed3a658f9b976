package read

import (
	"context"
	"math"
)

const (
	// freeBytes is how many bytes of payloads one read may load without taking memory.
	freeBytes = 64 << 10
	unlimited = math.MaxInt64
)

// memory is what a request may use for the payloads that it reads. It is not safe for concurrent use.
type memory struct {
	take       func(ctx context.Context, bytes int64) error
	held, used int64
}

type memoryKey struct{}

// WithMemory returns a context in which reads take memory before they load payloads. Take waits until the request may
// use that many more bytes, or fails. The caller takes the memory back when the request ends. Reads in other contexts
// take no memory, and neither do followers and tails, which load little at a time.
func WithMemory(ctx context.Context, take func(ctx context.Context, bytes int64) error) context.Context {
	return context.WithValue(ctx, memoryKey{}, &memory{take: take})
}

// ReuseMemory tells that the request needs no payload any more that it has read up to now. It keeps their memory, for
// the payloads that it reads next.
func ReuseMemory(ctx context.Context) {
	if m, ok := ctx.Value(memoryKey{}).(*memory); ok {
		m.used = 0
	}
}

// TakeMemory takes memory for bytes that the request is about to load.
func TakeMemory(ctx context.Context, bytes int64) error {
	m, ok := ctx.Value(memoryKey{}).(*memory)
	if !ok {
		return nil
	}
	if missing := m.used + bytes - m.held; missing > 0 {
		if err := m.take(ctx, missing); err != nil {
			return err
		}
		m.held += missing
	}
	m.used += bytes
	return nil
}

// freeLimit returns how many bytes of payloads the next read may load without taking more memory.
func freeLimit(ctx context.Context) int64 {
	m, ok := ctx.Value(memoryKey{}).(*memory)
	if !ok {
		return MaxPageBytes
	}
	return max(freeBytes, m.held-m.used)
}

// loadCounted loads payloads and takes memory for them. Load reads the rows, but leaves out payloads beyond a number of
// bytes in total. It returns the size of all payloads, including those left out. If that is small, as it mostly is,
// load is called once. Otherwise it is called again when there is memory for all of them.
func loadCounted(ctx context.Context, load func(limit int64) (size int64, err error)) error {
	if ctx.Value(memoryKey{}) == nil {
		_, err := load(unlimited)
		return err
	}
	size, err := load(freeBytes)
	if err != nil || size <= freeBytes {
		return err
	}
	if err := TakeMemory(ctx, size); err != nil {
		return err
	}
	_, err = load(unlimited)
	return err
}
