package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
)

// DefaultRecheck is how often the clients of requests in progress are checked again.
const DefaultRecheck = 10 * time.Second

// errNoLongerValid is an [ErrUnauthorized].
var errNoLongerValid = fmt.Errorf("the key or session of this request is no longer valid: %w", ErrUnauthorized)

// revocations ends the requests in progress whose client is no longer valid. It checks all clients in one statement, so
// that many open streams cost as much as one; while there are no requests, it checks none.
type revocations struct {
	keys  Keys
	every time.Duration

	mu        sync.Mutex
	requests  map[*context.CancelCauseFunc]admin.Client
	scheduled bool
}

// clientOf returns what authenticated the request; false if that cannot become invalid.
func clientOf(r *http.Request, identity Identity) (admin.Client, bool) {
	b, browser := browserOf(r.Context())
	switch {
	case browser && identity.Actor != admin.ActorOpen:
		return admin.Client{Session: sha256.Sum256([]byte(b.Cookie)), Project: b.Project}, true
	case !browser && identity.KeyID != "":
		return admin.Client{Key: identity.KeyID}, true
	default:
		return admin.Client{}, false
	}
}

// watch returns a context that ends with an [ErrUnauthorized] when the client is no longer valid. The caller must call
// stop at the end of the request.
func (w *revocations) watch(ctx context.Context, c admin.Client) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	w.requests[&cancel] = c
	w.schedule()
	w.mu.Unlock()
	return ctx, func() {
		w.mu.Lock()
		delete(w.requests, &cancel)
		w.mu.Unlock()
		cancel(nil)
	}
}

// schedule lets the next check come, unless one is coming or there is nothing to check. The caller holds the lock.
func (w *revocations) schedule() {
	if w.scheduled || len(w.requests) == 0 {
		return
	}
	w.scheduled = true
	time.AfterFunc(w.every, func() {
		w.check()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.scheduled = false
		w.schedule()
	})
}

// check ends the requests whose client is invalid. A database that does not answer says nothing about clients.
func (w *revocations) check() {
	w.mu.Lock()
	requests := maps.Clone(w.requests)
	w.mu.Unlock()
	clients := map[admin.Client]bool{}
	for _, c := range requests {
		clients[c] = true
	}
	if len(clients) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.every)
	defer cancel()
	valid, err := w.keys.Valid(ctx, slices.Collect(maps.Keys(clients)))
	if err != nil {
		return
	}
	for end, c := range requests {
		if !valid[c] {
			(*end)(errNoLongerValid)
		}
	}
}
