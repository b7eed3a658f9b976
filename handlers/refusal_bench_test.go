package handlers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// BenchmarkRefusedStart measures a start that is refused, over a connection that stays open, and an answer of the same
// form by a handler that does nothing else. Both include the client.
func BenchmarkRefusedStart(b *testing.B) {
	e, q, _ := newEchoOf(b, "sk_test")
	ctx, cancel := context.WithCancel(b.Context())
	resume := q.Group().Pause()
	most := startsPerProcessor * runtime.GOMAXPROCS(0)
	var busy sync.WaitGroup
	for range most {
		busy.Go(func() { _ = q.Group().Do(share.For(ctx, "default"), nothing{}) })
	}
	for q.Group().UnderWay() < most {
		runtime.Gosched()
	}
	for range mostStarts {
		busy.Go(func() { serveIn(ctx, e, "/v1/runs") })
	}
	for status := 0; status != http.StatusTooManyRequests; { // until as many wait as may
		one, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		status = serveIn(one, e, "/v1/runs")
		cancel()
	}
	b.Run("server", func(b *testing.B) { askToStart(b, e) })
	b.Run("floor", func(b *testing.B) {
		askToStart(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"code":"too_many_starts"}}`)
		}))
	})
	cancel()
	resume()
	busy.Wait()
}

// serveIn serves a start until the context ends, and returns its status.
func serveIn(ctx context.Context, h http.Handler, path string) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, nil)
	r.Header.Set("Authorization", "Bearer sk_test")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// askToStart asks a server to start a run, again and again, and wants it to refuse.
func askToStart(b *testing.B, h http.Handler) {
	s := httptest.NewServer(h)
	defer s.Close()
	conn := check.Value(net.Dial("tcp", s.Listener.Addr().String()))(b)
	reader := bufio.NewReader(conn)
	const body = `{"workflow":"order","deployment":"dpl_1","input":"seq-3"}`
	request := fmt.Sprintf("POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_test\r\n"+
		"Content-Type: application/json\r\nPrefer: wait=60\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusTooManyRequests {
			b.Fatalf("got %d", resp.StatusCode)
		}
	}
}
