package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute // of keep-alive connections
	// maxHeader limits the header of a request in bytes.
	maxHeader = 64 << 10
	// maxConnections limits the connections of clients.
	maxConnections = 10_000

	// restTimeout is how long the server waits for the rest of a body that it does not need, so that the client can read
	// the answer before the connection closes.
	restTimeout = 5 * time.Second
	// writeTimeout is how long a client may take to read writePiece bytes of an answer.
	writeTimeout = 30 * time.Second
	writePiece   = 64 << 10
)

// connections limits the connections of an HTTP server. Beyond the limit, a new connection replaces the one that has
// been quiet for longest: it is idle, or its client does not finish the header of a request, or does not read an
// answer.
type connections struct {
	limit int

	mu  sync.Mutex
	all map[net.Conn]*connection
	// order has all connections, as *connection. Those that are quiet are in the order in which they became so.
	order *list.List
}

type connection struct {
	of       *connections // nil if the connection is not tracked
	conn     net.Conn
	requests int // in progress, without those that are writing; if there are none, the connection is quiet
	place    *list.Element
	// renewed is when the deadline of writes was last set. Only the request in progress uses it.
	renewed time.Time
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, all: map[net.Conn]*connection{}, order: list.New()}
}

// install makes the server report its connections and requests.
func (s *connections) install(h *http.Server) {
	h.ConnContext = s.opened
	h.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			s.closed(c)
		}
	}
	h.Handler = s.track(h.Handler)
}

type connectionKey struct{}

// opened adds a connection. If there are too many, it closes one.
func (s *connections) opened(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{of: s, conn: conn}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= s.limit {
		victim := s.longestQuiet()
		if victim == nil {
			_ = conn.Close()
			return ctx
		}
		s.forget(victim)
		_ = victim.conn.Close()
	}
	s.all[conn] = c
	c.place = s.order.PushBack(c)
	return context.WithValue(ctx, connectionKey{}, c)
}

// longestQuiet returns the connection that has been quiet for longest, or nil. The caller holds the mutex.
func (s *connections) longestQuiet() *connection {
	for e := s.order.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); c.requests == 0 {
			return c
		}
	}
	return nil
}

func (s *connections) closed(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.all[conn]; c != nil {
		s.forget(c)
	}
}

// forget removes a connection. The caller holds the mutex.
func (s *connections) forget(c *connection) {
	delete(s.all, c.conn)
	s.order.Remove(c.place)
}

// track records which connections have requests.
func (s *connections) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.count(1)
			defer c.count(-1)
		}
		next.ServeHTTP(w, r)
	})
}

// count changes the number of requests.
func (c *connection) count(change int) {
	s := c.of
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.requests += change
	if c.requests == 0 && s.all[c.conn] == c { // else it has been closed
		s.order.MoveToBack(c.place)
	}
}

// limitStalls limits how long a client may take to read its answer, and to send the rest of a body that the server does
// not need.
func limitStalls(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok {
			c = new(connection)
		}
		writer := stallingWriter{w, http.NewResponseController(w), timeout, c}
		next.ServeHTTP(writer, r)
		writer.renew() // the rest of the answer is still in a buffer
		if r.ContentLength != 0 {
			_ = writer.conn.SetReadDeadline(time.Now().Add(restTimeout)) // the server's writers support it
		}
	})
}

// stallingWriter writes in pieces, each of which has its own deadline: the connection of a client that stops reading
// breaks, and that of a slow one does not.
type stallingWriter struct {
	http.ResponseWriter

	conn    *http.ResponseController
	timeout time.Duration // of each piece
	on      *connection
}

// Unwrap is for [http.ResponseController].
func (w stallingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// renew sets the deadline of the next writes, unless that was done a moment ago: it costs as much as a small write.
func (w stallingWriter) renew() {
	now := time.Now()
	if now.Sub(w.on.renewed) < w.timeout/32 {
		return
	}
	w.on.renewed = now
	_ = w.conn.SetWriteDeadline(now.Add(w.timeout)) // the server's writers support it
}

// WriteHeader implements [http.ResponseWriter].
func (w stallingWriter) WriteHeader(status int) {
	w.renew()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w stallingWriter) Write(p []byte) (written int, err error) {
	for first := true; err == nil && (first || len(p) > 0); first = false {
		piece := p[:min(len(p), writePiece)]
		w.renew()
		var n int
		w.waits(func() { n, err = w.ResponseWriter.Write(piece) })
		written, p = written+n, p[n:]
	}
	return written, err
}

// FlushError is for [http.ResponseController].
func (w stallingWriter) FlushError() (err error) {
	w.renew()
	w.waits(func() { err = w.conn.Flush() })
	return err
}

// waits calls a function that waits for the client to read. Meanwhile the connection is quiet.
func (w stallingWriter) waits(write func()) {
	w.on.count(-1)
	defer w.on.count(1)
	write()
}
