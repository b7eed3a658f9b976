package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestSchemasOfDistantReleasesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		applied, known int64
		want           string // in the error; empty if there is none
	}{
		{0, 140, ""}, {132, 140, ""}, {140, 140, ""},
		{150, 140, ""},                           // a later patch of the same release
		{299, 140, ""},                           // the next release
		{140, 307, ""},                           // migrates further than one release, while no server runs
		{300, 140, "release after the next one"}, // 0.3, for a program of 0.1
		{301, 299, ""}, {400, 299, "release after the next one"},
		{131, 140, "older than release 0.1"}, {1, 132, "older than release 0.1"},
		{2, 3, ""}, // of a test
	} {
		err := migrations.Compatible("stepwell", tt.applied, tt.known)
		if _, is := errors.AsType[*migrations.SchemaError](err); is != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d for a program with %d: got %v, want %q", tt.applied, tt.known, err, tt.want)
		}
	}
}

// TestDistantSchemaIsLeftAlone: a server of today that finds the schema of a release after the next one changes nothing.
func TestDistantSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	pool := openPool(t, dsn, migrations.DefaultSchema)
	before := versions(t, pool)
	if err := migrations.Check(t.Context(), dsn, migrations.DefaultSchema); err != nil {
		t.Errorf("the schema of this program: %v", err)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, migrations.Check(t.Context(), dsn, migrations.DefaultSchema), "stepwell migrate")
	if _, err := pool.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, true)`); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, migrations.Check(t.Context(), dsn, migrations.DefaultSchema), "release after the next one")
	wantRefused(t, migrations.Up(t.Context(), dsn, migrations.DefaultSchema), "release after the next one")
	if after := versions(t, pool); len(after) != len(before) { // one less, and 900
		t.Errorf("the schema has the migrations %v, before %v", after, before)
	}
}

func TestEmptyDatabaseIsNoSchemaOfThisProgram(t *testing.T) {
	t.Parallel()
	wantRefused(t, migrations.Check(t.Context(), testdb.Empty(t), migrations.DefaultSchema), "stepwell migrate")
}

func wantRefused(t *testing.T, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*migrations.SchemaError](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}
