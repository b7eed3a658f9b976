package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// MaxSignal is the limit of a signal's data in bytes.
	MaxSignal = contract.MaxSignal
	// MaxKeep is the longest time a signal may be kept for hooks that look back.
	MaxKeep = contract.MaxKeep
	// keyRetention is how long a signal's key is remembered at least.
	keyRetention = 24 * time.Hour
)

// PostSignal stores a signal. The signal resumes every hook of its project that waits for its name and whose condition
// holds. It is remembered for runs that have started before, and kept for the given time for all hooks that look back.
// PostSignal uses the project, name, key and data of s. It returns the stored signal and whether it is new: if a signal
// with the same key was posted before, at least within the last day, it returns that signal.
//
// It fails with [entities.ErrInvalid], and with [entities.ErrKeyReused] if the key was used with different data.
func (e *Engine) PostSignal(ctx context.Context, s store.Signal, keep time.Duration) (store.Signal, bool, error) {
	if err := validateSignal(s, keep); err != nil {
		return store.Signal{}, false, err
	}
	s.ID = store.NewSignalID()
	known := time.Duration(0)
	if s.Key != "" {
		known = keyRetention
	} else if e.remembering.fits(s.Project, len(s.Data), e.log.Now()) {
		known = store.Remembered
	}
	var stored store.Signal
	err := pg.InTxThen(ctx, e.pool, func(tx pgx.Tx) (afterCommit func(error), err error) {
		if stored, err = store.InsertSignal(ctx, tx, s, keep, known); err != nil {
			return nil, err
		}
		if stored.ID != s.ID {
			return nil, sameSignal(stored, s)
		}
		_, afterCommit, err = e.queue.Enqueue(ctx, tx, &pgx.Batch{}, []message.Message{{
			Project: s.Project, Topic: s.Name, Work: message.WorkSignal, Subject: string(s.ID),
		}})
		return afterCommit, err
	})
	if err != nil {
		return store.Signal{}, false, fmt.Errorf("post signal: %w", err)
	}
	return stored, stored.ID == s.ID, nil
}

// emit posts a signal that a run has sent. It counts once, since it has a key.
func (e *Engine) emit(ctx context.Context, d queue.Delivery) error {
	var sent contract.Emitted
	if err := json.Unmarshal(d.Body, &sent); err != nil {
		return fmt.Errorf("decode signal: %w", err)
	}
	s := store.Signal{
		Project: d.Project, Name: sent.Name, Key: sent.Key, Data: sent.Data, RootID: sent.RootID, Depth: sent.Depth,
	}
	if _, _, err := e.PostSignal(ctx, s, sent.Keep); err != nil {
		return err
	}
	return d.End(ctx)
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
		return entities.Invalid("a signal cannot be kept for %s: the limits are 0s and %s", keep, MaxKeep)
	}
	return nil
}

// sameSignal fails if the key was used with different data.
func sameSignal(first, again store.Signal) error {
	if !bytes.Equal(first.Data, again.Data) {
		return fmt.Errorf("%w: signal %s was posted with the id %q and different data",
			entities.ErrKeyReused, first.ID, first.Key)
	}
	return nil
}

// Signals lists the project's stored signals in the order they were posted. If name is not empty, it lists only signals
// of that name. It returns the cursor of the next page, which is empty on the last page. It fails with
// [entities.ErrInvalid] if the page's cursor is invalid.
func (e *Engine) Signals(
	ctx context.Context, project entities.Project, name string, p pg.Page,
) ([]store.Signal, string, error) {
	return store.ListSignals(ctx, pg.NewPool(e.pool), project, name, p)
}
