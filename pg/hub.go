package pg

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// Hint tells the processes that listen on a channel that there is something new about a topic. It does not carry it:
// its receivers read the database. A hint is sent after the commit that it is about and may be lost, so receivers also
// poll, only less often.
type Hint struct {
	// Channel is a Postgres notification channel.
	Channel string
	// Topic is the payload of the notification, below 8,000 bytes.
	Topic string
}

const (
	// hintWindow is how long hints are gathered before they are sent. Notifications are costly when many sessions send
	// them: each commit with one takes a lock that all sessions of the server share.
	hintWindow     = 20 * time.Millisecond
	reconnectDelay = time.Second
	// maxTopics is the most hints that wait to be sent.
	maxTopics = 100_000
	// maxTopic is the longest payload that Postgres accepts, in bytes. A longer one would fail the whole batch of
	// hints.
	maxTopic = 7999
)

// Hub carries hints between the processes that share a database, by NOTIFY and LISTEN. Subscribers of the process that
// sends a hint get it directly, without the database.
type Hub struct {
	pool    *pgxpool.Pool
	channel string
	logger  *slog.Logger
	local   bool // sends nothing to other processes

	pending chan struct{} // holds one item while outbox is not empty

	mu          sync.Mutex
	outbox      map[Hint]struct{}
	subscribers map[string]map[chan struct{}]struct{}
}

// NewHub returns a hub that listens on the given channel. It sends and receives while [Hub.Run] runs.
func NewHub(pool *pgxpool.Pool, channel string, logger *slog.Logger) *Hub {
	return &Hub{
		pool: pool, channel: channel, logger: logger,
		pending:     make(chan struct{}, 1),
		outbox:      map[Hint]struct{}{},
		subscribers: map[string]map[chan struct{}]struct{}{},
	}
}

// NewLocalHub returns a hub for a process in which nothing runs between requests (serverless). Its hints reach only the
// subscribers of this process, and [Hub.Run] is not called.
func NewLocalHub() *Hub {
	h := NewHub(nil, "", nil)
	h.local = true
	return h
}

// Publish sends a hint to the subscribers of the topic in all processes.
func (h *Hub) Publish(topic string) { h.Send(Hint{Channel: h.channel, Topic: topic}) }

// Send queues a hint for any channel, and wakes this process's own subscribers of the topic at once. It never blocks:
// while 100,000 hints are queued, further ones are dropped. A topic that is too long for Postgres reaches only this
// process.
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
	poke(h.pending)
}

// Subscribe returns a channel that receives an item when there may be something new about the topic, and a function
// that ends the subscription. Hints that arrive while an item is in the channel are merged into it. All subscribers get
// an item whenever the hub begins to listen, also after it has lost its connection.
func (h *Hub) Subscribe(topic string) (hints <-chan struct{}, cancel func()) {
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

// Run sends and receives hints until the context ends.
func (h *Hub) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { rescue.Loop(ctx, "hub", func() { h.sendLoop(ctx) }) })
	wg.Go(func() { rescue.Loop(ctx, "hub", func() { h.listenLoop(ctx) }) })
	wg.Wait()
}

// wake wakes this process's subscribers of the topic.
func (h *Hub) wake(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subscribers[topic] {
		poke(c)
	}
}

// wakeAll wakes all subscribers, who may have missed hints while the hub was not listening.
func (h *Hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subscribers := range h.subscribers {
		for c := range subscribers {
			poke(c)
		}
	}
}

// poke puts an item into the channel unless it holds one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sendLoop sends the queued hints, at most one batch per hintWindow.
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
		sleep(ctx, hintWindow)
	}
}

// flush sends the queued hints in one transaction. Hints of a failed one are lost.
func (h *Hub) flush(ctx context.Context) error {
	h.mu.Lock()
	outbox := h.outbox
	h.outbox = map[Hint]struct{}{}
	h.mu.Unlock()
	channels, topics := make([]string, 0, len(outbox)), make([]string, 0, len(outbox))
	for hint := range outbox {
		channels, topics = append(channels, hint.Channel), append(topics, hint.Topic)
	}
	// A hint need not survive a crash, so the transaction does not wait for the disk.
	_, err := h.pool.Exec(ctx, `
		SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, topic)
		FROM unnest($1::text[], $2::text[]) AS hint (channel, topic)`, channels, topics)
	return err
}

// listenLoop listens, and connects again after an error.
func (h *Hub) listenLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if err := h.listen(ctx); err != nil && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "listen for hints", "error", err)
			sleep(ctx, reconnectDelay)
		}
	}
}

func (h *Hub) listen(ctx context.Context) error {
	pooled, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// The connection never returns to the pool: one that listens must not serve queries.
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

// sleep waits for the duration, and reports false if the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
