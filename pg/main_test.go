package pg

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// deadline is how long a test waits for an event that must occur.
const deadline = 30 * time.Second

// runHub returns a hub that runs until the test ends.
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

// eventually polls until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout, poll := time.After(deadline), time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-timeout:
			t.Errorf("timed out: want that %s", what)
			return
		}
	}
}
