package read

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// Store reads the store of a run, in the order of the keys.
func (l *Log) Store(ctx context.Context, run entities.Run) ([]store.RunValue, error) {
	if run.StoreSeq == 0 {
		return nil, nil
	}
	size, err := store.SizeOfValues(ctx, l.pool, run.ID)
	if err != nil {
		return nil, err
	}
	if err := TakeMemory(ctx, size); err != nil {
		return nil, err
	}
	return store.Values(ctx, l.pool, run.ID, kv.MaxStore)
}

// StoreValue reads the value of a key in the store of a run. It fails with [kv.ErrKeyNotFound].
func (l *Log) StoreValue(ctx context.Context, run entities.Run, key string) (store.RunValue, error) {
	if err := TakeMemory(ctx, kv.MaxValue); err != nil {
		return store.RunValue{}, err
	}
	return store.ValueOf(ctx, l.pool, run.ID, key)
}
