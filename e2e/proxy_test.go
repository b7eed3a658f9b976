package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// proxy is an HTTP proxy between an app and a server, in either direction.
type proxy struct{ *httptest.Server }

// newProxy starts a proxy whose handler decides about each request, and can forward it to the target.
func newProxy(t *testing.T, target string, handler func(forward http.Handler) http.HandlerFunc) *proxy {
	t.Helper()
	p := &proxy{httptest.NewServer(handler(forwardTo(t, target)))}
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// forwardTo forwards requests to the target. If the target is unreachable, it closes the client's connection.
func forwardTo(t *testing.T, target string) http.Handler {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1, // do not buffer streams
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { hangUp(w) },
	}
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }
