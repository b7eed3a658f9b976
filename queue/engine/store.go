package engine

import (
	"context"
	"encoding/json"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// loadStore returns the run's store for a call: nil if it has no values, or too many bytes for a call. It reads nothing
// for a run that never had a store.
func (e *Engine) loadStore(ctx context.Context, run entities.Run) (map[string]json.RawMessage, error) {
	if run.StoreSeq == 0 {
		return nil, nil
	}
	values, err := store.Values(ctx, pg.NewPool(e.pool), run.ID, kv.MaxInCall)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	m := make(map[string]json.RawMessage, len(values))
	for _, v := range values {
		m[v.Key] = json.RawMessage(v.Value)
	}
	return m, nil
}
