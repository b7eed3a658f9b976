package s3test

import (
	"io"
	"math"
	"net"
	"sync"
)

// wire is a proxy to the server's socket.
type wire struct {
	mu     sync.Mutex
	socket string
	left   int64 // request bytes until all connections are closed
	open   map[net.Conn]bool
}

func (w *wire) connect(socket string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket = socket
}

// Cut closes all connections after the given number of further request bytes, and rejects new ones until Mend.
func (w *wire) Cut(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = bytes
	w.cutIfOver()
}

// Mend lets connections through again after Cut.
func (w *wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = math.MaxInt64
}

func (w *wire) cutIfOver() {
	if w.left > 0 {
		return
	}
	for conn := range w.open {
		_ = conn.Close()
	}
}

// serve forwards connections until the listener and all connections are closed.
func (w *wire) serve(l net.Listener) {
	var passing sync.WaitGroup
	defer passing.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		passing.Go(func() { w.pass(conn) })
	}
}

func (w *wire) pass(conn net.Conn) {
	defer w.forget(conn)
	socket, ok := w.keep(conn)
	if !ok {
		return
	}
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer w.forget(server)
	if _, ok := w.keep(server); !ok {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(conn, server)
		_ = conn.Close()
	})
	_, _ = io.Copy(server, meter{conn, w})
	_ = server.Close()
	answers.Wait()
}

// keep registers an open connection. It reports false while connections are cut.
func (w *wire) keep(conn net.Conn) (socket string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[net.Conn]bool{}
	}
	w.open[conn] = true
	return w.socket, w.left > 0
}

func (w *wire) forget(conn net.Conn) {
	_ = conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, conn)
}

// meter counts the bytes of requests and ends them at the cut.
type meter struct {
	net.Conn
	wire *wire
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.wire.mu.Lock()
	defer m.wire.mu.Unlock()
	n = int(min(int64(n), max(m.wire.left, 0)))
	m.wire.left -= int64(n)
	m.wire.cutIfOver()
	return n, err
}
