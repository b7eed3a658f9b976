package linear

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// fault is a fault of a connection. Each connection carries one request.
type fault int

const (
	noFault     fault = iota
	slow              // the request and the answer are delayed
	truncate          // only half of the request arrives
	dropAnswer        // the request arrives, the answer is lost
	lateRequest       // the client's connection is closed, then the request arrives
	duplicate         // the request also arrives at the other server
	faults
)

// proxy is a TCP proxy before a server. It has one listener for each fault, so that the client chooses the fault.
type proxy struct {
	target func() string // the address of the server
	other  func() string // the address of the other server

	listeners [faults]net.Listener
	running   sync.WaitGroup
}

func newProxy(t *testing.T, target, other func() string) *proxy {
	t.Helper()
	p := &proxy{target: target, other: other}
	for f := range faults {
		var err error
		if p.listeners[f], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		p.running.Go(func() { p.accept(f) })
	}
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url(f fault) string { return "http://" + p.listeners[f].Addr().String() }

// close closes the listeners and waits for the requests in flight.
func (p *proxy) close() {
	for _, l := range p.listeners {
		_ = l.Close() // it may have been closed before
	}
	p.running.Wait()
}

func (p *proxy) accept(f fault) {
	for {
		conn, err := p.listeners[f].Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() {
			defer func() { _ = conn.Close() }()
			if request, ok := readRequest(conn); ok {
				p.pass(f, conn, request)
			}
		})
	}
}

// readRequest reads the bytes of one request.
func readRequest(conn net.Conn) ([]byte, bool) {
	var raw bytes.Buffer
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &raw)))
	if err != nil {
		return nil, false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return raw.Bytes(), err == nil
}

// pass forwards a request with the fault.
func (p *proxy) pass(f fault, client net.Conn, request []byte) {
	switch f {
	case slow:
		pause()
		answer := exchange(p.target(), request)
		pause()
		_, _ = client.Write(answer)
	case truncate:
		exchange(p.target(), request[:len(request)/2])
	case dropAnswer:
		exchange(p.target(), request)
	case lateRequest:
		_ = client.Close()
		pause()
		exchange(p.target(), request)
	case duplicate:
		p.running.Go(func() {
			pause()
			exchange(p.other(), request)
		})
		_, _ = client.Write(exchange(p.target(), request))
	default:
		_, _ = client.Write(exchange(p.target(), request))
	}
}

// exchange sends the bytes on a new connection and returns everything the server sends until it closes the connection.
// If the server dies, that may be only part of the answer, or nothing.
func exchange(address string, request []byte) []byte {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(request); err != nil {
		return nil
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && !complete(request) {
		_ = half.CloseWrite() // or the server would wait for the rest
	}
	answer, _ := io.ReadAll(conn) // keep a partial answer
	return answer
}

// complete reports whether the bytes are a complete request.
func complete(request []byte) bool {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// pause waits up to 300 ms, like a slow network.
func pause() { time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) }
