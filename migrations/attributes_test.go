package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMigrationCopiesAttributesOfExistingRuns checks the migration that adds the table of attributes.
func TestMigrationCopiesAttributesOfExistingRuns(t *testing.T) {
	t.Parallel()
	const before, with = 3, 4
	pool, provider := migratedTo(t, before)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
			created_at, updated_at)
		VALUES ('one', 'p', 'd', 'w', 'running', 3, '{"k": "v", "": "\"x"}', 1, '2026-01-01Z', now()),
			('two', 'p', 'd', 'w', 'running', 3, '{}', 1, now(), now())`); err != nil {
		t.Fatal(err)
	}
	copied := `
		SELECT string_agg(concat_ws(' ', run_id, key, value, project, workflow_name, created_at AT TIME ZONE 'UTC'), ', '
			ORDER BY key) FROM run_attributes`
	for range 2 {
		if _, err := provider.UpTo(t.Context(), with); err != nil {
			t.Fatal(err)
		}
		want := `one  "x p w 2026-01-01 00:00:00, one k v p w 2026-01-01 00:00:00`
		if got := queryOne[string](t, pool, copied); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if _, err := provider.DownTo(t.Context(), before); err != nil { // so that the next round migrates again
			t.Fatal(err)
		}
	}
}

// migratedTo returns a database that is migrated to the version, and a provider that migrates it further.
func migratedTo(t *testing.T, version int64) (*pgxpool.Pool, *goose.Provider) {
	t.Helper()
	pool := openPool(t, testdb.Empty(t), migrations.DefaultSchema)
	if _, err := pool.Exec(t.Context(), `CREATE SCHEMA `+migrations.DefaultSchema); err != nil {
		t.Fatal(err)
	}
	provider, err := migrations.NewProvider(stdlib.OpenDBFromPool(pool))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Close() })
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return pool, provider
}
