package model_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/e2e/model/client"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/why"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// Deployments: the worker calls the function of the first; the function of the second pulls its messages.
const (
	pushed = "dpl_push"
	pulled = "dpl_pull"
)

// server is a complete server in this process, with a manual clock, and the function that it calls.
type server struct {
	client.Client

	pool   *pgxpool.Pool
	queue  *queue.Queue
	logger *slog.Logger
	// explained counts verdicts.
	explained map[why.Verdict]int

	mu         sync.Mutex
	now        time.Time
	deliveries map[string][]delivery // unread deliveries by message ID
	answer     chan struct{}         // closed to let the function answer
}

// delivery is a call of the function.
type delivery struct {
	handle, body string
	count        int
}

func newServer(t *testing.T) *server {
	t.Helper()
	pool := testdb.Connect(t, testdb.Indexed(t))
	s := &server{pool: pool, now: time.Now().UTC().Truncate(time.Millisecond), deliveries: map[string][]delivery{}, answer: make(chan struct{})}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))

	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(handlers.New(handlers.Options{
		Pool: pool, Log: eventlog.New(pool, hub, q, s.clock), Streams: read.NewStreams(pool, hub, s.clock),
		Queue: q, Open: true, Fence: true, Logger: logger, Stopping: ctx, Draining: ctx,
	}))
	t.Cleanup(web.Close)
	s.Client = client.Client{URL: web.URL, HTTP: web.Client()}
	s.queue, s.logger, s.explained = q, logger, map[why.Verdict]int{}
	s.deliver(t, q, logger)
	return s
}

// deliver starts the function and the worker that calls it.
func (s *server) deliver(t *testing.T, q *queue.Queue, logger *slog.Logger) {
	t.Helper()
	function := httptest.NewServer(http.HandlerFunc(s.called))
	t.Cleanup(function.Close)
	if _, err := q.PutDeployment(t.Context(), entities.DefaultProject, pushed, function.URL); err != nil {
		t.Fatal(err)
	}
	allowed, err := egress.Parse(egress.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	// The pulling deployment has no address, so the worker logs warnings.
	worker, err := q.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 1000, MaxDeliveries: 1_000_000, Grace: time.Second, Logger: logger, Allowed: allowed,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worker.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// called is the function. It records the delivery, and answers only at the end of the sequence.
func (s *server) called(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the worker is being stopped
	}
	count, _ := strconv.Atoi(r.Header.Get("Ce-Vqsdeliverycount")) // 0 is never a correct count
	id := r.Header.Get("Ce-Vqsmessageid")
	s.mu.Lock()
	s.deliveries[id] = append(s.deliveries[id], delivery{r.Header.Get("Ce-Vqsreceipthandle"), string(body), count})
	answer := s.answer
	s.mu.Unlock()
	select {
	case <-answer:
	case <-r.Context().Done():
	}
}

// forget ends the deliveries and deletes the messages.
func (s *server) forget(ctx context.Context, messages []string) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM messages WHERE id = ANY($1)`, messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.answer)
	s.answer = make(chan struct{})
	return err
}

// takeDelivery returns the next unread delivery of the message.
func (s *server) takeDelivery(id string) (delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.deliveries[id]
	if len(waiting) == 0 {
		return delivery{}, false
	}
	s.deliveries[id] = waiting[1:]
	return waiting[0], true
}

// unexpected returns the number of unread deliveries of the messages.
func (s *server) unexpected(messages []string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range messages {
		n += len(s.deliveries[id])
	}
	return n
}

func (s *server) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *server) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}
