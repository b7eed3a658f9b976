package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// archive keeps the runs that meet a condition for lists of the archive.
func archive(t *testing.T, pool *pgxpool.Pool, condition string) {
	t.Helper()
	rows := check.Value(pool.Query(t.Context(), `SELECT id FROM runs WHERE `+condition))(t)
	ids := check.Value(pgx.CollectRows(rows, pgx.RowTo[entities.RunID]))(t)
	var b pgx.Batch
	KeepArchived(&b, ids)
	check.NoError(t, pool.SendBatch(t.Context(), &b).Close())
}

// TestArchiveHasAllColumnsOfRuns: a migration that changes the table of runs must change that of archived runs.
func TestArchiveHasAllColumnsOfRuns(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	columns := func(table string) []string {
		rows := check.Value(pool.Query(t.Context(), `
			SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull FROM pg_attribute
			WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname`, table))(t)
		return check.Value(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	}
	archived := slices.DeleteFunc(columns("archived_runs"), func(c string) bool { return c[:9] == "archived_" })
	if diff := cmp.Diff(columns("runs"), archived); diff != "" {
		t.Errorf("archived_runs differs from runs (-want +got):\n%s", diff)
	}
}

// TestRunsAreListedAsTheyWereWhenTheyWereArchivedLast: one that was listed a moment ago is written again only if it has
// grown.
func TestRunsAreListedAsTheyWereWhenTheyWereArchivedLast(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	insertRuns(t, pool, manyRuns())
	archive(t, pool, `completed_at IS NOT NULL`)
	testdb.Exec(t, pool, `CREATE TABLE before AS SELECT id, xmin::text AS written FROM archived_runs`)
	testdb.Exec(t, pool, `UPDATE runs SET last_seq = last_seq + 1, error_code = 'late' WHERE id = (SELECT min(id) FROM before)`)
	archive(t, pool, `completed_at IS NOT NULL`)
	rows := testdb.In(pool)
	rows.Want(t, "rows written again", 1, `SELECT count(*) FROM archived_runs a JOIN before USING (id) WHERE a.xmin::text <> written`)
	rows.Want(t, "rows that differ", 0, `
		SELECT count(*) FROM archived_runs a JOIN runs r USING (id) WHERE (a.last_seq, a.error_code) <> (r.last_seq, r.error_code)`)
}

// TestArchivedRunsAreForgotten: the oldest first, with their attributes; one that is archived again stays.
func TestArchivedRunsAreForgotten(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	insertRuns(t, pool, manyRuns())
	archive(t, pool, `completed_at IS NOT NULL`)
	testdb.Exec(t, pool, `UPDATE archived_runs SET archived_at = now() - interval '2 days' WHERE id < 'wrun_100'`)
	archive(t, pool, `completed_at IS NOT NULL AND id BETWEEN 'wrun_050' AND 'wrun_099'`)
	total := 0
	for {
		n := check.Value(ForgetArchived(t.Context(), pg.NewPool(pool), 24*time.Hour, 7))(t)
		if total += n; n == 0 {
			break
		}
	}
	var kept, attributes, want int
	check.NoError(t, pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM archived_runs), (SELECT count(*) FROM archived_attributes),
			(SELECT count(*) FROM runs WHERE completed_at IS NOT NULL AND id >= 'wrun_050')`).Scan(&kept, &attributes, &want))
	check.Equal(t, "kept runs", kept, want)
	if total == 0 || attributes == 0 {
		t.Errorf("%d runs were forgotten, %d attributes are left", total, attributes)
	}
	check.NoError(t, pool.QueryRow(t.Context(), `
		SELECT count(*) FROM run_attributes JOIN runs ON runs.id = run_id
		WHERE completed_at IS NOT NULL AND run_id >= 'wrun_050'`).Scan(&want))
	check.Equal(t, "kept attributes", attributes, want)
}
