package queue

import (
	"context"
	"io"
	"sync"

	"github.com/stepwell-dev/stepwell/entities"
)

// smallBody is the size in bytes up to which bodies are not counted: even with all deliveries in progress, small bodies
// take little memory.
const smallBody = 16 << 10

// memory limits the total size of the bodies in memory, and shares it between projects. It grants the requests of a
// project in order, so that small ones cannot starve a large one.
type memory struct{ *fairPool }

func newMemory(limit int64) memory { return memory{newFairPool(limit)} }

// try takes memory for a body of the project if enough is free now.
func (m memory) try(p entities.Project, size int64) (free func(), ok bool) {
	if size <= smallBody {
		return func() {}, true
	}
	size = min(size, m.most())
	if !m.fairPool.try(p, size) {
		return nil, false
	}
	return m.lend(p, size), true
}

// take waits until there is memory for a body of the project. A body larger than all that one project may have gets
// just that. Free releases the memory and may be called more than once. Take fails with the context's error.
func (m memory) take(ctx context.Context, p entities.Project, size int64) (free func(), err error) {
	if size <= smallBody {
		return func() {}, nil
	}
	size = min(size, m.most())
	if err := m.fairPool.take(ctx, p, size); err != nil {
		return nil, err
	}
	return m.lend(p, size), nil
}

func (m memory) lend(p entities.Project, size int64) (free func()) {
	return sync.OnceFunc(func() { m.release(p, size) })
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
