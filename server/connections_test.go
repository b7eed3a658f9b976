package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// dial opens a connection to a test server and sends the text.
func dial(t *testing.T, s *httptest.Server, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

const get = "GET / HTTP/1.1\r\nHost: stepwell\r\n\r\n"

// TestClientThatStopsReadingIsCutOff checks that the handler's write fails, but not for a client that reads slowly.
func TestClientThatStopsReadingIsCutOff(t *testing.T) {
	t.Parallel()
	const size = 32 << 20 // more than the buffers of a connection
	written := make(chan error, 2)
	s := httptest.NewServer(limitStalls(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, err := w.Write(make([]byte, size))
		if err == nil && n != size {
			err = io.ErrShortWrite
		}
		written <- err
	}), 200*time.Millisecond))
	t.Cleanup(s.Close)
	dial(t, s, get)
	if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want that the write timed out", err)
	}
	slow := dial(t, s, get)
	buffer := make([]byte, 4<<20)
	for read := 0; read < size; {
		time.Sleep(50 * time.Millisecond) // in all longer than the timeout
		n, err := io.ReadAtLeast(slow, buffer, min(len(buffer), size-read))
		if err != nil {
			t.Fatal(err)
		}
		read += n
	}
	if err := <-written; err != nil {
		t.Errorf("writing to a slow reader: %v", err)
	}
}

// TestNewConnectionsReplaceQuietOnes checks that connections without a request give way to new ones.
func TestNewConnectionsReplaceQuietOnes(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan bool), make(chan bool)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-finish
		_, _ = w.Write([]byte("done"))
	}))
	newConnections(3).install(s.Config)
	s.Start()
	t.Cleanup(s.Close)
	busy := dial(t, s, get)
	<-begun
	var unfinished []net.Conn
	for range 10 {
		unfinished = append(unfinished, dial(t, s, "GET / HTTP/1.1\r\nHost: "))
	}
	for _, c := range unfinished[:8] { // the last two have the slots beside the busy one
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a closed connection", err)
		}
	}
	last := dial(t, s, get)
	<-begun
	for _, c := range []net.Conn{busy, last} {
		finish <- true
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	}
	for _, c := range []net.Conn{busy, last} {
		answer := make([]byte, 1000)
		n, err := c.Read(answer)
		if err != nil || !bytes.Contains(answer[:n], []byte("done")) {
			t.Errorf("got %q, %v", answer[:n], err)
		}
	}
}

// TestNewConnectionsReplaceThoseThatDoNotRead checks that a client gets a connection although all are held by clients
// that do not read their answers.
func TestNewConnectionsReplaceThoseThatDoNotRead(t *testing.T) {
	t.Parallel()
	const limit = 3
	failed := make(chan error, limit)
	s := httptest.NewUnstartedServer(limitStalls(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, err := w.Write(make([]byte, 32<<20)) // more than the buffers of a connection
			failed <- err
		}
	}), time.Minute))
	newConnections(limit).install(s.Config)
	s.Start()
	t.Cleanup(s.Close)
	for range limit {
		c := dial(t, s, "GET /large HTTP/1.1\r\nHost: stepwell\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil { // the answer has begun
			t.Fatal(err)
		}
	}
	c := dial(t, s, get)
	_ = c.SetReadDeadline(time.Now().Add(waitLimit))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("the new connection has no answer: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("all answers were written, want that one connection gave way")
	}
}
