package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// perRelease is how many numbers of migrations each minor release has: those of 0.1 are 100 to 199, of 0.2 200 to 299.
	perRelease = 100
	// baseline is the number of the migration that creates the schema of release 0.1.
	baseline = 132
)

// SchemaError reports that this program cannot work on the schema as it is. The message says what to do.
type SchemaError struct {
	// Schema is the Postgres schema.
	Schema string
	// Database is the number of the newest migration that was applied, and Program of the newest that this one has.
	Database, Program int64
}

func (e *SchemaError) Error() string {
	here := fmt.Sprintf("the schema %s has migration %d, and this program has %d", e.Schema, e.Database, e.Program)
	switch {
	case e.Database > e.Program:
		return here + ": it was migrated by a release after the next one; start that release, or restore a backup from before"
	case beforeReleases(e.Database, e.Program):
		return here + ": it is older than release 0.1, which no release migrates; use another schema or an empty database"
	}
	return here + ": migrate it with stepwell migrate, or embedded.Migrate, of this version"
}

// Check returns a [*SchemaError] if the program needs migrations that the schema does not have, or if it is older than
// the release before the one that migrated the schema.
func Check(ctx context.Context, dsn, schema string, options ...func(*pgxpool.Config)) error {
	pool, err := Pool(ctx, dsn, schema, options...)
	if err != nil {
		return err
	}
	defer pool.Close()
	return CheckPool(ctx, pool, schema)
}

// CheckPool is [Check] for the database of a pool.
func CheckPool(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	applied, err := newestApplied(ctx, pool, schema)
	if err != nil {
		return err
	}
	known, err := newestKnown(files, "sql")
	if err != nil {
		return err
	}
	if applied < known {
		return &SchemaError{schema, applied, known}
	}
	return compatible(schema, applied, known)
}

// compatible returns a [*SchemaError] if a program whose newest migration is known must not migrate a schema whose
// newest is applied, or work on it. A schema with none has 0.
func compatible(schema string, applied, known int64) error {
	tooNew := applied/perRelease > known/perRelease+1
	if tooNew || beforeReleases(applied, known) {
		return &SchemaError{schema, applied, known}
	}
	return nil
}

// beforeReleases reports whether a program that has the baseline finds a schema older than that.
func beforeReleases(applied, known int64) bool {
	return 0 < applied && applied < baseline && known >= baseline
}

// newestApplied returns the number of the newest migration that a schema has, 0 if none.
func newestApplied(ctx context.Context, pool *pgxpool.Pool, schema string) (number int64, err error) {
	var migrated bool
	err = pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'goose_db_version')`,
		schema).Scan(&migrated)
	if err == nil && migrated {
		err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`).Scan(&number)
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return number, nil
}

// newestKnown returns the highest number of the migrations in a folder.
func newestKnown(from fs.FS, folder string) (number int64, err error) {
	entries, err := fs.ReadDir(from, folder)
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	for _, e := range entries { // in order
		digits, _, _ := strings.Cut(e.Name(), "_")
		if number, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return 0, fmt.Errorf("read migrations: %w", err)
		}
	}
	return number, nil
}
