package stepwell

import (
	"context"
	"sync"
)

// callsUnderWay lets copies of one call, which proxies may send, share one execution and its answer. So inline steps do
// not happen twice, and have one result.
type callsUnderWay struct {
	mu sync.Mutex
	by map[callID]*sharedCall
}

type callID struct {
	invocation string
	attempt    int
}

type sharedCall struct {
	done chan struct{}
	more int // copies that wait
	got  answer
	err  error
}

// share executes fn, or waits for the execution of another copy of the call.
func (u *callsUnderWay) share(ctx context.Context, id callID, fn func() (answer, error)) (answer, error) {
	u.mu.Lock()
	if s, ok := u.by[id]; ok && id.invocation != "" {
		s.more++
		u.mu.Unlock()
		select {
		case <-s.done:
			return s.got, s.err
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
	s := &sharedCall{done: make(chan struct{}), err: errStale}
	u.by[id] = s
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		delete(u.by, id)
		u.mu.Unlock()
		close(s.done)
	}()
	s.got, s.err = fn()
	return s.got, s.err
}
