package queue

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// smallBody is the size in bytes up to which bodies are not counted: even with all deliveries in progress, small bodies
// take little memory.
const smallBody = 16 << 10

// memory limits the total size of the bodies in memory, and grants requests in order, so that small ones cannot starve
// a large one.
type memory struct {
	limit int64
	free  *semaphore.Weighted
}

func newMemory(limit int64) *memory { return &memory{limit, semaphore.NewWeighted(limit)} }

// try takes memory for a body if enough is free now.
func (m *memory) try(size int64) (free func(), ok bool) {
	if size <= smallBody {
		return func() {}, true
	}
	size = min(size, m.limit)
	if !m.free.TryAcquire(size) {
		return nil, false
	}
	return m.lend(size), true
}

// take waits until there is memory for a body. A body larger than the limit gets all of it. Free releases the memory
// and may be called more than once. Take fails with the context's error.
func (m *memory) take(ctx context.Context, size int64) (free func(), err error) {
	if size <= smallBody {
		return func() {}, nil
	}
	size = min(size, m.limit)
	if err := m.free.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return m.lend(size), nil
}

func (m *memory) lend(size int64) (free func()) {
	return sync.OnceFunc(func() { m.free.Release(size) })
}

// sending is the body of a request that releases its memory once it has been sent.
type sending struct {
	mu   sync.Mutex // the transport may close a body while it still reads it
	body []byte
	sent func()
}

// Read implements [io.Reader].
func (s *sending) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.body) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.body)
	s.body = s.body[n:]
	return n, nil
}

// Close implements [io.Closer].
func (s *sending) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.body = nil
	s.sent()
	return nil
}
