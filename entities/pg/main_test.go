package pg

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// deadline is how long a test waits for something that has to happen.
const deadline = 30 * time.Second

func openPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// runHub makes a hub that runs until the test ends.
func runHub(t *testing.T, pool *pgxpool.Pool) *Hub {
	t.Helper()
	hub := NewHub(pool, "stepwell_test", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return hub
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late, look := time.After(deadline), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-late:
			t.Errorf("waited in vain until %s", what)
			return
		}
	}
}
