package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// transport is an HTTP transport that connects to what may be called, or to a proxy.
//
// The two have connections of their own. A proxy's address is the operator's choice, and is dialed whatever it is; but
// only for requests that go through the proxy, or a deployment at that address would be called as well.
type transport struct {
	allowed         Allowed
	proxy           func(*http.Request) (*url.URL, error)
	direct, proxied *http.Transport
}

// Transport makes a transport with the settings of base, which connects to allowed addresses alone. Where the
// environment names a proxy it goes through that, which then decides where names lead to.
func (a Allowed) Transport(base *http.Transport) http.RoundTripper {
	return a.transport(base, http.ProxyFromEnvironment, nil)
}

func (a Allowed) transport(
	base *http.Transport, proxy func(*http.Request) (*url.URL, error), resolver *net.Resolver,
) *transport {
	guarded := net.Dialer{
		Timeout: dialTimeout, KeepAlive: keepAlive, Resolver: resolver, ControlContext: a.control,
	}
	open := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Resolver: resolver}
	t := &transport{allowed: a, proxy: proxy, direct: base.Clone(), proxied: base.Clone()}
	t.direct.Proxy, t.direct.DialContext = nil, guarded.DialContext
	t.proxied.Proxy, t.proxied.DialContext = proxy, open.DialContext
	return t
}

// control is called with each address that is about to be connected to.
func (a Allowed) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %q is none: %w", address, err)
	}
	return a.Check(target.Addr())
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	proxy, err := t.proxy(r)
	if err == nil && proxy != nil {
		err = t.allowed.CheckURL(r.URL) // names are the proxy's business, addresses are not
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	if proxy != nil {
		return t.proxied.RoundTrip(r)
	}
	return t.direct.RoundTrip(r)
}

// CloseIdleConnections closes the connections that nobody uses.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
