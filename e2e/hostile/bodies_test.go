package hostile

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// slowSender sends requests on connections of its own, and never more than it is told.
type slowSender struct {
	addr  string
	conns []net.Conn
}

func (f *fixture) newSlowSender(t *testing.T) *slowSender {
	t.Helper()
	s := &slowSender{addr: strings.TrimPrefix(f.url, "http://")}
	t.Cleanup(s.close)
	return s
}

func (s *slowSender) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// open sends the text on a new connection.
func (s *slowSender) open(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.conns = append(s.conns, c)
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

// head returns the header of a POST request with a key, which may be empty, and a body.
func head(path, key string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: stepwell\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, key, length)
}

// largeInput is an input of about 100 kB, above the size up to which bodies are free.
var largeInput = strings.Repeat("x", 100_000)

// wantServed checks that requests of the victim with large bodies, and requests without bodies, succeed.
func (f *fixture) wantServed(t *testing.T) {
	t.Helper()
	for range 10 {
		id := f.victim.start(t, "three", largeInput)
		f.victim.send(t, http.MethodGet, "/v1/runs/"+id, nil).Want(t, http.StatusOK)
	}
}

// TestSlowBodiesLeaveRoomForOthers announces bodies that together are as large as the memory for bodies, and
// sends almost nothing of them.
func TestSlowBodiesLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	slow := f.newSlowSender(t)
	var last net.Conn
	for range 4 {
		last = slow.open(t, head("/v1/runs", f.attacker.invoke, 128<<20)+"{")
	}
	start := time.Now()
	f.wantServed(t)
	// A byte now and then does not keep the connection.
	go func() {
		for {
			if _, err := last.Write([]byte(" ")); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	if err := last.SetReadDeadline(time.Now().Add(harness.Timeout)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(last), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
		t.Errorf("the slow body was answered with %s, close %t; want 408 and a closed connection", resp.Status, resp.Close)
	}
	t.Logf("the slow body was refused after %s", time.Since(start).Round(time.Second))
}

// TestManySlowBodiesLeaveRoomForOthers holds more requests than the server runs at once.
func TestManySlowBodiesLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	slow := f.newSlowSender(t)
	f.wantUnharmed(t, func() func() {
		for range 1200 {
			slow.open(t, head("/v1/runs", f.attacker.invoke, 100_000)+"{")
		}
		f.wantServed(t)
		return func() {}
	})
}

// TestAnswersDoNotWaitForBodies sends requests that announce a body which their routes do not need, and never send it. If
// the answer waited for the body, 10,000 such requests of strangers would hold all connections.
func TestAnswersDoNotWaitForBodies(t *testing.T) {
	f := newFixture(t)
	slow := f.newSlowSender(t)
	for _, request := range []string{
		"GET /clients/world.tgz", "GET /v1/openapi.json", "GET /metrics", "GET /v1/events/stream", "GET /healthz", "OPTIONS *",
	} {
		for _, body := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			c := slow.open(t, fmt.Sprintf("%s HTTP/1.1\r\nHost: stepwell\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n",
				request, adminKey, body))
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				t.Errorf("%s, %s: %v", request, body, err)
			}
		}
	}
}

// TestStrangersTakeNothing sends unfinished requests without a valid key. They are answered before their bodies.
func TestStrangersTakeNothing(t *testing.T) {
	f := newFixture(t)
	slow := f.newSlowSender(t)
	var answered sync.WaitGroup
	for i := range 1200 {
		c := slow.open(t, head("/v1/runs", "sw_wrong", 100_000)+"{")
		if i%100 > 0 {
			continue
		}
		answered.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(harness.Timeout))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("got %s, want 401", resp.Status)
			}
		})
	}
	start := time.Now()
	answered.Wait()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the strangers were answered after %s, want at once", took)
	}
	f.wantServed(t)
}
