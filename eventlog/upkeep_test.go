package eventlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMain gives the tests of package eventlog the verification of package upkeep.
func TestMain(m *testing.M) {
	eventlog.Verify, eventlog.Rebuild = verifyRun, rebuildRun
	testdb.Main(m)
}

func verifyRun(
	ctx context.Context, pool *pgxpool.Pool, now func() time.Time, id entities.RunID,
) (found []string, err error) {
	err = upkeep.NewMaintainer(pool, now).Verify(ctx, id, func(d upkeep.Difference) { found = append(found, d.String()) })
	return found, err
}

// rebuildRun fails unless the rows differed from the log and are all restored.
func rebuildRun(ctx context.Context, pool *pgxpool.Pool, now func() time.Time, id entities.RunID) error {
	result, err := upkeep.NewMaintainer(pool, now).Rebuild(ctx, id)
	if err == nil && (!result.Changed || len(result.Remaining) > 0) {
		err = fmt.Errorf("rebuild did %+v, want all rows restored", result)
	}
	return err
}
