// Package servertest has what tests of servers share.
package servertest

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Request sends a request and returns the response. The test closes its body.
func Request(t *testing.T, method, url, body string, header ...string) *http.Response {
	t.Helper()
	resp, err := Try(t, method, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Try is [Request] for goroutines other than the test's own.
func Try(t *testing.T, method, url, body string, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

// WantStopped checks that a server has closed its listener and its pool; an empty address and nil for none.
func WantStopped(t *testing.T, addr string, pool *pgxpool.Pool) {
	t.Helper()
	if addr != "" {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
			_ = conn.Close()
			t.Error("the server still listens")
		}
	}
	if pool != nil {
		if err := pool.Ping(t.Context()); err == nil {
			t.Error("the pool is still open")
		}
	}
}
