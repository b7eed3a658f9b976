package queue

import (
	"context"
	"io"
	"sync"

	"github.com/stepwell-dev/stepwell/entities/share"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

const (
	// smallAnswer is how many bytes of an answer are not counted.
	smallAnswer = 64 << 10
	// answerFactor is the factor of [share.Pool] by which projects share the memory for answers: a project that is alone
	// gets three quarters.
	answerFactor = 3
)

// answerMemory is the memory that a delivery holds for the answers of functions.
type answerMemory struct {
	pool    *share.Pool
	project string
	limit   int64 // of the pool

	mu   sync.Mutex
	held int64
}

// take waits for memory. One answer takes at most what one project can have, so that it is read when it is alone.
func (m *answerMemory) take(ctx context.Context, n int64) error {
	n = min(n, m.limit*answerFactor/(answerFactor+1))
	if err := m.pool.Take(ctx, m.project, n, answerFactor); err != nil {
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
		m.pool.Give(m.project, m.held)
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
	return n, err
}
