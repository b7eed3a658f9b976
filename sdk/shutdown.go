package stepwell

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrShutdown is the cause with which [App.Shutdown] ends the contexts of steps.
var ErrShutdown = errors.New("the program shuts down")

// lastAnswers is how long the calls that a shutdown cuts short have for their answers.
const lastAnswers = 5 * time.Second

// calls counts the calls under way.
type calls struct {
	stopped context.Context //nolint:containedctx // ends with the shutdown, and so do the contexts of calls
	stop    context.CancelCauseFunc

	mu      sync.Mutex
	active  int
	closing bool
	idle    chan struct{} // closed when a shutdown has begun and no call is under way
}

func newCalls() *calls {
	c := &calls{idle: make(chan struct{})}
	c.stopped, c.stop = context.WithCancelCause(context.Background())
	return c
}

// begin counts a call, unless a shutdown has begun. The function ends it.
func (c *calls) begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, nil, false
	}
	c.active++
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(c.stopped, func() { cancel(context.Cause(c.stopped)) })
	return ctx, func() {
		detach()
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.active--; c.active == 0 && c.closing {
			close(c.idle)
		}
	}, true
}

// close refuses new calls.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing && c.active == 0 {
		close(c.idle)
	}
	c.closing = true
}

// guard counts the calls that pass, describes the app to those who GET it, and refuses calls during a shutdown, so that
// the server calls another process.
func (a *App) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end, ok := a.calls.begin(r.Context())
		if !ok {
			w.Header().Set("Retry-After", "0")
			w.Header().Set("Connection", "close")
			writeError(w, http.StatusServiceUnavailable, failure{Message: ErrShutdown.Error(), Code: "shutdown"})
			return
		}
		defer end()
		if r.Method == http.MethodGet {
			writeJSON(w, http.StatusOK, a.describe())
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Shutdown refuses new calls and waits for those under way. When ctx ends, it ends their contexts with [ErrShutdown],
// waits at most five seconds more for their answers, and returns the error of ctx.
func (a *App) Shutdown(ctx context.Context) error {
	a.calls.close()
	select {
	case <-a.calls.idle:
		return nil
	case <-ctx.Done():
	}
	a.calls.stop(ErrShutdown)
	last := time.NewTimer(lastAnswers)
	defer last.Stop()
	select {
	case <-a.calls.idle:
	case <-last.C:
	}
	return context.Cause(ctx)
}
