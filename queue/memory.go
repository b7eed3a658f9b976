package queue

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// smallBody is the largest body that is not accounted for: as many of them as there may be deliveries at
// once are not worth the waiting.
const smallBody = 16 << 10

// memory is what the bodies of messages under way may take, handed out in turn.
type memory struct {
	limit int64
	free  *semaphore.Weighted
}

func newMemory(limit int64) *memory { return &memory{limit, semaphore.NewWeighted(limit)} }

// try is take if there is memory at once.
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

// take waits until there is memory for a body and returns what gives it back, which may be called more than
// once. A body larger than all there is gets all there is. It fails with the context's error.
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

// sending is the body of a request that lets go of its memory once it has been sent.
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
