package queue

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	project    = entities.DefaultProject
	topic      = "__wkf_workflow_test"
	deployment = "dpl_test"
)

// replica has the parts of one server process: connections, a hub and a queue.
type replica struct {
	testdb.Rows
	*Queue

	pool *pgxpool.Pool
	hub  *pg.Hub
}

// open starts a replica on the database, which is closed when the test ends.
func open(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	r := withoutHints(t, dsn, options...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.hub.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// withoutHints opens a replica whose hub neither sends nor receives hints.
func withoutHints(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	pool := testdb.Connect(t, dsn, append([]func(*pgxpool.Config){testdb.Few}, options...)...)
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{pool: pool, hub: hub, Rows: testdb.In(pool), Queue: q}
}

// loopback allows calls to the tests' apps.
func loopback(t testing.TB) egress.Allowed {
	t.Helper()
	allowed, err := egress.Parse(egress.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

// newWorker returns a worker that is not started.
func (r *replica) newWorker(t testing.TB, configure ...func(*WorkerOptions)) *Worker {
	t.Helper()
	o := WorkerOptions{
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

// worker starts a new worker. It is stopped when the test ends, unless it was stopped before.
func (r *replica) worker(t testing.TB, configure ...func(*WorkerOptions)) *Worker {
	t.Helper()
	w := r.newWorker(t, configure...)
	startWorker(t, w)
	return w
}

// startWorker starts a worker. It is stopped when the test ends, unless it was stopped before.
func startWorker(t testing.TB, w *Worker) {
	t.Helper()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, w) })
}

func stop(t testing.TB, w *Worker) {
	t.Helper()
	if err := w.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// start opens a replica that delivers to the app.
func start(t *testing.T, a *app) *replica {
	t.Helper()
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t)
	return r
}

func (r *replica) register(t testing.TB, id, url string) {
	t.Helper()
	if _, err := r.PutDeployment(t.Context(), project, id, url); err != nil {
		t.Fatal(err)
	}
}

// message returns a message with the given options.
func newMessage(options ...func(*message.Message)) message.Message {
	m := message.Message{
		Project: project, Topic: topic, DeploymentID: deployment, ContentType: "application/cbor", Body: []byte("body"),
	}
	for _, o := range options {
		o(&m)
	}
	return m
}

func keyed(key string) func(*message.Message) { return func(m *message.Message) { m.Key = key } }

func body(s string) func(*message.Message) { return func(m *message.Message) { m.Body = []byte(s) } }

func delayed(d time.Duration) func(*message.Message) {
	return func(m *message.Message) { m.Delay = d }
}

func (r *replica) send(t testing.TB, options ...func(*message.Message)) string {
	t.Helper()
	id, err := r.Send(t.Context(), newMessage(options...))
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return id
}

// makeDue makes a message due, as if its delay, backoff or lease were over.
func (r *replica) makeDue(t testing.TB, id string) {
	t.Helper()
	r.Exec(t, `UPDATE messages SET due_at = now() WHERE id = $1 AND parked_at IS NULL`, id)
	r.hub.Publish(timerTopic)
}

// stored has the columns of a message's row that tests check.
type stored struct {
	Ticket        int
	Lease         string
	DeliveryCount int
	LastError     string
	Parked        bool
	// Wait is how long until the message is due.
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

// gone waits until the message has been deleted.
func (r *replica) gone(t testing.TB, id string) {
	t.Helper()
	testdb.Eventually(t, "message is gone", func() bool {
		return r.Count(t, `SELECT count(*) FROM messages WHERE id = $1`, id) == 0
	})
}

// ack acknowledges a call's message.
func (r *replica) ack(t testing.TB, c call) {
	t.Helper()
	if err := r.Acknowledge(context.Background(), project, c.topic(), c.handle()); err != nil {
		t.Errorf("acknowledge %s: %v", c.id(), err)
	}
}

// app is a user's app. It sends each call to calls.
type app struct {
	*httptest.Server
	calls chan call
}

// call is a delivery as the function receives it.
type call struct {
	Path   string
	Header http.Header
	Body   []byte
}

func (c call) id() string     { return c.Header.Get("Ce-Vqsmessageid") }
func (c call) handle() string { return c.Header.Get("Ce-Vqsreceipthandle") }
func (c call) topic() string  { return c.Header.Get("Ce-Vqsqueuename") }
func (c call) count() string  { return c.Header.Get("Ce-Vqsdeliverycount") }

// newApp starts an app. If answer is nil, it answers 200 without acknowledging.
func newApp(t testing.TB, answer func(http.ResponseWriter, *http.Request, call)) *app {
	t.Helper()
	a := &app{calls: make(chan call, 10_000)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read call: %v", err)
		}
		c := call{Path: r.Method + " " + r.RequestURI, Header: r.Header, Body: b}
		a.calls <- c
		if answer != nil {
			answer(w, r, c)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// next waits for the next call.
func (a *app) next(t testing.TB) call {
	t.Helper()
	return testdb.Receive(t, "a call", a.calls)
}

// status answers every call with a status.
func status(code int) func(http.ResponseWriter, *http.Request, call) {
	return func(w http.ResponseWriter, _ *http.Request, _ call) { w.WriteHeader(code) }
}

// callOf returns the call of a run's function under the lease.
func callOf(run entities.RunID, lease string) token.Call {
	return token.Call{Project: project, RunID: run, Invocation: lease}
}
