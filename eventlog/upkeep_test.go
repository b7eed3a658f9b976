package eventlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMain gives the tests of package eventlog the verification of package upkeep.
func TestMain(m *testing.M) {
	eventlog.Verify, eventlog.Rebuild = verify, rebuild
	testdb.Main(m)
}

func verify(
	ctx context.Context, pool *pgxpool.Pool, now func() time.Time, id entities.RunID,
) (found []string, err error) {
	err = eventlog.NewMaintainer(pool, now).Verify(ctx, id, func(d eventlog.Difference) { found = append(found, d.String()) })
	return found, err
}

// rebuild fails unless the rows differed from the log and are all restored.
func rebuild(ctx context.Context, pool *pgxpool.Pool, now func() time.Time, id entities.RunID) error {
	result, err := eventlog.NewMaintainer(pool, now).Rebuild(ctx, id)
	if err == nil && (!result.Changed || len(result.Remaining) > 0) {
		err = fmt.Errorf("rebuild did %+v, want all rows restored", result)
	}
	return err
}
