package handlers

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestMetricsAreReachableWithoutTheDatabase checks a scraper whose key is in the database.
func TestMetricsAreReachableWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	var at atomic.Int64
	at.Store(time.Now().UnixNano())
	now := func() time.Time { return time.Unix(0, at.Load()) }
	later := func() { at.Add(int64(time.Minute)) } // the cached key has expired
	q := check.Value(queue.New(pool, migrations.DefaultSchema, nil))(t)
	keys := access.NewKeys(pool, now)
	mint := func(role admin.Role) (admin.KeyID, string) {
		t.Helper()
		k, text, err := keys.Mint(t.Context(), admin.Key{Project: entities.DefaultProject, Name: "k", Role: role})
		if err != nil {
			t.Fatal(err)
		}
		return k.ID, text
	}
	_, scraper := mint(admin.RoleRead)
	_, starter := mint(admin.RoleInvoke)
	_, unseen := mint(admin.RoleRead)
	id, revoked := mint(admin.RoleRead)
	e := New(Options{
		Pool: pool, Log: eventlog.New(pool, nil, q, now), Queue: q, Keys: keys, APIKey: "key",
		Logger: slog.New(slog.DiscardHandler), Telemetry: newTelemetryAt(pool, q, now), Stopping: t.Context(),
	})
	want := func(path, key string, status int, line string) {
		t.Helper()
		got := serve(e, http.MethodGet, path, "Authorization", "Bearer "+key)
		if got.Code != status || !strings.Contains(got.Body.String(), line) {
			t.Errorf("%s: got %d %.300s, want %d and %q", path, got.Code, got.Body, status, line)
		}
	}
	want("/metrics", scraper, http.StatusOK, "stepwell_database_up 1\n")
	want("/metrics", revoked, http.StatusOK, "stepwell_database_up 1\n")
	want("/metrics", starter, http.StatusForbidden, "")
	check.NoError(t, keys.Revoke(t.Context(), entities.DefaultProject, id))
	later()
	want("/metrics", revoked, http.StatusUnauthorized, "")

	conn := check.Value(pool.Acquire(t.Context()))(t) // the database does not answer
	later()
	want("/metrics", scraper, http.StatusOK, "stepwell_database_up 0\n")
	conn.Release()
	pool.Close() // the database is unreachable
	later()
	for _, key := range []string{scraper, "key"} {
		want("/metrics", key, http.StatusOK, "stepwell_database_up 0\n")
	}
	want("/metrics", starter, http.StatusForbidden, "")
	want("/metrics", revoked, http.StatusUnauthorized, "")
	want("/metrics", unseen, http.StatusInternalServerError, "")
	want("/v1/runs", scraper, http.StatusInternalServerError, "") // other routes do not use the expired cache
}
