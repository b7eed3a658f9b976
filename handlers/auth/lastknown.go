package auth

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
)

// lookupTimeout limits how long [LastKnown] waits for the database.
const lookupTimeout = 2 * time.Second

// CachedKeys is a key store that also remembers its last answers.
type CachedKeys interface {
	Keys
	// Last returns the key as of its last successful lookup, however long ago that was.
	Last(text string) (admin.Key, bool)
}

// LastKnown returns keys that fall back to their last known state when the database does not answer in time. This keeps
// /metrics reachable when the database is down.
func LastKnown(k CachedKeys) Keys { return lastKnown{k} }

type lastKnown struct{ CachedKeys }

// Lookup implements [Keys].
func (k lastKnown) Lookup(ctx context.Context, text string) (admin.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	key, err := k.CachedKeys.Lookup(ctx, text)
	if err == nil || errors.Is(err, admin.ErrKeyNotFound) {
		return key, err
	}
	if last, ok := k.Last(text); ok {
		return last, nil
	}
	return key, err
}
