package read

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// HookKey names a hook of a run.
type HookKey struct {
	RunID entities.RunID
	ID    entities.HookID
}

// Received is what has come of a hook.
type Received struct {
	HookKey

	// Seqs are the positions of what it has received: the first ones.
	Seqs []int64
	// Until is the end of the wait that limits its time; nil if nothing limits it, or not any more.
	Until *time.Time
	// Over is the position at which that wait was over; 0 if it was not, because of an answer or the end of the run.
	Over int64
}

// ReceivedBy reads what hooks have received, at most so much of each, until when they are open, and whether that has
// passed: the wait that limits a hook has its ID and the suffix. The caller must have checked that it may see the runs.
func (l *Log) ReceivedBy(ctx context.Context, hooks []HookKey, limit int, suffix string) (map[HookKey]Received, error) {
	runs, ids := make([]string, len(hooks)), make([]string, len(hooks))
	for i, h := range hooks {
		runs[i], ids[i] = string(h.RunID), string(h.ID)
	}
	rows, err := pg.CollectAll[Received](l.pool.Query(ctx, `
		SELECT wanted.run AS run_id, wanted.id,
			ARRAY(SELECT seq FROM events e WHERE e.run_id = wanted.run AND e.correlation_id = wanted.id
				AND e.correlation_id <> '' AND e.`+store.OfType+` = 'hook_received'
				ORDER BY `+store.BySeq+` LIMIT $3) AS seqs,
			(SELECT resume_at FROM waits w
				WHERE w.run_id = wanted.run AND w.id = wanted.id || $4 AND w.status = 'waiting') AS until,
			coalesce((SELECT seq FROM events e WHERE e.run_id = wanted.run AND e.correlation_id = wanted.id || $4
				AND e.correlation_id <> '' AND e.`+store.OfType+` = 'wait_completed' LIMIT 1), 0) AS over
		FROM unnest($1::text[], $2::text[]) AS wanted (run, id)`, runs, ids, limit, suffix))
	if err != nil {
		return nil, fmt.Errorf("read what hooks have received: %w", err)
	}
	received := make(map[HookKey]Received, len(rows))
	for _, r := range rows {
		received[r.HookKey] = r
	}
	return received, nil
}
