// Package startstest has the parts of a server process that tests of schedules, triggers and collections need.
package startstest

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// Noon is the time of clocks that a test sets, at first.
var Noon = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// Server is a queue and a log, in the project [entities.DefaultProject].
type Server struct {
	Pool  *pgxpool.Pool
	Queue *queue.Queue
	Log   *eventlog.Log

	clock *atomic.Pointer[time.Time]
}

// New returns a server on the pool's database, where it is noon.
func New(t testing.TB, pool *pgxpool.Pool) Server {
	t.Helper()
	clock := &atomic.Pointer[time.Time]{}
	clock.Store(&Noon)
	s := WithClock(t, pool, func() time.Time { return *clock.Load() })
	s.clock = clock
	return s
}

// WithClock is [New] with another clock.
func WithClock(t testing.TB, pool *pgxpool.Pool, now func() time.Time) Server {
	t.Helper()
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return Server{Pool: pool, Queue: q, Log: eventlog.New(pool, hub, q, now, eventlog.WithGroup(q.Group()))}
}

// At sets the clock to so long after noon.
func (s Server) At(d time.Duration) { s.clock.Store(new(Noon.Add(d))) }

// Register registers the deployment dpl, by default of an app that has all workflows.
func (s Server) Register(t testing.TB, workflows ...string) {
	t.Helper()
	if _, err := s.Queue.PutDeployment(
		t.Context(), entities.DefaultProject, "dpl", "http://127.0.0.1:1", workflows...); err != nil {
		t.Fatal(err)
	}
}

// Claim leases the oldest work of a kind, with a subject unless that is empty, whoever has it. It reports false if
// there is none.
func (s Server) Claim(t testing.TB, work message.Work, subject string) (queue.Delivery, bool) {
	t.Helper()
	ticket := tickets.Ticket{}
	err := s.Pool.QueryRow(t.Context(), `
		UPDATE messages SET lease = '', holder = '', ticket = greatest(ticket, 1), parked_at = NULL
		WHERE id = (SELECT id FROM messages WHERE work = $1 AND $2 IN ('', subject) ORDER BY id LIMIT 1)
		RETURNING id, ticket`, work, subject).Scan(&ticket.MessageID, &ticket.Number)
	if err != nil {
		return queue.Delivery{}, false
	}
	d, ok, err := s.Queue.Claim(t.Context(), ticket, "rh_"+ulid.Make().String(), "", 5*time.Minute)
	if err != nil || !ok {
		t.Fatalf("claim: %v, %v", ok, err)
	}
	return s.Bind(t, d), true
}

// Bind binds a delivery to this server, as its worker would.
func (s Server) Bind(t testing.TB, d queue.Delivery) queue.Delivery {
	t.Helper()
	w, err := s.Queue.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 1, BodyMemory: 1, Logger: slog.New(slog.DiscardHandler), Allowed: egress.Allowed{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.Bind(d)
}

// Deliver delivers the work of a kind with a subject once.
func (s Server) Deliver(t testing.TB, work message.Work, subject string, handle queue.Handler) {
	t.Helper()
	d, ok := s.Claim(t, work, subject)
	if !ok {
		t.Fatalf("no work of %s", subject)
	}
	if err := handle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// End ends a run with an event of the type, and a payload.
func (s Server) End(t testing.TB, id entities.RunID, how entities.EventType, payload string) {
	t.Helper()
	r := eventlog.Request{RunID: id, Type: how, SpecVersion: entities.SpecDriven}
	if payload != "" {
		r.Payload = []byte(payload)
	}
	if _, err := s.Log.Append(t.Context(), entities.DefaultProject, r); err != nil {
		t.Fatal(err)
	}
}

// Count returns the number that a query reads.
func (s Server) Count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.Pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Exec executes a statement.
func (s Server) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := s.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
