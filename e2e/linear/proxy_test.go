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

// fault is what happens to a connection, which carries one request.
type fault int

const (
	none  fault = iota
	slow        // the request waits, and so does the answer
	cut         // half of the request arrives
	mute        // the request arrives whole, the answer does not
	late        // the client is hung up on, and then the request arrives
	twice       // the request arrives once more, by another server
	faults
)

// proxy stands before a server. It listens once for each fault, so that whoever asks knows what will happen.
type proxy struct {
	target func() string // the server's address
	other  func() string // another server's

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

// close lets no more connections in and waits for the requests that are on their way.
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

// readRequest takes in the bytes of one request.
func readRequest(conn net.Conn) ([]byte, bool) {
	var raw bytes.Buffer
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &raw)))
	if err != nil {
		return nil, false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return raw.Bytes(), err == nil
}

// pass passes a request on as the fault says.
func (p *proxy) pass(f fault, client net.Conn, request []byte) {
	switch f {
	case slow:
		pause()
		answer := exchange(p.target(), request)
		pause()
		_, _ = client.Write(answer)
	case cut:
		exchange(p.target(), request[:len(request)/2])
	case mute:
		exchange(p.target(), request)
	case late:
		_ = client.Close()
		pause()
		exchange(p.target(), request)
	case twice:
		p.running.Go(func() {
			pause()
			exchange(p.other(), request)
		})
		_, _ = client.Write(exchange(p.target(), request))
	default:
		_, _ = client.Write(exchange(p.target(), request))
	}
}

// exchange sends the bytes on a connection of its own and returns what comes back until the server hangs up; less
// of it, or nothing, when the server dies meanwhile.
func exchange(address string, request []byte) []byte {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(request); err != nil {
		return nil
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && !complete(request) {
		_ = half.CloseWrite() // or the server would wait for the rest
	}
	answer, _ := io.ReadAll(conn) // what there is of it
	return answer
}

// complete reports whether the bytes are a whole request.
func complete(request []byte) bool {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// pause is how long a network may hold a packet back.
func pause() { time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) }
