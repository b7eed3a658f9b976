package queue

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// smallBody is the largest body whose memory is not counted: even with all deliveries under way, such bodies take
// little.
const smallBody = 16 << 10

// memory limits the bytes of the bodies under way, and grants them in the order of requests.
type memory struct {
	limit int64
	free  *semaphore.Weighted
}

func newMemory(limit int64) *memory { return &memory{limit, semaphore.NewWeighted(limit)} }

// try takes memory if there is enough at once.
func (m *memory) try(size int64) (free func(), ok bool) {
	if size <= smallBody {
		return func() {}, true
	}
	size = min(size, m.limit)
	if !m.free.TryAcquire(size) {
		return nil, false
	}
	return m.lent(size), true
}

// take waits until there is memory for a body and returns a function that gives it back, which may be called more than
// once. A body larger than the limit gets all of it. It fails with the context's error.
func (m *memory) take(ctx context.Context, size int64) (free func(), err error) {
	if size <= smallBody {
		return func() {}, nil
	}
	size = min(size, m.limit)
	if err := m.free.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return m.lent(size), nil
}

func (m *memory) lent(size int64) (free func()) {
	return sync.OnceFunc(func() { m.free.Release(size) })
}

// sending is the body of a request that releases its memory once it has been sent.
type sending struct {
	mu   sync.Mutex // the transport may close a body that it still reads
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
