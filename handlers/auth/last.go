package auth

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities/admin"
)

// lookupPatience is how long the database may take to say what a key is.
const lookupPatience = 2 * time.Second

// RememberedKeys also know what keys were.
type RememberedKeys interface {
	Keys
	// Last is the key of a text as it was when the database was last asked about it, however long ago that is.
	Last(text string) (admin.Key, bool)
}

// LastKnown are keys that are taken for what they last were when the database does not say in time what they are. They
// are for a gate to what tells that the database is away: nobody would hear of it otherwise.
func LastKnown(k RememberedKeys) Keys { return lastKnown{k} }

type lastKnown struct{ RememberedKeys }

// Lookup implements [Keys].
func (k lastKnown) Lookup(ctx context.Context, text string) (admin.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	key, err := k.RememberedKeys.Lookup(ctx, text)
	if err == nil || errors.Is(err, admin.ErrKeyNotFound) {
		return key, err
	}
	if last, ok := k.Last(text); ok {
		return last, nil
	}
	return key, err
}
