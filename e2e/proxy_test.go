package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// proxy stands between an app and a server, in either direction.
type proxy struct{ *httptest.Server }

// newProxy forwards requests to the target unless the handler it is given does something else with them.
func newProxy(t *testing.T, target string, handler func(forward http.Handler) http.HandlerFunc) *proxy {
	t.Helper()
	p := &proxy{httptest.NewServer(handler(forwardTo(t, target)))}
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// forwardTo passes requests on. A target that cannot be reached looks like one that hangs up.
func forwardTo(t *testing.T, target string) http.Handler {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1, // streams must not wait
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { hangUp(w) },
	}
}

// hangUp breaks the connection off without an answer.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }
