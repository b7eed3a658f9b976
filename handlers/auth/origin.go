package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// crossOrigin detects requests that browsers make for pages of other sites.
var crossOrigin = http.NewCrossOriginProtection()

// checkOrigin rejects requests without a key that a page of another site makes in a browser. No key protects an open
// server from these; only their origin tells them apart. It fails with [ErrForbidden].
func (a *Authenticator) checkOrigin(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return fmt.Errorf("%w: this server is open, and the request comes from a page of another site", ErrForbidden)
	}
	if a.options.Local && !isLocalName(r.Host) {
		return fmt.Errorf("%w: without a key, this server accepts only localhost and IP addresses as its host, not %q:"+
			" set STEPWELL_API_KEY, or STEPWELL_OPEN=true", ErrForbidden, r.Host)
	}
	if isPage(r) && !isLocalName(r.Host) {
		return fmt.Errorf("%w: this server is open, and the request comes from a page of %q, a name that anybody could"+
			" make lead here (DNS rebinding): use a key", ErrForbidden, r.Host)
	}
	return nil
}

// isPage reports whether a browser made the request for a page, and could not have made it for a link. Browsers tell
// the origin of such requests.
func isPage(r *http.Request) bool {
	return !onlyReads(r) && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "")
}

// onlyReads reports whether the request changes nothing, by its method.
func onlyReads(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// isLocalName reports whether a host is an IP address or a name that cannot be DNS-rebound. To a browser, a page of a
// rebound name has the same origin as this server.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		strings.HasSuffix(host, ".internal") // containers use it for their host, as in host.docker.internal
}
