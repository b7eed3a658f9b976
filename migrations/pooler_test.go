package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSessionsThatAreSharedAreFound: behind a pooler, one session of Postgres serves both connections, at once or later.
func TestSessionsThatAreSharedAreFound(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testdb.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.CheckSessions(t.Context(), config); err != nil {
		t.Errorf("got %v for Postgres itself", err)
	}
	var ask []func() (int, error)
	for range 3 {
		conn, err := pgconn.ConnectConfig(t.Context(), &config.Config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		ask = append(ask, func() (int, error) { return migrations.Backend(t.Context(), conn) })
	}
	calls := 0
	changing := func() (int, error) {
		calls++
		if calls < 3 {
			return ask[1]()
		}
		return ask[2]()
	}
	for name, tt := range map[string]struct {
		first, second func() (int, error)
		want          error
	}{
		"own sessions": {ask[0], ask[1], nil},
		"one session":  {ask[0], ask[0], migrations.ErrPooler},
		"changing":     {ask[0], changing, migrations.ErrPooler},
	} {
		if err := migrations.CompareSessions(tt.first, tt.second); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func TestPoolersThatRefuseSettingsAreExplained(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: search_path"}
	if err := migrations.RefusedSettings(refused); !strings.Contains(err.Error(), "pooler") ||
		!strings.Contains(err.Error(), "search_path") {
		t.Errorf("got %v, want that a pooler refuses the setting", err)
	}
	if other := (&pgconn.PgError{Code: "3D000"}); !errors.Is(migrations.RefusedSettings(other), other) {
		t.Error("another error is not returned")
	}
}
