package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	project    = entities.DefaultProject
	topic      = "__wkf_workflow_test"
	deployment = "dpl_test"
	// testTimeout is how long a test waits for something that must happen. It is long because machines can be busy.
	testTimeout = 30 * time.Second
	// recordTime is how long a delivery has to record its result.
	recordTime = time.Minute
)

// replica is the parts of one server process: connections, a hub and a queue.
type replica struct {
	pool *pgxpool.Pool
	hub  *pg.Hub
	*queue.Queue
}

// open starts a replica on the database. It ends with the test.
func open(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	r := deaf(t, dsn, options...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.hub.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// deaf opens a replica whose hub neither sends nor receives hints.
func deaf(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *replica {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), withConnections(t, dsn), migrations.DefaultSchema, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{pool: pool, hub: hub, Queue: q}
}

// withConnections bounds the pools, so that many tests at once do not use the server up.
func withConnections(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	values := u.Query()
	values.Set("pool_max_conns", "10")
	u.RawQuery = values.Encode()
	return u.String()
}

// loopback allows the apps of tests.
func loopback(t testing.TB) egress.Allowed {
	t.Helper()
	allowed, err := egress.Parse(egress.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

// newWorker makes a worker, not started yet.
func (r *replica) newWorker(t testing.TB, configure ...func(*queue.WorkerOptions)) *queue.Worker {
	t.Helper()
	o := queue.WorkerOptions{
		Deliveries: 100, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: testTimeout, Logger: slog.New(slog.DiscardHandler),
		Allowed: loopback(t),
	}
	for _, c := range configure {
		c(&o)
	}
	w, err := queue.NewWorker(r.Queue, migrations.DefaultSchema, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// worker makes a worker and starts it. It is stopped when the test ends, if it was not before.
func (r *replica) worker(t testing.TB, configure ...func(*queue.WorkerOptions)) *queue.Worker {
	t.Helper()
	w := r.newWorker(t, configure...)
	begin(t, w)
	return w
}

// begin starts a worker. It is stopped when the test ends, if it was not before.
func begin(t testing.TB, w *queue.Worker) {
	t.Helper()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, w) })
}

func stop(t testing.TB, w *queue.Worker) {
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

// message makes a message; the options name what matters to the test.
func message(options ...func(*entities.Message)) entities.Message {
	m := entities.Message{
		Project: project, Topic: topic, DeploymentID: deployment, ContentType: "application/cbor", Body: []byte("body"),
	}
	for _, o := range options {
		o(&m)
	}
	return m
}

func keyed(key string) func(*entities.Message) { return func(m *entities.Message) { m.Key = key } }

func body(s string) func(*entities.Message) { return func(m *entities.Message) { m.Body = []byte(s) } }

func delayed(d time.Duration) func(*entities.Message) {
	return func(m *entities.Message) { m.Delay = d }
}

func (r *replica) send(t testing.TB, options ...func(*entities.Message)) string {
	t.Helper()
	id, err := r.Send(t.Context(), message(options...))
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return id
}

func (r *replica) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := r.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// makeDue makes a message due, as if its delay, backoff or lease were over.
func (r *replica) makeDue(t testing.TB, id string) {
	t.Helper()
	r.exec(t, `UPDATE messages SET due_at = now() WHERE id = $1 AND parked_at IS NULL`, id)
	r.WakeTimer(nil)
}

// scan reads one row into one or more variables.
func (r *replica) scan(t testing.TB, sql string, args []any, into ...any) {
	t.Helper()
	if err := r.pool.QueryRow(t.Context(), sql, args...).Scan(into...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (r *replica) count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	var n int
	r.scan(t, sql, args, &n)
	return n
}

// stored is a message's row, as far as tests look at it.
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
	r.scan(t, `
		SELECT ticket, lease, delivery_count, last_error, parked_at IS NOT NULL, due_at - clock_timestamp()
		FROM messages WHERE id = $1`, []any{id},
		&s.Ticket, &s.Lease, &s.DeliveryCount, &s.LastError, &s.Parked, &s.Wait)
	return s
}

// gone waits until the message has been deleted.
func (r *replica) gone(t testing.TB, id string) {
	t.Helper()
	eventually(t, "message is gone", func() bool {
		return r.count(t, `SELECT count(*) FROM messages WHERE id = $1`, id) == 0
	})
}

// ack acknowledges a call's message.
func (r *replica) ack(t testing.TB, c call) {
	t.Helper()
	if err := r.Acknowledge(context.Background(), project, c.topic(), c.handle()); err != nil {
		t.Errorf("acknowledge %s: %v", c.id(), err)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s, but not: %s", testTimeout, what)
		}
	}
}

// receive waits for an item on the channel.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case item := <-c:
		return item
	case <-time.After(testTimeout):
		t.Fatalf("waited %s without getting %s", testTimeout, what)
		panic("unreachable")
	}
}

// app is a user's app. It puts each call into calls.
type app struct {
	*httptest.Server
	calls chan call
}

// call is a delivery as the function sees it.
type call struct {
	Path   string
	Header http.Header
	Body   []byte
}

func (c call) id() string     { return c.Header.Get("Ce-Vqsmessageid") }
func (c call) handle() string { return c.Header.Get("Ce-Vqsreceipthandle") }
func (c call) topic() string  { return c.Header.Get("Ce-Vqsqueuename") }
func (c call) count() string  { return c.Header.Get("Ce-Vqsdeliverycount") }

// newApp starts an app. A nil answer is 200, acknowledging nothing.
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
	return receive(t, "a call", a.calls)
}

// status answers every call with a status.
func status(code int) func(http.ResponseWriter, *http.Request, call) {
	return func(w http.ResponseWriter, _ *http.Request, _ call) { w.WriteHeader(code) }
}

// wantError fails the test unless err is want.
func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// logs is a log that a test can read while it is written.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(s))
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// onRecord makes sure that a process is on record.
func (r *replica) onRecord(t testing.TB, id string) {
	t.Helper()
	r.exec(t, `INSERT INTO processes (id, host, session_key) VALUES ($1, 'host', 0) ON CONFLICT DO NOTHING`, id)
}

// hang ends a session like the death of its process, and waits until Postgres has noticed.
func (r *replica) hang(t testing.TB, session *pgx.Conn) {
	t.Helper()
	_ = session.PgConn().Conn().Close()
	eventually(t, "the session is over", func() bool {
		return r.count(t, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, session.PgConn().PID()) == 0
	})
}

// race calls fn from n goroutines at once and returns what they got.
func race[T any](n int, fn func(i int) T) []T {
	results := make([]T, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			results[i] = fn(i)
		})
	}
	close(begin)
	wg.Wait()
	return results
}

// sweep has a new sweeper take a turn that is due.
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
