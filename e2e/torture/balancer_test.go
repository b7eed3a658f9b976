package torture

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"testing"
	"time"
)

// balancer forwards the apps' requests to the servers in turn, and skips servers that do not accept connections.
type balancer struct {
	*httptest.Server
	servers   []string
	turn      atomic.Uint64
	transport *http.Transport
	inFlight  atomic.Int64 // requests
}

func newBalancer(t *testing.T, servers ...string) *balancer {
	t.Helper()
	b := &balancer{servers: servers, transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // clients see 502 or a broken connection
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.inFlight.Add(1)
		defer b.inFlight.Add(-1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	first := b.turn.Add(1)
	if req.Body != nil {
		req.Body = io.NopCloser(req.Body) // keep it open, for another try if the dial fails
	}
	for i := range uint64(len(b.servers)) {
		req.URL.Scheme, req.URL.Host = "http", b.servers[(first+i)%uint64(len(b.servers))]
		resp, err = b.transport.RoundTrip(req)
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" {
			break
		}
	}
	return resp, err
}
