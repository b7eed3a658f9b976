package admin

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

// day is the time at which the tests take place.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func now() time.Time { return day }

func openPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
