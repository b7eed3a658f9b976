package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestCutConnectionsLoseNothing: all of a worker's connections are cut again and again amid everything it
// does. No message waits for its lease to run out.
func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	const messages = 300
	dsn := testdb.New(t)
	steady := open(t, dsn)
	r := open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "victim" })
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if rand.N(3) == 0 {
			w.WriteHeader(http.StatusInternalServerError) // has something to settle
			return
		}
		// The steady replica is not cut. A lease that is gone was taken over, so it comes again.
		if err := steady.Acknowledge(context.Background(), project, c.topic(), c.handle()); err != nil &&
			!errors.Is(err, entities.ErrLeaseNotFound) {
			t.Errorf("acknowledge: %v", err)
		}
	})
	steady.register(t, deployment, a.URL)
	for range messages {
		steady.send(t)
	}
	r.worker(t, func(o *WorkerOptions) { o.Deliveries = 20 })
	deadline := time.After(patience)
	for cut := 0; ; {
		if left := steady.count(t, `SELECT count(*) FROM messages`); left == 0 {
			if cut == 0 {
				t.Error("nothing was cut")
			}
			return
		}
		// Backoffs are not what this is about.
		steady.exec(t, `
			UPDATE messages SET due_at = now() WHERE id IN (
				SELECT id FROM messages WHERE lease = '' AND last_error <> '' FOR UPDATE SKIP LOCKED)`)
		if cut < 12 {
			var n int
			steady.scan(t, `
				SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'victim'`, nil, &n)
			if n > 0 {
				cut++
			}
		}
		select {
		case <-deadline:
			t.Fatalf("%d messages are left; leased: %d", steady.count(t, `SELECT count(*) FROM messages`),
				steady.count(t, `SELECT count(*) FROM messages WHERE lease <> ''`))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
