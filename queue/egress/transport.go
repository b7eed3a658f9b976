package egress

import (
	"context"
	"errors"
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

// transport is an HTTP transport that connects to allowed addresses, or to a proxy.
//
// The two have separate connection pools. The operator chose the proxy, so its address is not checked; but only
// requests through the proxy may use its connections, or a deployment with the proxy's address could be called too.
type transport struct {
	allowed         Allowed
	proxy           func(*http.Request) (*url.URL, error)
	direct, proxied *http.Transport
}

// Transport returns a transport with the settings of base that connects only to allowed addresses. It uses the proxy of
// the environment, if any; the proxy then resolves names and must restrict them itself.
func (a Allowed) Transport(base *http.Transport) http.RoundTripper {
	return a.transport(base, http.ProxyFromEnvironment, nil)
}

func (a Allowed) transport(
	base *http.Transport, proxy func(*http.Request) (*url.URL, error), resolver *net.Resolver,
) *transport {
	checked := net.Dialer{
		Timeout: dialTimeout, KeepAlive: keepAlive, Resolver: resolver, ControlContext: a.control,
	}
	unchecked := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Resolver: resolver}
	t := &transport{allowed: a, proxy: proxy, direct: base.Clone(), proxied: base.Clone()}
	t.direct.Proxy, t.direct.DialContext = nil, byName(checked.DialContext)
	t.proxied.Proxy, t.proxied.DialContext = proxy, unchecked.DialContext
	return t
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// byName returns a dialer with one error for all names that lead nowhere: whoever may choose the host of a URL must not
// learn which names exist in the server's network.
func byName(to dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := to(ctx, network, address)
		host, _, split := net.SplitHostPort(address)
		if _, notName := netip.ParseAddr(host); err == nil || split != nil || notName == nil {
			return c, err
		}
		unknown, forbidden := (*net.DNSError)(nil), (*ForbiddenError)(nil)
		if errors.As(err, &unknown) && unknown.IsNotFound || errors.As(err, &forbidden) {
			err = &net.OpError{Op: "dial", Net: network, Err: &NoAddressError{Host: host}}
		}
		return nil, err
	}
}

// control is called by the dialer with each resolved address before it connects.
func (a Allowed) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("invalid address %q: %w", address, err)
	}
	return a.Check(target.Addr())
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	proxy, err := t.proxy(r)
	if err == nil && proxy != nil {
		err = t.allowed.CheckURL(r.URL) // the proxy resolves names, but literal addresses are checked here
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

// CloseIdleConnections closes the idle connections of both pools.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
