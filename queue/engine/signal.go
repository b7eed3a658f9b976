package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// MaxSignal is the limit of a signal's data in bytes.
	MaxSignal = 1 << 20
	// MaxKeep is the longest time a signal may be kept for hooks that look back.
	MaxKeep = 30 * 24 * time.Hour
	// keyKnown is how long a signal's key is remembered at least.
	keyKnown = 24 * time.Hour
)

// PostSignal accepts a signal. It resumes every hook of its project that waits for its name and whose condition it
// meets, and is kept for the given time for hooks that are opened later and look back. The project, name, key and data
// of the signal are used. It returns the stored signal and whether it is new: for a key that came before, within at
// least a day, it returns the signal stored with that key.
//
// It fails with [entities.ErrInvalid], and with [entities.ErrKeyReused] when the key came with other data.
func (e *Engine) PostSignal(ctx context.Context, s store.Signal, keep time.Duration) (store.Signal, bool, error) {
	if err := validateSignal(s, keep); err != nil {
		return store.Signal{}, false, err
	}
	s.ID = store.NewSignalID()
	known := time.Duration(0)
	if s.Key != "" {
		known = keyKnown
	}
	var stored store.Signal
	err := pg.InTxThen(ctx, e.pool, func(tx pgx.Tx) (ended func(error), err error) {
		if stored, err = store.InsertSignal(ctx, tx, s, keep, known); err != nil {
			return nil, err
		}
		if stored.ID != s.ID {
			return nil, sameSignal(stored, s)
		}
		_, ended, err = e.queue.Enqueue(ctx, tx, &pgx.Batch{}, []entities.Message{{
			Project: s.Project, Topic: s.Name, Work: entities.WorkSignal, Subject: string(s.ID),
		}})
		return ended, err
	})
	if err != nil {
		return store.Signal{}, false, fmt.Errorf("post signal: %w", err)
	}
	return stored, stored.ID == s.ID, nil
}

func validateSignal(s store.Signal, keep time.Duration) error {
	if err := entities.ValidateName("signal name", s.Name); err != nil {
		return err
	}
	if s.Key != "" {
		if err := entities.ValidateID("id", s.Key); err != nil {
			return err
		}
	}
	if len(s.Data) > MaxSignal {
		return entities.Invalid("the data is %d bytes long; the limit is %d", len(s.Data), MaxSignal)
	}
	if !json.Valid(s.Data) {
		return entities.Invalid("the data is not JSON")
	}
	if keep < 0 || keep > MaxKeep {
		return entities.Invalid("%s is not between 0s and %s, which is how long a signal can be kept", keep, MaxKeep)
	}
	return nil
}

// sameSignal fails if the key came with different data.
func sameSignal(first, again store.Signal) error {
	if !bytes.Equal(first.Data, again.Data) {
		return fmt.Errorf("%w: signal %s came with the id %q and other data", entities.ErrKeyReused, first.ID, first.Key)
	}
	return nil
}

// Signals lists the project's stored signals in the order they were posted, of one name or, if that is empty, of all.
// It returns the cursor of the next page, empty on the last. It fails with [entities.ErrInvalid] on an invalid cursor.
func (e *Engine) Signals(
	ctx context.Context, project entities.Project, name string, p pg.Page,
) ([]store.Signal, string, error) {
	return store.ListSignals(ctx, e.pool, project, name, p)
}
