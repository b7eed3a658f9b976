package pg

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Hint tells whoever listens on a channel that there is news about a topic. Hints go out after the commit
// that made the news, and may get lost: whoever waits for one also looks now and then by itself.
type Hint struct {
	// Channel is a Postgres notification channel.
	Channel string
	// Topic is its payload, below 8,000 bytes.
	Topic string
}

const (
	// hintWindow gathers hints, so that a busy process sends few notifications: each takes a lock that
	// all of the database's sessions share.
	hintWindow     = 20 * time.Millisecond
	reconnectDelay = time.Second
	maxTopics      = 100_000
	// maxTopic is the longest topic that Postgres notifies of. One that is longer would fail all those that
	// are sent with it.
	maxTopic = 7999
)

// Hub carries hints between the processes that share a database.
type Hub struct {
	pool    *pgxpool.Pool
	channel string
	logger  *slog.Logger
	local   bool // that nothing leaves the process

	pending chan struct{} // has an item while outbox is not empty

	mu          sync.Mutex
	outbox      map[Hint]struct{}
	subscribers map[string]map[chan struct{}]struct{}
}

// NewHub makes a hub whose subscribers hear of topics on the given channel. It works once [Hub.Run] does.
func NewHub(pool *pgxpool.Pool, channel string, logger *slog.Logger) *Hub {
	return &Hub{
		pool: pool, channel: channel, logger: logger,
		pending:     make(chan struct{}, 1),
		outbox:      map[Hint]struct{}{},
		subscribers: map[string]map[chan struct{}]struct{}{},
	}
}

// NewLocalHub makes a hub that is not run, for a process in which nothing runs between requests: its hints reach the
// subscribers of this process, and nobody else.
func NewLocalHub() *Hub {
	h := NewHub(nil, "", nil)
	h.local = true
	return h
}

// Publish gives subscribers of the topic, in all processes, a hint.
func (h *Hub) Publish(topic string) { h.Send(Hint{Channel: h.channel, Topic: topic}) }

// Send queues a hint to any channel, and gives this process's own subscribers of the topic one at once. It never
// blocks; under absurd load hints are dropped, and those whose topic is too long reach only this process.
func (h *Hub) Send(hint Hint) {
	h.wake(hint.Topic)
	if h.local || len(hint.Topic) > maxTopic {
		return
	}
	h.mu.Lock()
	if len(h.outbox) < maxTopics {
		h.outbox[hint] = struct{}{}
	}
	h.mu.Unlock()
	select {
	case h.pending <- struct{}{}:
	default:
	}
}

// Subscribe returns a channel that gets an item when there may be news about the topic, and a function
// that ends the subscription.
func (h *Hub) Subscribe(topic string) (news <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribers[topic] == nil {
		h.subscribers[topic] = map[chan struct{}]struct{}{}
	}
	h.subscribers[topic][c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers[topic], c)
		if len(h.subscribers[topic]) == 0 {
			delete(h.subscribers, topic)
		}
	}
}

// Subscribers returns how many subscriptions to the topic this process has.
func (h *Hub) Subscribers(topic string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscribers[topic])
}

func (h *Hub) wake(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subscribers[topic] {
		poke(c)
	}
}

// wakeAll makes up for whatever was missed while not listening.
func (h *Hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subscribers := range h.subscribers {
		for c := range subscribers {
			poke(c)
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run sends and receives hints until the context ends.
func (h *Hub) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { h.sendLoop(ctx) })
	wg.Go(func() { h.listenLoop(ctx) })
	wg.Wait()
}

func (h *Hub) sendLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.pending:
		}
		if err := h.flush(ctx); err != nil && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "send hints", "error", err)
		}
		Sleep(ctx, hintWindow)
	}
}

func (h *Hub) flush(ctx context.Context) error {
	h.mu.Lock()
	outbox := h.outbox
	h.outbox = map[Hint]struct{}{}
	h.mu.Unlock()
	channels, topics := make([]string, 0, len(outbox)), make([]string, 0, len(outbox))
	for hint := range outbox {
		channels, topics = append(channels, hint.Channel), append(topics, hint.Topic)
	}
	// A hint need not survive a crash, so its transaction need not wait for the disk.
	_, err := h.pool.Exec(ctx, `
		SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, topic)
		FROM unnest($1::text[], $2::text[]) AS hint (channel, topic)`, channels, topics)
	return err
}

func (h *Hub) listenLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if err := h.listen(ctx); err != nil && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "listen for hints", "error", err)
			Sleep(ctx, reconnectDelay)
		}
	}
}

func (h *Hub) listen(ctx context.Context) error {
	pooled, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// Out of the pool for good: a connection that listens must not serve queries afterwards.
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		return err
	}
	h.wakeAll()
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		h.wake(notification.Payload)
	}
}

func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
