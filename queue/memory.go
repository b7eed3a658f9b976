package queue

import (
	"context"
	"io"
	"sync"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// shareFactor is the factor of [share.Pool] by which projects share slots and memory: a project may hold four
	// times what stays free. One that is alone gets four fifths, and two that want all get four ninths each.
	shareFactor = 4
	// smallBody is the size in bytes up to which bodies are not counted: even with all deliveries in progress, small
	// bodies take little memory.
	smallBody = 16 << 10
	// smallAnswer is how many bytes of an answer are not counted.
	smallAnswer = 64 << 10
)

// memory limits the total size of the bodies in memory, and shares it between projects. It grants the requests of a
// project in order, so that small ones cannot starve a large one.
type memory struct{ *share.Pool }

// try takes memory for a body of the project if enough is free now.
func (m memory) try(p entities.Project, size int64) (free func(), ok bool) {
	if size <= smallBody {
		return func() {}, true
	}
	size = min(size, m.Most(shareFactor))
	if !m.Try(string(p), size, shareFactor) {
		return nil, false
	}
	return m.lend(p, size), true
}

// take waits until there is memory for a body of the project for which [memory.try] has found none. A body larger than
// all that one project may have gets just that. Free releases the memory and may be called more than once. Take fails
// with the context's error.
func (m memory) take(ctx context.Context, p entities.Project, size int64) (free func(), err error) {
	size = min(size, m.Most(shareFactor))
	if err := m.Take(ctx, string(p), size, shareFactor); err != nil {
		return nil, err
	}
	return m.lend(p, size), nil
}

func (m memory) lend(p entities.Project, size int64) (free func()) {
	return sync.OnceFunc(func() { m.Release(string(p), size) })
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

// answerMemory is the memory that a delivery holds for the answers of functions.
type answerMemory struct {
	pool    *share.Pool
	project string

	mu   sync.Mutex
	held int64
}

// take waits for memory. One answer takes at most what one project can have, so that it is read when it is alone.
func (m *answerMemory) take(ctx context.Context, n int64) error {
	n = min(n, m.pool.Most(shareFactor))
	if err := m.pool.Take(ctx, m.project, n, shareFactor); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += n
	return nil
}

// free releases the memory.
func (m *answerMemory) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held > 0 {
		m.pool.Release(m.project, m.held)
	}
	m.held = 0
}

// answer is the body of a function's answer. When it turns out not to be small, it waits for memory for all that may
// follow: if it took memory piece by piece, answers could wait for one another. The function waits meanwhile.
type answer struct {
	io.ReadCloser

	ctx    context.Context // of the call
	memory *answerMemory
	length int64 // as announced; -1 if it is not known
	read   int64
	taken  bool
	// ended is called when all of it has been read.
	ended func()
}

// Read implements [io.Reader].
func (a *answer) Read(p []byte) (int, error) {
	if a.read >= smallAnswer && !a.taken {
		n := int64(contract.MaxAnswer)
		if a.length >= 0 {
			n = min(n, a.length)
		}
		if err := a.memory.take(a.ctx, n); err != nil {
			return 0, err
		}
		a.taken = true
	}
	if !a.taken {
		p = p[:min(int64(len(p)), smallAnswer-a.read)]
	}
	n, err := a.ReadCloser.Read(p)
	a.read += int64(n)
	if err == io.EOF {
		a.ended()
	}
	return n, err
}

// Afterwards calls do when the outcome of the delivery is stored, whatever it is.
func (d Delivery) Afterwards(do func()) {
	if d.afterwards != nil {
		*d.afterwards = append(*d.afterwards, do)
	}
}
