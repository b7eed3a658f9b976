package entities

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CountOpenRuns counts the runs that have not ended by their status, over all projects, up to limit of them
// together: the oldest by ID.
func CountOpenRuns(ctx context.Context, q Querier, limit int) (map[RunStatus]int64, error) {
	counts := map[RunStatus]int64{RunPending: 0, RunRunning: 0}
	rows, err := q.Query(ctx, `
		SELECT status, count(*) FROM (
			SELECT status FROM runs WHERE completed_at IS NULL ORDER BY id LIMIT $1
		) AS open GROUP BY status`, limit)
	if err != nil {
		return nil, fmt.Errorf("count open runs: %w", err)
	}
	var status RunStatus
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
