package stepwell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// attemptsFinish is how long a program that shuts down lets its calls finish before it ends their contexts.
	attemptsFinish = 20 * time.Second
	// headerTime limits how long a request's header may take.
	headerTime = 10 * time.Second
)

// Serve serves the app at an address, such as :3000, until ctx ends, usually with a signal. Then it lets calls finish
// for 20 seconds, and shuts down; see [App.Shutdown]. If the configuration has a PublicURL, Serve registers the app
// there, with the server of STEPWELL_URL and the key STEPWELL_API_KEY; see [App.Announce].
func (a *App) Serve(ctx context.Context, address string) error {
	h, err := a.Handler()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	a.logger.InfoContext(ctx, "listening", "app", a.name, "address", l.Addr().String())
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	if err = a.announce(ctx); err == nil {
		select {
		case err = <-ended:
		case <-ctx.Done():
		}
	}
	return errors.Join(err, a.stop(ctx, s))
}

// announce registers the app if it has a public URL.
func (a *App) announce(ctx context.Context) error {
	if a.publicURL == "" {
		return nil
	}
	c, err := NewClient(ClientConfigFromEnv())
	if err != nil {
		return err
	}
	return a.Announce(ctx, c, a.publicURL)
}

// stop closes the listener at once, so that the server finds another process. It waits for calls as [App.Shutdown]
// does.
func (a *App) stop(ctx context.Context, s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptsFinish+lastAnswers)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Shutdown(ctx) }()
	patience, enough := context.WithTimeout(ctx, attemptsFinish)
	defer enough()
	if err := a.Shutdown(patience); err != nil {
		a.logger.WarnContext(ctx, "calls were cut short", "error", err)
	}
	if err := <-closed; err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// ErrShutdown is the cause with which [App.Shutdown] ends the contexts of steps.
var ErrShutdown = errors.New("the program shuts down")

// lastAnswers is how long the calls that a shutdown cuts short have for their answers.
const lastAnswers = 5 * time.Second

// calls counts the calls under way.
type calls struct {
	stopped context.Context //nolint:containedctx // ends with the shutdown, and so do the contexts of calls
	stop    context.CancelCauseFunc

	mu       sync.Mutex
	closing  bool
	underWay sync.WaitGroup
}

func newCalls() *calls {
	c := &calls{}
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
	c.underWay.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(c.stopped, func() { cancel(context.Cause(c.stopped)) })
	return ctx, func() {
		detach()
		cancel(nil)
		c.underWay.Done()
	}, true
}

// close refuses new calls. What it returns is closed when none is under way any more.
func (c *calls) close() (idle chan struct{}) {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	idle = make(chan struct{})
	go func() {
		c.underWay.Wait()
		close(idle)
	}()
	return idle
}

// guard counts the calls that pass, and refuses calls during a shutdown, so that the server calls another process.
func (a *App) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end, ok := a.calls.begin(r.Context())
		if !ok {
			w.Header().Set("Connection", "close")
			shutdownReply().write(w)
			return
		}
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// shutdownReply lets the server call another process. Nothing counts as an attempt.
func shutdownReply() reply {
	answer := errorReply(http.StatusServiceUnavailable, failure{Message: ErrShutdown.Error(), Code: "shutdown"})
	answer.RetryAfter = "0"
	return answer
}

// Shutdown refuses new calls and waits for those under way. When ctx ends, it ends their contexts with [ErrShutdown],
// waits at most five seconds more for their answers, and returns the error of ctx.
func (a *App) Shutdown(ctx context.Context) error {
	idle := a.calls.close()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	a.calls.stop(ErrShutdown)
	last := time.NewTimer(lastAnswers)
	defer last.Stop()
	select {
	case <-idle:
	case <-last.C:
	}
	return context.Cause(ctx)
}
