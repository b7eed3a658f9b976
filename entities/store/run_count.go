package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// CountOpenRuns counts the runs that have not ended by their status, over all projects, up to limit of them
// together: the oldest by ID.
func CountOpenRuns(ctx context.Context, q pg.Querier, limit int) (map[entities.RunStatus]int64, error) {
	counts := map[entities.RunStatus]int64{entities.RunPending: 0, entities.RunRunning: 0}
	rows, err := q.Query(ctx, `
		SELECT status, count(*) FROM (
			SELECT status FROM runs WHERE completed_at IS NULL ORDER BY id LIMIT $1
		) AS open GROUP BY status`, limit)
	if err != nil {
		return nil, fmt.Errorf("count open runs: %w", err)
	}
	var status entities.RunStatus
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&status, &n}, func() error {
		counts[status] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count open runs: %w", err)
	}
	return counts, nil
}
