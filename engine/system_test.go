package engine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	project    = entities.DefaultProject
	deployment = "dpl_test"
	// recordTime is how long a delivery has to record its result.
	recordTime = time.Minute
)

// replica is the parts of one server process: connections, a hub and a queue.
type replica struct {
	testdb.Rows
	*queue.Queue

	pool *pgxpool.Pool
	hub  *pg.Hub
}

// newReplica starts a replica on the database. The test stops it.
func newReplica(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	r := idleReplica(t, dsn, options...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.hub.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// idleReplica opens a replica whose hub does not run, so it neither sends nor receives hints.
func idleReplica(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	pool := testdb.Connect(t, dsn, append([]func(*pgxpool.Config){testdb.Few}, options...)...)
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{pool: pool, hub: hub, Rows: testdb.In(pool), Queue: q}
}

// loopback allows calls to the functions of tests.
func loopback(t testing.TB) egress.Allowed {
	t.Helper()
	allowed, err := egress.Parse(egress.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

// newWorker makes a worker without starting it.
func (r *replica) newWorker(t testing.TB, configure ...func(*queue.WorkerOptions)) *queue.Worker {
	t.Helper()
	o := queue.WorkerOptions{
		Deliveries: 100, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: testdb.Timeout, Logger: slog.New(slog.DiscardHandler),
		Allowed: loopback(t),
	}
	for _, c := range configure {
		c(&o)
	}
	w, err := r.NewWorker(migrations.DefaultSchema, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// worker makes and starts a worker. The test stops it.
func (r *replica) worker(t testing.TB, configure ...func(*queue.WorkerOptions)) *queue.Worker {
	t.Helper()
	w := r.newWorker(t, configure...)
	startWorker(t, w)
	return w
}

// startWorker starts a worker. The test stops it.
func startWorker(t testing.TB, w *queue.Worker) {
	t.Helper()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWorker(t, w) })
}

func stopWorker(t testing.TB, w *queue.Worker) {
	t.Helper()
	if err := w.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func (r *replica) register(t testing.TB, id, url string) {
	t.Helper()
	if _, err := r.PutDeployment(t.Context(), project, id, url); err != nil {
		t.Fatal(err)
	}
}

// stored has the columns of a message that tests check.
type stored struct {
	Ticket        int
	Lease         string
	DeliveryCount int
	LastError     string
	Parked        bool
	// Wait is the time until the message is due.
	Wait time.Duration
}

func (r *replica) stored(t testing.TB, id string) stored {
	t.Helper()
	var s stored
	r.Scan(t, `
		SELECT ticket, lease, delivery_count, last_error, parked_at IS NOT NULL, due_at - clock_timestamp()
		FROM messages WHERE id = $1`, []any{id},
		&s.Ticket, &s.Lease, &s.DeliveryCount, &s.LastError, &s.Parked, &s.Wait)
	return s
}

// callOf returns the call of a run's function under the lease.
func callOf(run entities.RunID, lease string) token.Call {
	return token.Call{Project: project, RunID: run, Invocation: lease}
}

// onRecord inserts a row in processes, so that the process can hold leases.
func (r *replica) onRecord(t testing.TB, id string) {
	t.Helper()
	r.Exec(t, `INSERT INTO processes (id, host, session_key) VALUES ($1, 'host', 0) ON CONFLICT DO NOTHING`, id)
}

// sweep makes a pass with a new sweeper, and returns the runs that it woke.
func (r *replica) sweep(t testing.TB, configure ...func(*cluster.Sweeper)) []cluster.Stranded {
	t.Helper()
	s := cluster.NewSweeper(r.pool, r.Queue, slog.New(slog.DiscardHandler))
	s.Interval = 0
	for _, c := range configure {
		c(s)
	}
	woken, err := s.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return woken
}
