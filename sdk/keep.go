package stepwell

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

const (
	// keepAfter is how long a call may take before the server is told that it is worked on, and keepEvery is how often it
	// is told then. The server makes the call again that has not been kept for ten seconds, unless it waits for its
	// answer.
	keepAfter = time.Second
	keepEvery = 3 * time.Second
)

// keptCall is a call of which servers are told that it is worked on, so that it goes on if the server that made it
// stops or dies. Its answer then goes to another one.
type keptCall struct {
	host   *callHost
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// keep tells servers that a call is worked on, until end. The context that it returns ends when the answer is not
// wanted any more, and with the request's if that ends because the app is stopped. Without a server that offers it, the
// context is the request's; so it is with a server in the same process, with which the app would end.
func (a *App) keep(r *http.Request, c call) (ctx context.Context, k *keptCall) {
	if !slices.Contains(c.Server.Features, "answer") || a.serving.server == EmbeddedServer {
		return r.Context(), nil
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	// The cause is that of a closed connection: what it means depends on the kind of the call.
	host := a.newHost(c, func(error) { cancel(context.Canceled) })
	if host == nil {
		cancel(nil)
		return r.Context(), nil
	}
	k = &keptCall{host, cancel, make(chan struct{})}
	go func() {
		defer close(k.done)
		k.run(ctx, r.Context())
	}()
	return ctx, k
}

// run keeps the call until ctx ends. The end of the request is that of its connection, unless its cause says more.
func (k *keptCall) run(ctx, request context.Context) {
	next := time.NewTimer(keepAfter)
	defer next.Stop()
	closed := request.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-closed:
			if !isDisconnected(request) {
				k.cancel(context.Cause(request))
				return
			}
			closed = nil
		case <-next.C:
		}
		trying, cancel := context.WithTimeout(ctx, keepEvery)
		if isRefused(k.host.keep(trying)) {
			k.cancel(context.Canceled)
		}
		cancel()
		next.Reset(keepEvery)
	}
}

// isRefused reports whether the server has refused a request about a call, which would be refused again. Otherwise no
// server may be there at the moment.
func isRefused(err error) bool {
	if errors.Is(err, errStale) {
		return true
	}
	e, ok := errors.AsType[*APIError](err)
	return ok && e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// isDisconnected reports whether the context of a request has ended because its connection has.
func isDisconnected(request context.Context) bool {
	return context.Cause(request) == context.Canceled //nolint:errorlint // the bare one says nothing else
}

// end stops keeping the call.
func (k *keptCall) end() {
	k.cancel(nil)
	<-k.done
}

// keep says that the call is worked on.
func (h *callHost) keep(ctx context.Context) error {
	return h.do(ctx, apiRequest{method: http.MethodPost, path: h.run + "/call/keep"}, nil)
}

// answer sends the answer to a server. Seen is the position up to which the call has the log, if the answer does not
// say it; 0 if it does.
func (h *callHost) answer(ctx context.Context, a reply, seen int64) error {
	body := struct {
		reply

		Seen int64 `json:"seen,omitempty"`
	}{a, seen}
	return h.do(ctx, apiRequest{method: http.MethodPost, path: h.run + "/call/answer", body: body}, nil)
}

// serveKept serves a call that is kept. If the connection has ended, the answer goes to any server.
func (a *App) serveKept(w http.ResponseWriter, r *http.Request, c call) {
	ctx, k := a.keep(r, c)
	answer := a.reply(ctx, c)
	switch {
	case k == nil:
		answer.write(w)
		return
	case r.Context().Err() == nil || !isDisconnected(r.Context()):
		k.end()
		answer.write(w)
		return
	}
	defer k.end() // it is kept until the answer has arrived
	if ctx.Err() != nil || answer.Status == http.StatusPreconditionFailed {
		return // nobody wants it
	}
	err := deliver(ctx, func(ctx context.Context) error { return k.host.answer(ctx, answer, 0) })
	if isRefused(err) {
		a.logger.WarnContext(ctx, "an answer was refused", "run", c.Run.ID, "error", err)
	}
}

// deliver sends an answer until a server takes or refuses it, or the context ends: that of a call that can no longer be
// kept. What send could not do within its own attempts is tried again after a pause.
func deliver(ctx context.Context, send func(context.Context) error) error {
	for {
		err := send(ctx)
		if err == nil || isRefused(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(keepEvery):
		}
	}
}
